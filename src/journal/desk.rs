//! The journal as the command line reads and mends it, beside a running agent or without one.
//!
//! It makes, migrates and locks nothing, reads page by page and writes step by step, each a transaction of its own, so
//! that an agent never waits long for it.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::JournalError;
use super::sqlite::open;

pub use dead_letters::{DeadLetter, DeadLetterPages, Direction, Place, Selection};
pub use deliveries::{Delivery, Passed, Standing};
pub use events::{EventFilter, EventPages, EventRow};
pub use id::IdPrefix;

mod dead_letters;
mod deliveries;
mod events;
mod id;
mod quarantine;

/// Rows that are looked at, or written, in one transaction.
pub const PAGE: usize = 500;

/// A connection of its own.
pub struct Desk {
    path: PathBuf,
    connection: Connection,
}

/// Why something could not be found or done.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("{id} is the id of no event in the journal")]
    NoEvent { id: IdPrefix },
    #[error("{id} is no dead letter")]
    NoDeadLetter { id: IdPrefix },
    #[error("{id} is no dead letter of sink {sink}")]
    NoDeadLetterOf { id: IdPrefix, sink: String },
    #[error("{id} is the beginning of several ids: {}", matches.join(", "))]
    Ambiguous { id: IdPrefix, matches: Vec<String> },
    #[error("{id} still cannot be decoded: {reason}")]
    Undecodable { id: String, reason: crate::event::UnusableReason },
    #[error("{id} belongs to the account {account}, which is not configured")]
    NoAccount { id: String, account: String },
}

impl Desk {
    /// Opens the journal at `path` as it is.
    ///
    /// # Errors
    /// There is none, or it is not one of this version.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Ok(Self { path: path.to_owned(), connection: open::visit(path)? })
    }

    fn failed(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> JournalError + use<> {
        let path = self.path.clone();
        move |source| JournalError::Sqlite { path: path.clone(), doing, source }
    }
}

#[cfg(test)]
mod tests;
