//! What is written: batches, a sink's progress, pauses, the probe.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::event::{self, Event, EventKey, Item, Leased, Reach, Unusable};
use crate::journal::{Appended, Batch, Journaled, Progress, StoredPause};

/// Stores a batch. What returns `Ok` is synced: the connection runs with `synchronous=FULL`.
pub(super) fn append(connection: &mut Connection, batch: Batch) -> rusqlite::Result<Appended> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let source = source_id(&transaction, &batch.source)?;
    let (mut leased, unusable) = parted(batch.items);
    // The feed has no order; within a batch we can at least restore it.
    leased.sort_by_key(|leased| leased.event.current_change);

    let mut appended = Appended::default();
    let mut handles = Vec::new();
    for Leased { handle, event } in leased {
        let received_at_ms = batch.received_at.as_millisecond();
        appended.keys.push(event.key.hash);
        handles.push(handle);
        if keep(&transaction, &batch.account, source, &event, received_at_ms, batch.lease)? {
            appended.n_new += 1;
        } else {
            appended.n_duplicates += 1;
        }
    }
    for item in unusable {
        appended.keys.push(item.hash);
        if quarantine(&transaction, &batch.account, &item, batch.received_at)? {
            appended.quarantined.push(item.reason.to_string());
        }
        handles.extend(item.handle);
    }
    transaction.commit()?;
    appended.journaled = handles.into_iter().map(|handle| Journaled { handle }).collect();
    Ok(appended)
}

/// Stores an event that is new, and returns whether it is.
pub(in crate::journal) fn keep(
    transaction: &Transaction<'_>,
    account: &str,
    source: i64,
    event: &Event,
    received_at_ms: i64,
    lease: Duration,
) -> rusqlite::Result<bool> {
    if !claim_key(transaction, &event.key, received_at_ms, lease.as_millis())? {
        return Ok(false);
    }
    transaction
        .prepare_cached(
            "INSERT INTO events (id, account, source, order_id, state, current_change_ns, received_at_ms, item)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            envelope_id(&event.key, received_at_ms),
            account,
            source,
            event.order_id,
            event.state,
            event.current_change.and_then(nanoseconds),
            received_at_ms,
            event.item,
        ])?;
    Ok(true)
}

pub(super) fn record_progress(
    connection: &mut Connection,
    sink: &str,
    progress: &Progress,
) -> rusqlite::Result<()> {
    let mark = progress.mark.as_ref();
    connection
        .prepare_cached("UPDATE sinks SET seq = ?2, inode = ?3, length = ?4 WHERE name = ?1")?
        .execute(params![
            sink,
            progress.seq,
            mark.map(|mark| mark.inode.cast_signed()),
            mark.map(|mark| mark.length.cast_signed())
        ])?;
    Ok(())
}

pub(super) fn store_pause(
    connection: &mut Connection,
    vtex_account: &str,
    pause: StoredPause,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO pauses (vtex_account, ends_at_ms, length_ms) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET ends_at_ms = excluded.ends_at_ms, length_ms = excluded.length_ms",
        params![
            vtex_account,
            pause.ends_at.as_millisecond(),
            i64::try_from(pause.length.as_millis()).unwrap_or(i64::MAX)
        ],
    )?;
    Ok(())
}

/// Writes more than an ordinary batch needs: on a full disk a single page may still find a place.
pub(super) fn probe(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.execute("INSERT OR REPLACE INTO probe (id, filler) VALUES (1, randomblob(65536))", [])?;
    Ok(())
}

pub(in crate::journal) fn source_id(transaction: &Transaction<'_>, url: &str) -> rusqlite::Result<i64> {
    transaction
        .prepare_cached("INSERT INTO sources (url) VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([url])?;
    transaction.prepare_cached("SELECT id FROM sources WHERE url = ?1")?.query_row([url], |row| row.get(0))
}

fn parted(items: Vec<Item>) -> (Vec<Leased>, Vec<Unusable>) {
    let (mut leased, mut unusable) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Item::Leased(item) => leased.push(item),
            Item::Unusable(item) => unusable.push(item),
        }
    }
    (leased, unusable)
}

/// Notes the key and returns whether the event is new.
fn claim_key(
    transaction: &Transaction<'_>,
    key: &EventKey,
    now_ms: i64,
    lease_ms: u128,
) -> rusqlite::Result<bool> {
    let n_changed = match key.reach {
        Reach::Always => transaction
            .prepare_cached(
                "INSERT INTO keys (hour, hash, seen_at_ms) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?
            .execute(params![key.hour, key.hash, now_ms])?,
        // The distance counts, not the order: after the clock was set back nothing may look seen for hours.
        Reach::Lease => transaction
            .prepare_cached(
                "INSERT INTO keys (hour, hash, seen_at_ms) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET seen_at_ms = excluded.seen_at_ms
                 WHERE ?4 <= abs(excluded.seen_at_ms - seen_at_ms)",
            )?
            .execute(params![key.hour, key.hash, now_ms, i64::try_from(lease_ms).unwrap_or(i64::MAX)])?,
    };
    Ok(n_changed == 1)
}

/// The id that receivers deduplicate by: the key's hash. Where equal keys may be different events, the moment
/// joins in.
fn envelope_id(key: &EventKey, received_at_ms: i64) -> [u8; 16] {
    match key.reach {
        Reach::Always => key.hash,
        Reach::Lease => {
            let [hash, moment] = [u128::from_be_bytes(key.hash).to_string(), received_at_ms.to_string()];
            event::hash([Some(hash.as_str()), Some(moment.as_str())])
        }
    }
}

/// Keeps an unusable item, or counts it again; returns whether it is new.
fn quarantine(
    transaction: &Transaction<'_>,
    account: &str,
    item: &Unusable,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let times: i64 = transaction
        .prepare_cached(
            "INSERT INTO quarantine (hash, account, reason, item, times, first_at_ms, last_at_ms)
             VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5)
             ON CONFLICT DO UPDATE SET times = times + 1, last_at_ms = excluded.last_at_ms
             RETURNING times",
        )?
        .query_row(
            params![item.hash, account, item.reason.to_string(), item.rest, now.as_millisecond()],
            |row| row.get(0),
        )?;
    Ok(times == 1)
}

/// Nanoseconds since 1970; `None` outside 1677–2262, where no order changes.
fn nanoseconds(date: Timestamp) -> Option<i64> {
    i64::try_from(date.as_nanosecond()).ok()
}
