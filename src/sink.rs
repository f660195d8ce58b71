//! Where events are delivered to.

use std::future::Future;
use std::io;
use std::path::PathBuf;

use crate::journal::Mark;

pub use file::FileSink;

mod file;

/// An event as a sink receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Lower-case hex; stable across redelivery, restart and replay.
    pub id: String,
    /// The CloudEvents envelope in one line, without its newline.
    pub line: String,
}

/// How a delivery ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// Nothing was written: the sink stands elsewhere than recorded, and this place must be recorded first, so
    /// that what is written next is recognised after a crash.
    Anchored(Mark),
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
