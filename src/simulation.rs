//! Years of bad days: the real account loop, gate, journal, delivery workers and file sink in a world that goes wrong.
//!
//! One seed decides everything: what VTEX answers and when, which requests and writes fail, how clocks jump, when the
//! power goes and what is left then, when the agent is stopped and started again. All of it runs on tokio's paused
//! clock, so that a day takes a fraction of a second, and in one order, so that the same seed does the same again.
//!
//! | part | holds |
//! |---|---|
//! | `plan` | what a seed decides beforehand: feeds, accounts, settings, how long |
//! | `happenings` | orders, `weather` (how VTEX is doing), `disk` (how the storage is doing), clock jumps |
//! | `world` | everything outside the agent, behind one lock |
//! | `vtex`, `journal`, `sink`, `receiver` | what the agent is given in place of the network and the disks |
//! | `operator` | who retries and discards dead letters, beside the agent |
//! | `agent`, `lives` | one agent put together as [`crate::run`] does it; one after the other |
//! | `oracle`, `audit` | what must never happen, judged from outside |
//! | `trace`, [`Coverage`] | what happened, and whether enough of it did |
//!
//! How to read a failing seed: `docs/simulation.md`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use coverage::{Coverage, Met};

use plan::Plan;
use storage::Storage;
use world::World;

mod agent;
mod audit;
mod coverage;
mod disk;
mod happenings;
mod inline;
mod journal;
mod lives;
mod operator;
mod oracle;
mod plan;
mod receiver;
mod sink;
mod storage;
mod trace;
mod vtex;
mod weather;
mod world;

/// How a simulation went.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub seed: u64,
    /// Simulated.
    pub time: Duration,
    /// Over every step; the same seed has the same.
    pub hash: u64,
    pub coverage: Coverage,
    pub violation: Option<Violation>,
}

/// An invariant that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub what: String,
    /// The steps of the last simulated hour, oldest first.
    pub trace: Vec<String>,
}

/// Runs the simulation of a seed. It must be the only work of a current-thread runtime whose clock is paused
/// (`start_paused`); on any other it would take as long as it says, and not be the same twice.
///
/// # Errors
/// There is no place for its files.
pub async fn run(seed: u64) -> io::Result<Outcome> {
    let storage = Arc::new(Storage::new()?);
    let world = Arc::new(World::new(Plan::draw(seed)));
    lives::live(&world, &storage).await;
    Ok(world.with(|state, now| Outcome {
        seed,
        time: now,
        hash: state.trace.hash(),
        coverage: state.coverage.clone(),
        violation: state.violation.take().map(|what| Violation { what, trace: state.trace.lines() }),
    }))
}
