//! Where events are delivered to.
//!
//! A [`Sink`] takes batches in one order and knows where it stands: a file. An [`EventSink`] takes each event by
//! itself and can only say yes or no: a webhook, a program.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::http::NoAnswer;
use crate::journal::Mark;

pub use command::CommandSink;
pub use file::FileSink;
pub use webhook::WebhookSink;

mod command;
mod file;
mod secrets;
mod webhook;

/// An event as a sink receives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Lower-case hex; stable across redelivery, restart and replay.
    pub id: String,
    pub order_id: String,
    /// The feed's name in the configuration.
    pub account: String,
    /// Empty where VTEX sent none.
    pub state: String,
    /// The place in the journal.
    pub seq: i64,
    /// When the order changed, or else when the event was received.
    pub time: Timestamp,
    /// The CloudEvents envelope in one line, without its newline.
    pub line: String,
}

/// How a delivery ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// Nothing was written: the sink stands elsewhere than recorded, and this place must be recorded first, so
    /// that what is written next is recognised after a crash.
    Anchored(Mark),
    /// The first `n_events`, at least one, are on stable storage; the others are to be given again.
    Part { n_events: usize, mark: Mark },
    /// All of it is on stable storage.
    All(Mark),
}

/// Hands events over, in the order given.
pub trait Sink: Send {
    /// Delivers `envelopes`; `mark` is where the sink stood when its progress was last recorded. What an earlier
    /// attempt or a process that crashed wrote behind the mark is recognised and not written again.
    ///
    /// Runs to its end even if the future is dropped.
    fn deliver(
        &mut self,
        envelopes: Vec<Envelope>,
        mark: Option<Mark>,
    ) -> impl Future<Output = Result<Delivered, SinkError>> + Send;
}

/// A delivery that failed; nothing of it counts as delivered.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("cannot {doing} {}", path.display())]
    Io { path: PathBuf, doing: &'static str, source: io::Error },
    #[error("{} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("the delivery task ended early")]
    Task,
}

/// Takes one event at a time; several may be in hand at once.
pub trait EventSink: Send + Sync {
    /// Hands the envelope over, once: one attempt, without a retry, bounded by the sink's own time-out.
    ///
    /// Dropping the future may or may not have delivered.
    fn deliver(&self, envelope: &Envelope) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// The receiver did not take an event, as far as we know. No text of it holds a secret or a URL.
#[derive(Debug, thiserror::Error)]
#[error("not delivered")]
pub struct Refusal {
    #[source]
    pub cause: RefusalCause,
    /// The receiver wants no request before this long; above zero, at most a day.
    pub retry_after: Option<Duration>,
    /// The beginning of what it said, without secrets, for log and dead letter; at most 512 characters, not empty.
    pub answer: Option<String>,
}

/// Why an event was not taken.
#[derive(Debug, thiserror::Error)]
pub enum RefusalCause {
    /// Where a connection broke, the event may have arrived.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("the receiver answered {0}")]
    Status(u16),
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// How a program failed that was to take an event.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It knows nothing of the event.
    #[error("the program could not be started")]
    NotStarted(#[source] io::Error),
    #[error("the program ended with exit status {0}")]
    Exit(i32),
    #[error("the program was ended by signal {0}")]
    Signal(i32),
    #[error("the program did not end in time and was killed")]
    TimedOut,
    /// It was waited for, and the system did not say how it ended.
    #[error("it is not known how the program ended")]
    Lost(#[source] io::Error),
}
