//! Dead letters: listed, found by id, made pending again, discarded.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Row, TransactionBehavior, params};

use super::{Desk, DeskError, IdPrefix, PAGE};
use crate::journal::sqlite::{deliveries, read};
use crate::journal::{JournalError, Tries};

/// What was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub place: Place,
    /// Of the event; of a quarantined item, its hash.
    pub id: [u8; 16],
    pub account: String,
    /// A quarantined item may name none.
    pub order_id: Option<String>,
    pub state: Option<String>,
    /// For a quarantined item, how often it came, and when for the last time.
    pub tries: Tries,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An event that a sink did not take.
    Delivery { sink: String, seq: i64 },
    /// An item that no event could be made of.
    Quarantine,
}

/// Which dead letters are meant; `None` is all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only of this sink, so no quarantined items.
    pub sink: Option<String>,
    /// Whose last failure was before.
    pub before: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    NewestFirst,
    /// So that the events of an order become pending in their order.
    OldestFirst,
}

/// Where a walk through the dead letters stands: deliveries by their events' places, then quarantined items.
#[derive(Debug)]
pub struct DeadLetterPages {
    selection: Selection,
    direction: Direction,
    stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Beyond this place and sink.
    Deliveries(i64, String),
    /// Behind this hash.
    Quarantine(Vec<u8>),
    Done,
}

pub(super) const NEWEST_FIRST: &str = "
    SELECT sink, d.seq, id, account, order_id, e.state, attempts, failures, failed_at_ms, reason, answer
    FROM deliveries d JOIN events e ON e.seq = d.seq
    WHERE d.state = 'dead' AND (d.seq, sink) < (?1, ?2) ORDER BY d.seq DESC, sink DESC LIMIT ?3";

pub(super) const OLDEST_FIRST: &str = "
    SELECT sink, d.seq, id, account, order_id, e.state, attempts, failures, failed_at_ms, reason, answer
    FROM deliveries d JOIN events e ON e.seq = d.seq
    WHERE d.state = 'dead' AND (d.seq, sink) > (?1, ?2) ORDER BY d.seq, sink LIMIT ?3";

pub(super) const OF_EVENT: &str = "
    SELECT sink, d.seq, id, account, order_id, e.state, attempts, failures, failed_at_ms, reason, answer
    FROM deliveries d JOIN events e ON e.seq = d.seq WHERE d.state = 'dead' AND d.seq = ?1";

pub(super) const RETRY: &str = "
    UPDATE deliveries SET state = 'pending', attempts = 0, failures = 0
    WHERE sink = ?1 AND seq = ?2 AND state = 'dead'";

pub(super) const DISCARD: &str =
    "UPDATE deliveries SET state = 'discarded' WHERE sink = ?1 AND seq = ?2 AND state = 'dead'";

impl DeadLetter {
    pub fn sink(&self) -> Option<&str> {
        match &self.place {
            Place::Delivery { sink, seq: _ } => Some(sink),
            Place::Quarantine => None,
        }
    }
}

impl Selection {
    fn admits(&self, letter: &DeadLetter) -> bool {
        let failed_at = letter.tries.last.as_ref().map(|last| last.at);
        self.sink.as_deref().is_none_or(|sink| Some(sink) == letter.sink())
            && self.before.is_none_or(|before| failed_at.is_none_or(|at| at < before))
    }
}

impl DeadLetterPages {
    pub fn new(selection: Selection, direction: Direction) -> Self {
        let first = match direction {
            Direction::NewestFirst => i64::MAX,
            Direction::OldestFirst => i64::MIN,
        };
        Self { selection, direction, stage: Stage::Deliveries(first, String::new()) }
    }

    /// Whether there is nothing more to look at.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}

impl Desk {
    /// Looks at the next dead letters, at most [`PAGE`], and returns those that are meant: an empty page is not yet
    /// the end.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn next_dead_letters(&self, pages: &mut DeadLetterPages) -> Result<Vec<DeadLetter>, JournalError> {
        let (mut letters, next) = self.look(pages).map_err(self.failed("cannot read dead letters"))?;
        pages.stage = next;
        letters.retain(|letter| pages.selection.admits(letter));
        Ok(letters)
    }

    fn look(&self, pages: &DeadLetterPages) -> rusqlite::Result<(Vec<DeadLetter>, Stage)> {
        match &pages.stage {
            Stage::Deliveries(seq, sink) => {
                let sql = match pages.direction {
                    Direction::NewestFirst => NEWEST_FIRST,
                    Direction::OldestFirst => OLDEST_FIRST,
                };
                let letters: Vec<DeadLetter> = self
                    .connection
                    .prepare_cached(sql)?
                    .query_map(params![seq, sink, PAGE as i64], letter)?
                    .collect::<rusqlite::Result<_>>()?;
                let next = match letters.last().filter(|_| letters.len() == PAGE).map(|last| &last.place) {
                    Some(Place::Delivery { sink, seq }) => Stage::Deliveries(*seq, sink.clone()),
                    Some(Place::Quarantine) | None if pages.selection.sink.is_some() => Stage::Done,
                    Some(Place::Quarantine) | None => Stage::Quarantine(Vec::new()),
                };
                Ok((letters, next))
            }
            Stage::Quarantine(hash) => self.quarantined(hash),
            Stage::Done => Ok((Vec::new(), Stage::Done)),
        }
    }

    /// The dead letters with this id: of one event, those of all sinks or of the one that is meant.
    ///
    /// # Errors
    /// There is none, or several ids begin so.
    pub fn dead_letters(&self, id: &IdPrefix, selection: &Selection) -> Result<Vec<DeadLetter>, DeskError> {
        let mut letters = Vec::new();
        for (seq, _) in self.alike(id)? {
            let read = || {
                self.connection
                    .prepare_cached(OF_EVENT)?
                    .query_map([seq], letter)?
                    .collect::<Result<Vec<_>, _>>()
            };
            letters.extend(read().map_err(self.failed("cannot read dead letters"))?);
        }
        letters.extend(self.quarantined_alike(id).map_err(self.failed("cannot read quarantined items"))?);
        letters.retain(|letter| selection.admits(letter));
        let ids: BTreeSet<[u8; 16]> = letters.iter().map(|letter| letter.id).collect();
        match (id.only(&ids)?, &selection.sink) {
            (Some(_), _) => Ok(letters),
            (None, None) => Err(DeskError::NoDeadLetter { id: id.clone() }),
            (None, Some(sink)) => Err(DeskError::NoDeadLetterOf { id: id.clone(), sink: sink.clone() }),
        }
    }

    /// Makes deliveries pending as if they had never been tried, and keeps why they failed; returns how many. Quarantined
    /// items are left alone: see [`Desk::decode`].
    ///
    /// # Errors
    /// The journal cannot be written; nothing has changed then.
    pub fn retry(&mut self, letters: &[DeadLetter]) -> Result<usize, JournalError> {
        self.change(RETRY, letters.iter().filter(|letter| letter.sink().is_some()))
            .map_err(self.failed("cannot retry dead letters"))
    }

    /// Marks deliveries as discarded and deletes quarantined items; returns how many.
    ///
    /// # Errors
    /// The journal cannot be written; nothing has changed then.
    pub fn discard(&mut self, letters: &[DeadLetter]) -> Result<usize, JournalError> {
        self.change(DISCARD, letters.iter()).map_err(self.failed("cannot discard dead letters"))
    }

    /// In one transaction. What is not dead any more has been dealt with by somebody else.
    fn change<'a>(
        &mut self,
        sql: &str,
        letters: impl Iterator<Item = &'a DeadLetter>,
    ) -> rusqlite::Result<usize> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut n_changed = 0;
        for letter in letters {
            n_changed += match &letter.place {
                Place::Delivery { sink, seq } => {
                    transaction.prepare_cached(sql)?.execute(params![sink, seq])?
                }
                Place::Quarantine => super::quarantine::delete(&transaction, &letter.id)?,
            };
        }
        transaction.commit()?;
        Ok(n_changed)
    }

    /// What the feed gave, in one line, without its handle.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn item(&self, letter: &DeadLetter) -> Result<Option<String>, JournalError> {
        let read = || match &letter.place {
            Place::Delivery { seq, sink: _ } => {
                Ok(read::entry_at(&self.connection, *seq)?.map(|entry| entry.item))
            }
            Place::Quarantine => {
                Ok(super::quarantine::item(&self.connection, &letter.id)?.map(|(_, item)| item))
            }
        };
        read().map_err(self.failed("cannot read an item"))
    }
}

fn letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    Ok(DeadLetter {
        place: Place::Delivery { sink: row.get(0)?, seq: row.get(1)? },
        id: row.get(2)?,
        account: row.get(3)?,
        order_id: Some(row.get(4)?),
        state: Some(row.get(5)?),
        tries: deliveries::tries(row, 6)?,
    })
}
