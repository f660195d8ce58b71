//! How deliveries stand where a sink's progress does not say it.

use jiff::Timestamp;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};

use super::read::heading;
use crate::journal::{DeliveryState, FailedAttempt, Heading, Settlement, Tries};

/// See [`Outbox::open_deliveries`](crate::journal::Outbox::open_deliveries).
pub(super) fn open(
    connection: &Connection,
    sink: &str,
    seq: i64,
    max_events: usize,
) -> rusqlite::Result<Vec<(Heading, DeliveryState)>> {
    connection
        .prepare_cached(
            // Two parts, each by its own index: behind the progress may be many dead letters.
            "SELECT d.seq, account, order_id, e.state, d.state, attempts, failures, failed_at_ms, reason, answer
             FROM deliveries d JOIN events e ON e.seq = d.seq
             WHERE sink = ?1 AND d.seq > ?2 AND d.state IN ('pending', 'delivered')
             UNION ALL
             SELECT d.seq, account, order_id, e.state, d.state, attempts, failures, failed_at_ms, reason, answer
             FROM deliveries d JOIN events e ON e.seq = d.seq
             WHERE sink = ?1 AND d.seq > max(?2, (SELECT seq FROM sinks WHERE name = ?1))
                 AND d.state IN ('dead', 'discarded')
             ORDER BY 1 LIMIT ?3",
        )?
        .query_map(params![sink, seq, i64::try_from(max_events).unwrap_or(i64::MAX)], |row| {
            let state = match row.get_ref(4)?.as_str()? {
                "delivered" => DeliveryState::Delivered,
                "dead" | "discarded" => DeliveryState::Dead(tries(row, 5)?),
                _ => DeliveryState::Pending(tries(row, 5)?),
            };
            Ok((heading(row)?, state))
        })?
        .collect()
}

/// See [`Outbox::settle`](crate::journal::Outbox::settle).
pub(super) fn settle(
    connection: &mut Connection,
    sink: &str,
    settlement: &Settlement,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (seq, state) in &settlement.states {
        match state {
            DeliveryState::Delivered if *seq <= settlement.seq => {
                transaction
                    .prepare_cached("DELETE FROM deliveries WHERE sink = ?1 AND seq = ?2")?
                    .execute(params![sink, seq])?;
            }
            DeliveryState::Delivered => put(&transaction, sink, *seq, "delivered", &Tries::default())?,
            DeliveryState::Pending(tries) => put(&transaction, sink, *seq, "pending", tries)?,
            DeliveryState::Dead(tries) => put(&transaction, sink, *seq, "dead", tries)?,
        }
    }
    // What was delivered out of turn stands between the old place and the new one; behind both may be many dead letters.
    transaction
        .prepare_cached(
            "DELETE FROM deliveries WHERE sink = ?1 AND state = 'delivered'
                 AND seq > (SELECT seq FROM sinks WHERE name = ?1) AND seq <= ?2",
        )?
        .execute(params![sink, settlement.seq])?;
    transaction
        .prepare_cached("UPDATE sinks SET seq = ?2 WHERE name = ?1")?
        .execute(params![sink, settlement.seq])?;
    transaction.commit()
}

fn put(
    transaction: &Transaction<'_>,
    sink: &str,
    seq: i64,
    state: &str,
    tries: &Tries,
) -> rusqlite::Result<()> {
    let last = tries.last.as_ref();
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO deliveries
                 (sink, seq, state, attempts, failures, failed_at_ms, reason, answer)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            sink,
            seq,
            state,
            tries.attempts,
            tries.failures,
            last.map(|last| last.at.as_millisecond()),
            last.map(|last| &last.reason),
            last.and_then(|last| last.answer.as_ref()),
        ])?;
    Ok(())
}

/// The columns `attempts`, `failures`, `failed_at_ms`, `reason` and `answer`, from `first` on.
pub(in crate::journal) fn tries(row: &Row<'_>, first: usize) -> rusqlite::Result<Tries> {
    let failed_at_ms: Option<i64> = row.get(first + 2)?;
    let last = match failed_at_ms {
        Some(ms) => Some(FailedAttempt {
            at: Timestamp::from_millisecond(ms).unwrap_or_default(),
            reason: row.get::<_, Option<String>>(first + 3)?.unwrap_or_default(),
            answer: row.get(first + 4)?,
        }),
        None => None,
    };
    Ok(Tries { attempts: row.get(first)?, failures: row.get(first + 1)?, last })
}
