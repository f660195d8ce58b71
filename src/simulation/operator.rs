//! An operator who looks after dead letters, beside the agent: what another process reads and writes in the journal.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::time::sleep;

use super::coverage::Met;
use super::journal::Shared;
use super::oracle::deliveries::{Records, Standing};
use super::plan::about;
use super::storage::Storage;
use super::trace::Step;
use super::world::World;

const MEAN: Duration = Duration::from_secs(10 * 60);

/// How often the agent looks whether another process has written.
const LOOK: Duration = Duration::from_millis(1_500);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Deed {
    Retry,
    /// After the receiver was made to take it.
    HealAndRetry,
    Discard,
}

/// Does something now and then while an agent runs; the agent looks soon after that.
pub(super) async fn operate(
    world: &World,
    storage: &Storage,
    journal: &Shared,
    rng: &mut StdRng,
) -> Infallible {
    loop {
        sleep(about(MEAN, rng)).await;
        if world.plan.receivers.is_empty() {
            continue;
        }
        {
            let _turn = journal.turn.lock().await;
            act(world, storage, true, rng);
        }
        sleep(LOOK.mul_f64(rng.random())).await;
        journal.look_for_changes();
    }
}

/// Retries or discards some dead letter, where there is one.
pub(super) fn act(world: &World, storage: &Storage, is_running: bool, rng: &mut StdRng) {
    if world.plan.receivers.is_empty() {
        return;
    }
    let receiver = rng.random_range(0..world.plan.receivers.len());
    let dead_letters = world.with(|state, _| state.oracle.receivers[receiver].dead_letters());
    let deed = [Deed::Retry, Deed::HealAndRetry, Deed::HealAndRetry, Deed::Discard][rng.random_range(0..4)];
    let done = if dead_letters.is_empty() {
        write_something(storage, rng)
            .map(|()| world.with(|state, _| state.coverage.meet(Met::AlteredOtherwise)))
    } else {
        let seq = dead_letters[rng.random_range(0..dead_letters.len())];
        let all = if rng.random_bool(0.3) { dead_letters } else { vec![seq] };
        all.into_iter().try_for_each(|seq| do_to(world, storage, receiver, seq, deed, is_running))
    };
    world.with(|state, _| state.expect(done.map_err(|error| format!("an operator failed: {error}"))));
}

/// Before the last agent starts: what is dead though the receiver takes it now. What took place when the power went is
/// known to the journal only.
pub(super) fn tidy_up(world: &World, storage: &Storage, rng: &mut StdRng) {
    let heals = rng.random_bool(0.3);
    let deed = if heals { Deed::HealAndRetry } else { Deed::Retry };
    for receiver in 0..world.plan.receivers.len() {
        let done = records(storage, receiver).and_then(|found| {
            let mut letters = found.unwrap_or_default().dead_letters();
            letters.retain(|seq| heals || world.with(|state, _| !state.receivers[receiver].is_poison(*seq)));
            letters.into_iter().try_for_each(|seq| do_to(world, storage, receiver, seq, deed, false))
        });
        world.with(|state, _| state.expect(done.map_err(|error| format!("an operator failed: {error}"))));
    }
}

/// Reads what the journal holds of a receiver; `None` where it does not know it.
pub(super) fn records(storage: &Storage, receiver: usize) -> rusqlite::Result<Option<Records>> {
    let connection = Connection::open(storage.journal())?;
    let name = name(receiver);
    let progress = connection
        .query_row("SELECT seq FROM sinks WHERE name = ?1", [&name], |row| row.get(0))
        .optional()?;
    let Some(progress) = progress else { return Ok(None) };
    let mut statement = connection.prepare("SELECT seq, state FROM deliveries WHERE sink = ?1")?;
    let rows = statement.query_map([&name], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let mut states = BTreeMap::new();
    for row in rows {
        let (seq, state) = row?;
        let standing = match state.as_str() {
            "delivered" => Standing::Delivered,
            "pending" => Standing::Pending,
            "dead" => Standing::Dead,
            _ => Standing::Discarded,
        };
        states.insert(seq, standing);
    }
    Ok(Some(Records { progress, states }))
}

/// What a receiver's sink is called.
pub(super) fn name(receiver: usize) -> String {
    format!("hook-{receiver}")
}

fn do_to(
    world: &World,
    storage: &Storage,
    receiver: usize,
    seq: i64,
    deed: Deed,
    is_running: bool,
) -> rusqlite::Result<()> {
    let connection = Connection::open(storage.journal())?;
    let sql = match deed {
        Deed::Retry | Deed::HealAndRetry => {
            "UPDATE deliveries SET state = 'pending', attempts = 0, failures = 0, failed_at_ms = NULL, reason = NULL,
                 answer = NULL WHERE sink = ?1 AND seq = ?2 AND state = 'dead'"
        }
        Deed::Discard => {
            "UPDATE deliveries SET state = 'discarded' WHERE sink = ?1 AND seq = ?2 AND state = 'dead'"
        }
    };
    let n_rows = connection.execute(sql, params![name(receiver), seq])?;
    world.with(|state, now| {
        if n_rows != 1 {
            state.expect(Err(format!("receiver {receiver}: the dead letter {seq} is not in the journal")));
        }
        let book = &mut state.oracle.receivers[receiver];
        match deed {
            Deed::Discard => {
                book.discarded(seq);
                state.coverage.meet(Met::Discarded);
            }
            Deed::Retry | Deed::HealAndRetry => {
                book.retried(seq, is_running);
                state.coverage.meet(if is_running {
                    Met::RetriedWhileRunning
                } else {
                    Met::RetriedWhileDown
                });
            }
        }
        if deed == Deed::HealAndRetry {
            state.receivers[receiver].heal(seq);
        }
        state.trace.note(now, Step::Did { receiver, seq, deed });
    });
    Ok(())
}

/// Something that deliveries need not care for.
fn write_something(storage: &Storage, rng: &mut StdRng) -> rusqlite::Result<()> {
    let number = rng.random_range(0..1_i64 << 40);
    Connection::open(storage.journal())?
        .execute(
            "INSERT OR REPLACE INTO pauses (vtex_account, ends_at_ms, length_ms) VALUES ('another', ?1, 0)",
            [number],
        )
        .map(|_| ())
}
