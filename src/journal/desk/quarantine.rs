//! Items that no event could be made of: listed with the dead letters, decoded again.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior};

use super::dead_letters::{DeadLetter, Place, Stage};
use super::{Desk, DeskError, IdPrefix, PAGE};
use crate::event::hex;
use crate::journal::sqlite::append;
use crate::journal::{FailedAttempt, Tries};
use crate::vtex::wire;

/// The item left the feed without a lease. This is how close to another an event that nothing identifies is taken for
/// its duplicate.
const LEASE: Duration = Duration::from_secs(30);

pub(super) const BEHIND: &str = "
    SELECT hash, account, reason, item, times, last_at_ms FROM quarantine WHERE hash > ?1 ORDER BY hash LIMIT ?2";

pub(super) const ALIKE: &str = "
    SELECT hash, account, reason, item, times, last_at_ms FROM quarantine WHERE hash BETWEEN ?1 AND ?2 LIMIT ?3";

pub(super) const ITEM: &str = "SELECT account, item FROM quarantine WHERE hash = ?1";

pub(super) const DELETE: &str = "DELETE FROM quarantine WHERE hash = ?1";

impl Desk {
    /// The next page behind a hash.
    pub(super) fn quarantined(&self, hash: &[u8]) -> rusqlite::Result<(Vec<DeadLetter>, Stage)> {
        let letters: Vec<DeadLetter> = self
            .connection
            .prepare_cached(BEHIND)?
            .query_map((hash, PAGE as i64), letter)?
            .collect::<rusqlite::Result<_>>()?;
        let last = letters.last().filter(|_| letters.len() == PAGE);
        let next = last.map_or(Stage::Done, |last| Stage::Quarantine(last.id.to_vec()));
        Ok((letters, next))
    }

    /// The items whose hashes begin so.
    pub(super) fn quarantined_alike(&self, id: &IdPrefix) -> rusqlite::Result<Vec<DeadLetter>> {
        let ids = id.ids();
        self.connection
            .prepare_cached(ALIKE)?
            .query_map((ids.start(), ids.end(), PAGE as i64), letter)?
            .collect()
    }

    /// Decodes a quarantined item again. What comes out is journaled like a received event, with `sources` saying what
    /// its account is called, and the item goes; returns whether the event is new.
    ///
    /// # Errors
    /// No event comes out, or the journal cannot be written; nothing has changed then.
    pub fn decode(
        &mut self,
        letter: &DeadLetter,
        sources: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<bool, DeskError> {
        let failed = self.failed("cannot journal a quarantined item");
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&failed)?;
        let id = || hex(&letter.id);
        let kept = item(&transaction, &letter.id).map_err(&failed)?;
        // Somebody else was faster.
        let Some((account, item)) = kept else { return Ok(false) };
        let event =
            wire::read_kept(&account, &item).map_err(|reason| DeskError::Undecodable { id: id(), reason })?;
        let Some(source) = sources.get(&account) else {
            return Err(DeskError::NoAccount { id: id(), account });
        };
        let store = || {
            let source = append::source_id(&transaction, source)?;
            let is_new = append::keep(&transaction, &account, source, &event, now.as_millisecond(), LEASE)?;
            delete(&transaction, &letter.id)?;
            transaction.commit()?;
            Ok(is_new)
        };
        store().map_err(|error| DeskError::Journal(failed(error)))
    }
}

/// The account and what the feed gave.
pub(super) fn item(connection: &Connection, hash: &[u8; 16]) -> rusqlite::Result<Option<(String, String)>> {
    connection.prepare_cached(ITEM)?.query_row([hash], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

pub(super) fn delete(connection: &Connection, hash: &[u8; 16]) -> rusqlite::Result<usize> {
    connection.prepare_cached(DELETE)?.execute([hash])
}

fn letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    let (account, item): (String, String) = (row.get(1)?, row.get(3)?);
    let event = wire::read_kept(&account, &item).ok();
    let times = row.get::<_, i64>(4)?.try_into().unwrap_or(u32::MAX);
    let last = FailedAttempt {
        at: Timestamp::from_millisecond(row.get(5)?).unwrap_or_default(),
        reason: row.get(2)?,
        answer: None,
    };
    Ok(DeadLetter {
        place: Place::Quarantine,
        id: row.get(0)?,
        account,
        order_id: event.as_ref().map(|event| event.order_id.clone()),
        state: event.map(|event| event.state),
        tries: Tries { attempts: times, failures: times, last: Some(last) },
    })
}
