//! The journal in a SQLite file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::{Mutex, watch};

use super::schema::{self, Owner};
use super::{Appended, Batch, Entry, Journal, JournalError, Progress, Resume};

mod append;
mod read;

/// A damaged file is found at the start as long as looking at all of it costs next to nothing.
const CHECKED_WHOLE_UP_TO: u64 = 64 * 1024 * 1024;

/// One connection, used by one blocking task at a time.
pub struct SqliteJournal {
    path: PathBuf,
    connection: Arc<Mutex<Connection>>,
    appended: watch::Sender<()>,
    /// Held open while the journal is: it keeps a second agent out.
    _lock: File,
}

impl SqliteJournal {
    /// Opens the journal at `path`, or makes it (mode 0600) where there is none, and brings its tables up to
    /// date. Blocks; call it before the runtime does other work.
    ///
    /// # Errors
    /// Another agent holds it, or the file is damaged, newer, of another program, or out of reach. It is left
    /// as it was then.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        if path.is_dir() {
            return Err(JournalError::NotAFile { path: path.to_owned(), what: "is a directory, not a file" });
        }
        let lock = lock(path)?;
        create_private(path).map_err(|source| JournalError::Open { path: path.to_owned(), source })?;
        let connection = connect(path)?;
        Ok(Self {
            path: path.to_owned(),
            connection: Arc::new(Mutex::new(connection)),
            appended: watch::channel(()).0,
            _lock: lock,
        })
    }

    /// Runs `work` on the connection in a blocking task. The work goes on to its end if the future is dropped.
    async fn with<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        let mut connection = Arc::clone(&self.connection).lock_owned().await;
        match tokio::task::spawn_blocking(move || work(&mut connection)).await {
            Ok(result) => {
                result.map_err(|source| JournalError::Sqlite { path: self.path.clone(), doing, source })
            }
            Err(_) => Err(JournalError::Task { path: self.path.clone() }),
        }
    }
}

impl Journal for SqliteJournal {
    async fn append(&self, batch: Batch) -> Result<Appended, JournalError> {
        let appended =
            self.with("cannot store a batch", move |connection| append::append(connection, batch)).await?;
        if 0 < appended.n_new {
            self.appended.send_replace(());
        }
        Ok(appended)
    }

    async fn probe(&self) -> Result<(), JournalError> {
        self.with("cannot be written", append::probe).await
    }

    async fn entries_after(
        &self,
        seq: i64,
        max_events: usize,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, JournalError> {
        self.with("cannot read events", move |connection| {
            read::entries_after(connection, seq, max_events, max_bytes)
        })
        .await
    }

    async fn resume(&self, sink: &str) -> Result<Resume, JournalError> {
        let sink = sink.to_owned();
        self.with("cannot read a sink's progress", move |connection| read::resume(connection, &sink)).await
    }

    async fn record_progress(&self, sink: &str, progress: Progress) -> Result<(), JournalError> {
        let sink = sink.to_owned();
        self.with("cannot record a sink's progress", move |connection| {
            append::record_progress(connection, &sink, &progress)
        })
        .await
    }

    fn appended(&self) -> watch::Receiver<()> {
        self.appended.subscribe()
    }
}

/// Takes the lock file beside the journal and writes our process id into it.
fn lock(path: &Path) -> Result<File, JournalError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let io = |source| JournalError::Open { path: path.to_owned(), source };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(PathBuf::from(name))
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // A holder that is just starting has not written its id yet.
            if file.take(20).read_to_string(&mut holder).is_err() || holder.trim().is_empty() {
                "unknown".clone_into(&mut holder);
            }
            return Err(JournalError::Locked { path: path.to_owned(), holder: holder.trim().to_owned() });
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    file.set_len(0).map_err(io)?;
    file.rewind().map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(file)
}

/// Makes an empty file that only its owner may read, where there is none; SQLite gives its companions the same
/// mode. It is closed again before SQLite opens it: closing it later would drop SQLite's locks.
fn create_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => {
            file.sync_all()?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn connect(path: &Path) -> Result<Connection, JournalError> {
    let sqlite = |doing| move |source| JournalError::Sqlite { path: path.to_owned(), doing, source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sqlite("cannot be opened"))?;
    let version = inspect(path, &connection).map_err(sqlite("is not a readable journal"))??;
    configure(&connection).map_err(sqlite("cannot be set up"))?;
    schema::migrate(&mut connection, version).map_err(sqlite("cannot be brought up to date"))?;
    Ok(connection)
}

/// Looks at the file without changing it and returns its version, 0 for an empty one.
fn inspect(path: &Path, connection: &Connection) -> rusqlite::Result<Result<i64, JournalError>> {
    // Closing the only connection would move the write-ahead log into a file that is not ours to touch.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let path = || path.to_owned();
    let version = match schema::owner(connection)? {
        Owner::Nobody => 0,
        Owner::Ours { version } => version,
        Owner::Newer { version } => {
            return Ok(Err(JournalError::Newer { path: path(), found: version, known: schema::VERSION }));
        }
        Owner::Foreign => return Ok(Err(JournalError::Foreign { path: path() })),
    };
    if fs::metadata(path()).is_ok_and(|file| file.len() <= CHECKED_WHOLE_UP_TO) {
        let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Ok(Err(JournalError::NotAFile { path: path(), what: "is damaged" }));
        }
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(Ok(version))
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    // Without effect once there is a table; before that it lets pruning give space back.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // NORMAL would lose the last acknowledged batches at a power cut: the feed has forgotten them by then.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 16 * 1024 * 1024)?;
    connection.pragma_update(None, "foreign_keys", true)
}

#[cfg(test)]
mod tests;
