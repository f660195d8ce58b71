//! How the delivery of one event stands, sink by sink.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};

use super::Desk;
use crate::journal::sqlite::{deliveries, sinks};
use crate::journal::{JournalError, Tries};

/// How the delivery of an event to a sink stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub sink: String,
    pub standing: Standing,
    pub tries: Tries,
}

/// Where a sink has begun and how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// It gets what is behind this place.
    pub from: i64,
    pub to: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Delivered,
    /// The sink does not want it, or was added after it was journaled.
    Skipped,
    Pending,
    Dead,
    Discarded,
}

impl Standing {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Skipped => "skipped",
            Self::Pending => "pending",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }
}

pub(super) const OF_EVENT: &str = "
    SELECT state, attempts, failures, failed_at_ms, reason, answer FROM deliveries WHERE sink = ?1 AND seq = ?2";

impl Desk {
    /// Every sink that the journal knows, sorted by name, with the places of the journal that it has passed.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn sinks(&self) -> Result<BTreeMap<String, Passed>, JournalError> {
        let read = || {
            self.connection
                .prepare_cached("SELECT name, first_seq, seq FROM sinks")?
                .query_map([], |row| Ok((row.get(0)?, Passed { from: row.get(1)?, to: row.get(2)? })))?
                .collect::<rusqlite::Result<_>>()
        };
        read().map_err(self.failed("cannot read the sinks"))
    }

    /// How the event at a place stands with each of these sinks.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn deliveries(
        &self,
        (seq, account, state): (i64, &str, &str),
        known_sinks: &BTreeMap<String, Passed>,
    ) -> Result<Vec<Delivery>, JournalError> {
        let stand = |(sink, passed): (&String, &Passed)| {
            let known = self.recorded(sink, seq)?;
            let is_wanted = sinks::wanted_at(&self.connection, sink, seq)?.wants(account, state);
            let (standing, tries) =
                known.unwrap_or_else(|| (unrecorded(seq, *passed, is_wanted), Tries::default()));
            Ok(Delivery { sink: sink.clone(), standing, tries })
        };
        known_sinks
            .iter()
            .map(stand)
            .collect::<rusqlite::Result<_>>()
            .map_err(self.failed("cannot read deliveries"))
    }

    fn recorded(&self, sink: &str, seq: i64) -> rusqlite::Result<Option<(Standing, Tries)>> {
        self.connection
            .prepare_cached(OF_EVENT)?
            .query_row(params![sink, seq], |row| {
                let standing = match row.get_ref(0)?.as_str()? {
                    "delivered" => Standing::Delivered,
                    "dead" => Standing::Dead,
                    "discarded" => Standing::Discarded,
                    _ => Standing::Pending,
                };
                Ok((standing, deliveries::tries(row, 1)?))
            })
            .optional()
    }
}

/// What the progress says of an event that has no row.
fn unrecorded(seq: i64, passed: Passed, is_wanted: bool) -> Standing {
    if !is_wanted || seq <= passed.from {
        Standing::Skipped
    } else if seq <= passed.to {
        Standing::Delivered
    } else {
        Standing::Pending
    }
}
