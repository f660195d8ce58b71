//! What nobody needs any more is taken out in small steps, so that nothing waits long for the journal.

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::journal::Pruned;

/// Rows looked at in one step.
const ROWS: i64 = 500;

/// Free pages given back to the file system in one step; of 4 KiB each.
const PAGES: i64 = 256;

/// An eighth of the file may be free for what comes next.
const KEPT_FREE: i64 = 8;

/// How far a pass has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Sinks,
    /// Behind this place of the journal.
    Events(i64),
    Keys,
    Space,
}

/// What is older goes, where it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) events_ms: i64,
    pub(super) keys_ms: i64,
}

/// Does one step of a pass; returns where the next one begins, `None` at the end.
pub(super) fn step(
    connection: &mut Connection,
    place: Place,
    before: Before,
    pruned: &mut Pruned,
) -> rusqlite::Result<Option<Place>> {
    if place == Place::Space {
        return Ok(give_back(connection)?.then_some(Place::Space));
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let next = match place {
        Place::Sinks => sinks(&transaction, before, pruned)?,
        Place::Events(seq) => events(&transaction, seq, before, pruned)?.map_or(Place::Keys, Place::Events),
        Place::Keys => match keys(&transaction, before, pruned)? {
            true => Place::Keys,
            false => Place::Space,
        },
        Place::Space => Place::Space,
    };
    transaction.commit()?;
    Ok(Some(next))
}

/// Forgets a sink that has long been missing in the configuration, part by part.
fn sinks(transaction: &Transaction<'_>, before: Before, pruned: &mut Pruned) -> rusqlite::Result<Place> {
    let missing: Option<String> = transaction.query_row(
        "SELECT min(name) FROM sinks WHERE missing_since_ms < ?1",
        [before.events_ms],
        |row| row.get(0),
    )?;
    let Some(name) = missing else { return Ok(Place::Events(0)) };
    let n_dropped = transaction.execute(
        "DELETE FROM deliveries WHERE (sink, seq) IN (SELECT sink, seq FROM deliveries WHERE sink = ?1 LIMIT ?2)",
        params![name, ROWS],
    )?;
    let n_pending = pruned.sinks.entry(name.clone()).or_default();
    *n_pending += n_dropped as u64;
    if n_dropped == 0 {
        transaction.execute("DELETE FROM wanted WHERE sink = ?1", [&name])?;
        transaction.execute("DELETE FROM sinks WHERE name = ?1", [name])?;
    }
    Ok(Place::Sinks)
}

/// Returns behind which place to go on, `None` where nothing older is left.
fn events(
    transaction: &Transaction<'_>,
    seq: i64,
    before: Before,
    pruned: &mut Pruned,
) -> rusqlite::Result<Option<i64>> {
    let looked_at: (Option<i64>, i64) = transaction
        .prepare_cached(
            "SELECT max(seq), coalesce(max(received_at_ms < ?2), 0) FROM
                 (SELECT seq, received_at_ms FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?3)",
        )?
        .query_row(params![seq, before.events_ms, ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (Some(last), 1) = looked_at else { return Ok(None) };
    // Every sink is past it, known or missing, and none keeps it as pending or as a dead letter.
    let n_events = transaction
        .prepare_cached(
            "DELETE FROM events WHERE seq > ?1 AND seq <= ?2 AND received_at_ms < ?3
                 AND NOT EXISTS (SELECT 1 FROM sinks WHERE sinks.seq < events.seq)
                 AND NOT EXISTS (
                     SELECT 1 FROM sinks JOIN deliveries d ON d.sink = sinks.name AND d.seq = events.seq
                     WHERE d.state IN ('pending', 'dead'))",
        )?
        .execute(params![seq, last, before.events_ms])?;
    transaction
        .prepare_cached(
            "DELETE FROM deliveries WHERE (sink, seq) IN (
                 SELECT d.sink, d.seq FROM sinks JOIN deliveries d ON d.sink = sinks.name
                 WHERE d.seq > ?1 AND d.seq <= ?2 AND NOT EXISTS (SELECT 1 FROM events WHERE events.seq = d.seq))",
        )?
        .execute([seq, last])?;
    pruned.n_events += n_events as u64;
    Ok(Some(last))
}

/// Forgets keys that no redelivery can meet; returns whether there may be more.
fn keys(transaction: &Transaction<'_>, before: Before, pruned: &mut Pruned) -> rusqlite::Result<bool> {
    let n_keys = transaction
        .prepare_cached(
            "DELETE FROM keys WHERE (hour, hash) IN
                 (SELECT hour, hash FROM keys WHERE hour < ?1 AND seen_at_ms < ?2 LIMIT ?3)",
        )?
        .execute(params![before.keys_ms / 3_600_000, before.keys_ms, ROWS])?;
    pruned.n_keys += n_keys as u64;
    Ok(n_keys as i64 == ROWS)
}

/// Makes the file smaller; returns whether there is more to give back.
fn give_back(connection: &Connection) -> rusqlite::Result<bool> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    if pragma("freelist_count")? <= (pragma("page_count")? / KEPT_FREE).max(PAGES) {
        return Ok(false);
    }
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(true)
}

#[cfg(test)]
mod tests;
