//! The journal in a SQLite file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;

use super::schema;
use crate::config::Wanted;

use super::{
    Appended, Batch, DeliveryState, Entry, Heading, Journal, JournalError, Outbox, Progress, Pruned, Resume,
    Settlement, StoredPause,
};

pub(super) mod append;
pub(super) mod deliveries;
pub(super) mod open;
mod prune;
pub(super) mod read;
pub(super) mod sinks;

/// VTEX hands out no event that is older, so what is known longer need not be known any more.
const LONGEST_REDELIVERY: Duration = Duration::from_secs(15 * 86_400);

/// Between two steps of pruning.
const PRUNE_PAUSE: Duration = Duration::from_millis(20);

/// One connection, used by one blocking task at a time.
pub struct SqliteJournal {
    path: PathBuf,
    store: Arc<Mutex<Store>>,
    /// Of the store, to be read while it works.
    suspect: Arc<AtomicBool>,
    appended: watch::Sender<()>,
    altered: watch::Sender<()>,
    /// Held open while the journal is: it keeps a second agent out.
    _lock: Option<File>,
}

struct Store {
    connection: Connection,
    /// The file could not be opened again: the connection is an empty one in its place.
    is_detached: bool,
    /// As it was when the journal was last looked at for changes of another process.
    data_version: Option<i64>,
    /// A write failed. After a failed fsync the kernel may call the lost pages clean, so the connection that wrote
    /// them is not believed any more.
    suspect: Arc<AtomicBool>,
}

impl SqliteJournal {
    /// Opens the journal at `path`, or makes it (mode 0600) where there is none, and brings its tables up to
    /// date. Blocks; call it before the runtime does other work.
    ///
    /// # Errors
    /// Another agent holds it, or the file is damaged, newer, of another program, or out of reach. It is left
    /// as it was then.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        // Two names of one file must meet at one lock.
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let unusable = |what| JournalError::Unusable { path: path.to_owned(), what };
        if path.is_dir() {
            return Err(unusable("is a directory, not a file"));
        }
        let lock = open::lock(path)?;
        if open::is_empty(path) && !open::is_empty(&open::beside(path, "-wal")) {
            return Err(unusable(
                "is missing or empty, but its write-ahead log (-wal) holds events; put them together again",
            ));
        }
        open::create_private(path).map_err(|source| JournalError::Open { path: path.to_owned(), source })?;
        let connection = open::connect(path)?;
        let suspect = Arc::new(AtomicBool::new(false));
        Ok(Self {
            path: path.to_owned(),
            store: Arc::new(Mutex::new(Store {
                connection,
                is_detached: false,
                data_version: None,
                suspect: Arc::clone(&suspect),
            })),
            suspect,
            appended: watch::channel(()).0,
            altered: watch::channel(()).0,
            _lock: Some(lock),
        })
    }

    /// A journal that is gone when it is dropped, for tests and simulations.
    ///
    /// # Errors
    /// SQLite could not make it.
    pub fn in_memory() -> Result<Self, JournalError> {
        let path = PathBuf::from(":memory:");
        let sqlite = |source| JournalError::Sqlite { path: path.clone(), doing: "cannot be made", source };
        let mut connection = Connection::open_in_memory().map_err(sqlite)?;
        schema::migrate(&mut connection, 0).map_err(sqlite)?;
        let suspect = Arc::new(AtomicBool::new(false));
        Ok(Self {
            store: Arc::new(Mutex::new(Store {
                connection,
                is_detached: false,
                data_version: None,
                suspect: Arc::clone(&suspect),
            })),
            suspect,
            appended: watch::channel(()).0,
            altered: watch::channel(()).0,
            _lock: None,
            path,
        })
    }

    /// Notes which sinks are configured at `now`; the others are forgotten once they are missing for long enough. The
    /// first sinks ever begin with the oldest event, those that are added later with the next. Returns how many events
    /// each of these does not get.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn know_sinks(
        &self,
        names: Vec<String>,
        now: Timestamp,
    ) -> Result<BTreeMap<String, u64>, JournalError> {
        self.write("cannot note the sinks", move |connection| {
            sinks::know(connection, &names, now.as_millisecond())
        })
        .await
    }

    /// Notes what a sink wants from where it stands on.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn note_wanted(&self, sink: &str, wanted: &Wanted) -> Result<(), JournalError> {
        let (sink, what) = (sink.to_owned(), serde_json::to_string(wanted).unwrap_or_default());
        self.write("cannot note what a sink wants", move |connection| {
            sinks::note_wanted(connection, &sink, &what)
        })
        .await
    }

    /// Takes out, in small steps, what is older than `retention` at `now`: events that every sink is done with, sinks
    /// that are missing since then, and keys that no redelivery can meet any more. Dropping the future leaves the rest
    /// for the next time.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn prune(&self, retention: Duration, now: Timestamp) -> Result<Pruned, JournalError> {
        let ago = |length: Duration| {
            now.as_millisecond().saturating_sub(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
        };
        let before =
            prune::Before { events_ms: ago(retention), keys_ms: ago(retention.max(LONGEST_REDELIVERY)) };
        let mut pruned = Pruned::default();
        let mut place = Some(prune::Place::Sinks);
        while let Some(at) = place {
            let mut so_far = std::mem::take(&mut pruned);
            (place, pruned) = self
                .write("cannot be pruned", move |connection| {
                    let next = prune::step(connection, at, before, &mut so_far)?;
                    Ok((next, so_far))
                })
                .await?;
            sleep(PRUNE_PAUSE).await;
        }
        Ok(pruned)
    }

    /// Looks whether another process has written since the last look, and tells those who want to know.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn look_for_changes(&self) -> Result<(), JournalError> {
        let has_changed = self
            .with(|store, sqlite| {
                let version = store
                    .connection
                    .pragma_query_value(None, "data_version", |row| row.get(0))
                    .map_err(|source| sqlite("cannot be read", source))?;
                Ok(store.data_version.replace(version).is_some_and(|before| before != version))
            })
            .await?;
        if has_changed {
            // It may also be an event: a quarantined item that was decoded again.
            self.appended.send_replace(());
            self.tell_altered();
        }
        Ok(())
    }

    /// Lets deliveries look again at what is pending.
    pub(crate) fn tell_altered(&self) {
        self.altered.send_replace(());
    }

    /// Runs `work` on the connection in a blocking task. The work goes on to its end if the future is dropped.
    async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        let path = self.path.clone();
        self.with(move |store, sqlite| {
            if store.is_detached {
                return Err(JournalError::Suspect { path });
            }
            work(&mut store.connection).map_err(|source| sqlite(doing, source))
        })
        .await
    }

    /// The same for work that writes: a failure keeps all others from writing until the next probe.
    async fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        let path = self.path.clone();
        self.with(move |store, sqlite| {
            if store.suspect.load(Ordering::Relaxed) {
                return Err(JournalError::Suspect { path });
            }
            work(&mut store.connection).map_err(|source| {
                store.suspect.store(true, Ordering::Relaxed);
                sqlite(doing, source)
            })
        })
        .await
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(
            &mut Store,
            &dyn Fn(&'static str, rusqlite::Error) -> JournalError,
        ) -> Result<T, JournalError>
        + Send
        + 'static,
    ) -> Result<T, JournalError> {
        let mut store = Arc::clone(&self.store).lock_owned().await;
        let path = self.path.clone();
        let working = tokio::task::spawn_blocking(move || {
            work(&mut store, &|doing, source| JournalError::Sqlite { path: path.clone(), doing, source })
        });
        working.await.unwrap_or_else(|_| Err(JournalError::Task { path: self.path.clone() }))
    }
}

impl Store {
    /// Opens the file anew, proves that what the write-ahead log holds can be moved into it, and writes.
    fn recover(&mut self, path: &Path) -> Result<(), JournalError> {
        let sqlite =
            |source| JournalError::Sqlite { path: path.to_owned(), doing: "cannot be written", source };
        if self.suspect.load(Ordering::Relaxed) {
            // Closed before it is opened again.
            drop(std::mem::replace(&mut self.connection, Connection::open_in_memory().map_err(sqlite)?));
            self.is_detached = true;
            self.connection = open::connect(path)?;
            self.is_detached = false;
            // Its versions are those of the connection, so what is seen next says nothing of the time before.
            self.data_version = Some(0);
            checkpoint(&self.connection).map_err(sqlite)?;
        }
        append::probe(&mut self.connection).map_err(|source| {
            self.suspect.store(true, Ordering::Relaxed);
            sqlite(source)
        })?;
        self.suspect.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// Fails where another program reads just now: it is tried again soon.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    let is_busy: bool = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if is_busy {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(busy, None));
    }
    Ok(())
}

impl Journal for SqliteJournal {
    async fn append(&self, batch: Batch) -> Result<Appended, JournalError> {
        let appended =
            self.write("cannot store a batch", move |connection| append::append(connection, batch)).await?;
        if 0 < appended.n_new {
            self.appended.send_replace(());
        }
        Ok(appended)
    }

    async fn probe(&self) -> Result<(), JournalError> {
        let path = self.path.clone();
        self.with(move |store, _| store.recover(&path)).await
    }

    fn is_blocked(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
    }

    async fn store_pause(&self, vtex_account: &str, pause: StoredPause) -> Result<(), JournalError> {
        let vtex_account = vtex_account.to_owned();
        self.write("cannot store a pause", move |connection| {
            append::store_pause(connection, &vtex_account, pause)
        })
        .await
    }

    async fn pause(&self, vtex_account: &str) -> Result<Option<StoredPause>, JournalError> {
        let vtex_account = vtex_account.to_owned();
        self.read("cannot read a pause", move |connection| read::pause(connection, &vtex_account)).await
    }
}

impl Outbox for SqliteJournal {
    async fn entries_after(
        &self,
        seq: i64,
        max_events: usize,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, JournalError> {
        self.read("cannot read events", move |connection| {
            read::entries_after(connection, seq, max_events, max_bytes)
        })
        .await
    }

    async fn headings_after(&self, seq: i64, max_events: usize) -> Result<Vec<Heading>, JournalError> {
        self.read("cannot read events", move |connection| read::headings_after(connection, seq, max_events))
            .await
    }

    async fn entry(&self, seq: i64) -> Result<Option<Entry>, JournalError> {
        self.read("cannot read an event", move |connection| read::entry_at(connection, seq)).await
    }

    async fn open_deliveries(
        &self,
        sink: &str,
        seq: i64,
        max_events: usize,
    ) -> Result<Vec<(Heading, DeliveryState)>, JournalError> {
        let sink = sink.to_owned();
        self.read("cannot read deliveries", move |connection| {
            deliveries::open(connection, &sink, seq, max_events)
        })
        .await
    }

    async fn settle(&self, sink: &str, settlement: Settlement) -> Result<(), JournalError> {
        let sink = sink.to_owned();
        self.write("cannot record deliveries", move |connection| {
            deliveries::settle(connection, &sink, &settlement)
        })
        .await
    }

    async fn resume(&self, sink: &str) -> Result<Resume, JournalError> {
        let sink = sink.to_owned();
        self.write("cannot read a sink's progress", move |connection| sinks::resume(connection, &sink)).await
    }

    async fn record_progress(&self, sink: &str, progress: Progress) -> Result<(), JournalError> {
        let sink = sink.to_owned();
        self.write("cannot record a sink's progress", move |connection| {
            append::record_progress(connection, &sink, &progress)
        })
        .await
    }

    fn appended(&self) -> watch::Receiver<()> {
        self.appended.subscribe()
    }

    fn altered(&self) -> watch::Receiver<()> {
        self.altered.subscribe()
    }
}

#[cfg(test)]
mod tests;
