//! What is read back: events in journal order, pauses.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::journal::{Entry, Heading, StoredPause};

/// An entry, as [`entry`] reads it. A newer change is one with a later date; where a date is missing, one that was
/// journaled later.
const ENTRY: &str = "
    SELECT seq, e.id, account, url, order_id, state, current_change_ns, received_at_ms, item, EXISTS (
        SELECT 1 FROM events newer
        WHERE newer.account = e.account AND newer.order_id = e.order_id AND newer.seq <> e.seq
            AND coalesce(newer.current_change_ns > e.current_change_ns, newer.seq > e.seq)
    )
    FROM events e JOIN sources ON sources.id = e.source";

pub(super) fn entries_after(
    connection: &Connection,
    seq: i64,
    max_events: usize,
    max_bytes: usize,
) -> rusqlite::Result<Vec<Entry>> {
    let mut statement =
        connection.prepare_cached(&format!("{ENTRY} WHERE seq > ?1 ORDER BY seq LIMIT ?2"))?;
    let mut rows = statement.query(params![seq, i64::try_from(max_events).unwrap_or(i64::MAX)])?;
    let (mut entries, mut n_bytes) = (Vec::new(), 0);
    while n_bytes < max_bytes
        && let Some(row) = rows.next()?
    {
        let entry = entry(row)?;
        n_bytes += entry.item.len();
        entries.push(entry);
    }
    Ok(entries)
}

pub(super) fn headings_after(
    connection: &Connection,
    seq: i64,
    max_events: usize,
) -> rusqlite::Result<Vec<Heading>> {
    connection
        .prepare_cached(
            "SELECT seq, account, order_id, state FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        )?
        .query_map(params![seq, i64::try_from(max_events).unwrap_or(i64::MAX)], heading)?
        .collect()
}

pub(in crate::journal) fn entry_at(connection: &Connection, seq: i64) -> rusqlite::Result<Option<Entry>> {
    connection.prepare_cached(&format!("{ENTRY} WHERE seq = ?1"))?.query_row([seq], entry).optional()
}

/// The first four columns.
pub(super) fn heading(row: &Row<'_>) -> rusqlite::Result<Heading> {
    Ok(Heading { seq: row.get(0)?, account: row.get(1)?, order_id: row.get(2)?, state: row.get(3)? })
}

pub(super) fn pause(connection: &Connection, vtex_account: &str) -> rusqlite::Result<Option<StoredPause>> {
    connection
        .query_row(
            "SELECT ends_at_ms, length_ms FROM pauses WHERE vtex_account = ?1",
            [vtex_account],
            |row| {
                Ok(StoredPause {
                    ends_at: Timestamp::from_millisecond(row.get(0)?).unwrap_or_default(),
                    length: Duration::from_millis(row.get::<_, i64>(1)?.try_into().unwrap_or_default()),
                })
            },
        )
        .optional()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        seq: row.get(0)?,
        id: row.get(1)?,
        account: row.get(2)?,
        source: row.get(3)?,
        order_id: row.get(4)?,
        state: row.get(5)?,
        current_change: row
            .get::<_, Option<i64>>(6)?
            .and_then(|ns| Timestamp::from_nanosecond(ns.into()).ok()),
        received_at: Timestamp::from_millisecond(row.get(7)?).unwrap_or_default(),
        item: row.get(8)?,
        superseded: row.get(9)?,
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::journal::SqliteJournal;
    use crate::journal::sqlite::open;

    #[test]
    fn what_is_read_again_and_again_is_planned_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.db");
        drop(SqliteJournal::open(&path).unwrap());
        let connection = open::connect(&path).unwrap();
        for seq in 1..=10 {
            entry_at(&connection, seq).unwrap();
        }
        let statement = connection.prepare_cached(&format!("{ENTRY} WHERE seq = ?1")).unwrap();
        assert_eq!(statement.get_status(StatementStatus::Run), 10);
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
