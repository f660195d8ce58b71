//! The journal: where every event is kept, and the only maker of [`Journaled`].
//!
//! It also keeps how far each sink has come, in the same transactions, so that progress and events never disagree,
//! and the pauses that VTEX asked for, so that a restart does not break them.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::event::{Handle, Item};

pub use sqlite::SqliteJournal;

pub mod desk;
mod schema;
mod sqlite;

/// Proof that an event is on stable storage, and the handle that commits it.
///
/// A commit cannot be undone, so the feed takes only this (invariant 1), and only the journal, after its
/// transaction is synced, can make one:
///
/// ```compile_fail
/// let handle = order_feed_agent::event::Handle::new("a handle that was never journaled".to_owned());
/// let journaled = order_feed_agent::journal::Journaled { handle };
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journaled {
    handle: Handle,
}

impl Journaled {
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// The batch of one receive, and what the journal must know of it.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The feed's name in the configuration.
    pub account: String,
    /// What the envelope calls the source: `<base_url>/api/orders/feed`.
    pub source: String,
    pub items: Vec<Item>,
    pub received_at: Timestamp,
    /// How long VTEX may hide an item: within it an event that nothing identifies is taken for its own duplicate.
    pub lease: Duration,
}

/// What became of a batch. Every item that had a handle is in `journaled`, duplicates and quarantined ones too:
/// their handles are as good as any to make the feed forget them.
#[derive(Debug, Default)]
pub struct Appended {
    pub journaled: Vec<Journaled>,
    /// Events that were not in the journal before.
    pub n_new: usize,
    pub n_duplicates: usize,
    /// Items that no event can be made of, seen for the first time; each with its reason in words.
    pub quarantined: Vec<String>,
    /// The keys of all events and the hashes of all unusable items of the batch.
    pub keys: Vec<[u8; 16]>,
}

/// An event as the journal kept it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its place in the journal; grows, is never used again.
    pub seq: i64,
    /// Stable across redelivery, restart and replay.
    pub id: [u8; 16],
    pub account: String,
    pub source: String,
    pub order_id: String,
    pub state: String,
    pub current_change: Option<Timestamp>,
    pub received_at: Timestamp,
    /// Whether the journal holds a newer change of the same order.
    pub superseded: bool,
    /// The item as received, in one line, without its handle.
    pub item: String,
}

/// An event as its deliveries are planned by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    pub seq: i64,
    pub account: String,
    pub order_id: String,
    pub state: String,
}

/// How the delivery of one event to one sink stands, where the sink's progress does not say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryState {
    /// Delivered before an event that comes before it.
    Delivered,
    /// To be delivered.
    Pending(Tries),
    /// Set aside until somebody retries or discards it.
    Dead(Tries),
}

/// What was tried so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tries {
    /// Attempts that count against the event.
    pub attempts: u32,
    /// All failed attempts.
    pub failures: u32,
    pub last: Option<FailedAttempt>,
}

/// An attempt at a delivery that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    pub at: Timestamp,
    /// One line, without secrets.
    pub reason: String,
    /// The beginning of what the receiver answered; somebody else's text, without our secrets.
    pub answer: Option<String>,
}

/// What a sink that takes event by event has done since it was recorded last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Up to here every event is delivered, not wanted, or has a state of its own.
    pub seq: i64,
    /// At most one for each place.
    pub states: Vec<(i64, DeliveryState)>,
}

/// How far a sink has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Every event up to and including this place is delivered.
    pub seq: i64,
    /// Where the sink's own medium stood at that moment.
    pub mark: Option<Mark>,
}

/// Where a sink goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    pub progress: Progress,
    /// How many journaled events the sink will not get because it was added after others; 0 for a known sink.
    pub n_skipped: u64,
}

/// A file and its length: what is behind it was written after the progress was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub inode: u64,
    /// Bytes.
    pub length: u64,
}

/// No request to a VTEX account until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPause {
    pub ends_at: Timestamp,
    /// As it was when it began: however the clock was set meanwhile, no more than this is left of it.
    pub length: Duration,
}

/// Keeps events and pauses for good: what an account needs.
pub trait Journal: Send + Sync {
    /// Stores a batch in one synced transaction, dropping the events it knows. Inside the batch the events of an
    /// order are stored in the order of their `currentChange`.
    ///
    /// Runs to its end even if the future is dropped.
    fn append(&self, batch: Batch) -> impl Future<Output = Result<Appended, JournalError>> + Send;

    /// Proves that the journal can be written: one synced write that changes nothing else. After any failed write
    /// the others fail too until this has succeeded.
    fn probe(&self) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// Whether a write failed and no probe has succeeded since: nothing may be received then (never lease what cannot
    /// be stored), nor committed.
    fn is_blocked(&self) -> bool;

    /// Stores the pause of a VTEX account in place of the one it had.
    fn store_pause(
        &self,
        vtex_account: &str,
        pause: StoredPause,
    ) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// The last pause of a VTEX account, which may be over.
    fn pause(
        &self,
        vtex_account: &str,
    ) -> impl Future<Output = Result<Option<StoredPause>, JournalError>> + Send;
}

/// The same journal as deliveries see it: events come out, and how far each sink is goes in.
pub trait Outbox: Journal {
    /// The events behind `seq` in journal order: at most `max_events`, and no more once they hold `max_bytes`.
    fn entries_after(
        &self,
        seq: i64,
        max_events: usize,
        max_bytes: usize,
    ) -> impl Future<Output = Result<Vec<Entry>, JournalError>> + Send;

    /// The same events without what they hold.
    fn headings_after(
        &self,
        seq: i64,
        max_events: usize,
    ) -> impl Future<Output = Result<Vec<Heading>, JournalError>> + Send;

    /// One event; `None` where nothing is kept at that place.
    fn entry(&self, seq: i64) -> impl Future<Output = Result<Option<Entry>, JournalError>> + Send;

    /// The events behind `seq` that are [pending](DeliveryState::Pending) or [delivered](DeliveryState::Delivered) out of
    /// turn, and the [dead](DeliveryState::Dead) or discarded ones that the sink's progress has not passed, in journal
    /// order, at most `max_events`.
    fn open_deliveries(
        &self,
        sink: &str,
        seq: i64,
        max_events: usize,
    ) -> impl Future<Output = Result<Vec<(Heading, DeliveryState)>, JournalError>> + Send;

    /// Records in one synced transaction what a sink has done.
    fn settle(
        &self,
        sink: &str,
        settlement: Settlement,
    ) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// Where a sink goes on. The first sink ever starts at the beginning of the journal, a later one at its end.
    fn resume(&self, sink: &str) -> impl Future<Output = Result<Resume, JournalError>> + Send;

    fn record_progress(
        &self,
        sink: &str,
        progress: Progress,
    ) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// Changes with every append that stored something new.
    fn appended(&self) -> watch::Receiver<()>;

    /// Changes when another process has written, which may have made dead letters pending again.
    fn altered(&self) -> watch::Receiver<()>;
}

/// What a pass of pruning took out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    pub n_events: u64,
    pub n_keys: u64,
    /// Sinks that are forgotten, each with how many of its deliveries were still to be made or set aside.
    pub sinks: BTreeMap<String, u64>,
}

/// The journal could not be opened or used. Its file is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("journal {}: cannot open", path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("journal {}: {}", path.display(), what)]
    Unusable { path: PathBuf, what: &'static str },
    #[error("journal {}: in use by another agent (process {holder}); only one may run on a journal", path.display())]
    Locked { path: PathBuf, holder: String },
    #[error("journal {}: written by a newer version (schema {found}, this binary knows up to {known}); install that version again", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("journal {}: written by an older version (schema {found}, this binary needs {needed}); `order-feed-agent run` of this version brings it up to date", path.display())]
    Older { path: PathBuf, found: i64, needed: i64 },
    #[error("journal {}: there is none yet; `order-feed-agent run` makes it", path.display())]
    Missing { path: PathBuf },
    #[error("journal {}: this is a database of another program", path.display())]
    Foreign { path: PathBuf },
    #[error("journal {}: {doing}", path.display())]
    Sqlite { path: PathBuf, doing: &'static str, source: rusqlite::Error },
    #[error("journal {}: a write failed before; nothing is stored until it can be written again", path.display())]
    Suspect { path: PathBuf },
    /// The thread that did the work panicked.
    #[error("journal {}: the storage task ended early", path.display())]
    Task { path: PathBuf },
}
