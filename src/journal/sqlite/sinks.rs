//! Which sinks there are, where each goes on, and what it wanted from where on.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::config::Wanted;
use crate::journal::{Mark, Progress, Resume};

/// Notes these sinks in one transaction, so that all that are the first ones begin together; returns how many events each
/// does not get that is added later. Notes also since when others are missing.
pub(super) fn know(
    connection: &mut Connection,
    names: &[String],
    now_ms: i64,
) -> rusqlite::Result<BTreeMap<String, u64>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("UPDATE sinks SET missing_since_ms = ?1 WHERE missing_since_ms IS NULL", [now_ms])?;
    let is_first = is_first(&transaction)?;
    let mut late = BTreeMap::new();
    for name in names {
        transaction.execute("UPDATE sinks SET missing_since_ms = NULL WHERE name = ?1", [name])?;
        if progress(&transaction, name)?.is_none() {
            let begun = begin(&transaction, name, is_first)?;
            late.insert(name.clone(), begun.n_skipped);
        }
    }
    transaction.commit()?;
    late.retain(|_, n_skipped| 0 < *n_skipped);
    Ok(late)
}

/// See [`Outbox::resume`](crate::journal::Outbox::resume).
pub(super) fn resume(connection: &mut Connection, sink: &str) -> rusqlite::Result<Resume> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(progress) = progress(&transaction, sink)? {
        return Ok(Resume { progress, n_skipped: 0 });
    }
    let is_first = is_first(&transaction)?;
    let begun = begin(&transaction, sink, is_first)?;
    transaction.commit()?;
    Ok(begun)
}

/// Notes what a sink wants from its next event on, where that is something else than before.
pub(super) fn note_wanted(connection: &mut Connection, sink: &str, wanted: &str) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT OR REPLACE INTO wanted (sink, seq, what)
         SELECT name, seq, ?2 FROM sinks
         WHERE name = ?1 AND ?2 IS NOT (SELECT what FROM wanted WHERE sink = ?1 ORDER BY seq DESC LIMIT 1)",
        params![sink, wanted],
    )?;
    Ok(())
}

/// What a sink wanted when it came to a place; everything where nothing is noted.
pub(in crate::journal) fn wanted_at(
    connection: &Connection,
    sink: &str,
    seq: i64,
) -> rusqlite::Result<Wanted> {
    let what: Option<String> = connection
        .prepare_cached("SELECT what FROM wanted WHERE sink = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT 1")?
        .query_row(params![sink, seq], |row| row.get(0))
        .optional()?;
    Ok(what.and_then(|what| serde_json::from_str(&what).ok()).unwrap_or_default())
}

fn is_first(transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
    transaction.query_row("SELECT NOT EXISTS (SELECT 1 FROM sinks)", [], |row| row.get(0))
}

fn progress(transaction: &Transaction<'_>, sink: &str) -> rusqlite::Result<Option<Progress>> {
    transaction
        .query_row("SELECT seq, inode, length FROM sinks WHERE name = ?1", [sink], |row| {
            let (inode, length): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
            let mark = inode
                .zip(length)
                .map(|(inode, length)| Mark { inode: inode.cast_unsigned(), length: length.cast_unsigned() });
            Ok(Progress { seq: row.get(0)?, mark })
        })
        .optional()
}

/// A first sink begins with the oldest event, a later one with the next.
fn begin(transaction: &Transaction<'_>, sink: &str, is_first: bool) -> rusqlite::Result<Resume> {
    let (seq, n_skipped): (i64, i64) = if is_first {
        (0, 0)
    } else {
        transaction.query_row("SELECT coalesce(max(seq), 0), count(*) FROM events", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
    };
    transaction
        .execute("INSERT INTO sinks (name, seq, first_seq) VALUES (?1, ?2, ?2)", params![sink, seq])?;
    Ok(Resume { progress: Progress { seq, mark: None }, n_skipped: n_skipped.unsigned_abs() })
}
