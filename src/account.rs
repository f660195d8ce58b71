//! One feed: receive → journal → commit, until the feed is empty; then wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{self, SecretSource};
use crate::journal::Journal;
use crate::observe::liveness::Heartbeat;
use crate::observe::logging::ErrorChain;
use crate::observe::status::{LastPoll, Status};
use crate::observe::thinning::Thinning;
use crate::policy::classify::{Class, Operation};
use crate::policy::retry::Retry;
use crate::policy::schedule;
use crate::vtex::feed::Feed;
use crate::wall::Wall;

pub use gate::Gate;
use poll::{Ended, Report};

mod attempt;
mod commit;
mod degraded;
pub mod gate;
mod lease;
mod poll;
mod receive;

/// How long the journal may take for one step before the loop counts as hung.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(60);

/// What the loop of one feed works with.
pub struct Account<'a, F, J> {
    /// The feed's name in the configuration.
    pub name: String,
    /// What envelopes call their source.
    pub source: String,
    pub poll: config::Poll,
    pub retry: Retry,
    /// The longest that one request takes.
    pub request_timeout: Duration,
    pub app_token_source: SecretSource,
    pub feed: F,
    pub journal: Arc<J>,
    /// Shared by the feeds of one VTEX account.
    pub gate: Arc<Gate>,
    pub status: Status,
    pub wall: Wall,
    pub memory: &'a Memory,
}

/// What a feed remembers from one poll to the next, and through a reload.
pub struct Memory {
    polling: Heartbeat,
    learning: Heartbeat,
    state: Mutex<State>,
}

struct State {
    /// The next poll starts no earlier; at first the feed's share of the interval.
    next_poll: Instant,
    /// The end of the last poll.
    last_poll_ended: Option<Instant>,
    /// The visibility timeout, once VTEX has told it.
    visibility: Option<Duration>,
    /// Malformed batches in a row.
    n_malformed: u32,
    /// Why the feed is polled slowly, if it is.
    degraded: Option<Class>,
    failures: Thinning<(Operation, Class)>,
    rng: StdRng,
}

impl Memory {
    /// A feed that polls for the first time at `first_poll`. The heartbeats are those of its two loops.
    pub fn new(polling: Heartbeat, learning: Heartbeat, first_poll: Instant, seed: u64) -> Self {
        let state = State {
            next_poll: first_poll,
            last_poll_ended: None,
            visibility: None,
            n_malformed: 0,
            degraded: None,
            failures: Thinning::default(),
            rng: StdRng::seed_from_u64(seed),
        };
        Self { polling, learning, state: Mutex::new(state) }
    }

    /// Says that the feed is switched off: nothing is due before it is switched on again.
    pub fn rest(&self) {
        self.polling.due_within(Duration::MAX);
        self.learning.due_within(Duration::MAX);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the loop that makes requests of this kind.
    fn heartbeat(&self, operation: Operation) -> &Heartbeat {
        match operation {
            Operation::Receive | Operation::Commit | Operation::Order | Operation::NotifyPrice => {
                &self.polling
            }
            Operation::Config => &self.learning,
        }
    }

    fn jitter(&self) -> f64 {
        self.state().rng.random()
    }
}

impl<F: Feed, J: Journal> Account<'_, F, J> {
    /// Polls until `shutdown`, and meanwhile learns how long leases are. Shutdown ends a wait at once; a batch that
    /// was received is journaled and its commit tried first (invariant 7).
    pub async fn run(&self, shutdown: &CancellationToken) {
        tokio::join!(self.keep_polling(shutdown), self.keep_learning(shutdown));
    }

    async fn keep_polling(&self, shutdown: &CancellationToken) {
        loop {
            // Whatever happened, the loop waits here (invariant 8).
            if self.wait_for_next_poll(shutdown).await.is_none() {
                return;
            }
            let report = poll::poll(self, shutdown).await;
            self.gate.poll_ended();
            self.degrade_or_recover(&report);
            let wait = self.schedule_next_poll(&report);
            self.tell(&report, wait);
            if report.ended == Ended::JournalBlocked {
                self.wait_for_the_journal(shutdown).await;
            }
        }
    }

    /// Counted from the end of the poll (invariant 3).
    fn schedule_next_poll(&self, report: &Report) -> Duration {
        let cadence = schedule::cadence(report.failure);
        let wait = schedule::next_poll_in(cadence, self.poll.interval, self.gate.pause_left());
        let now = Instant::now();
        let mut state = self.memory.state();
        state.last_poll_ended = Some(now);
        state.next_poll = now + wait;
        wait
    }

    /// `None` when the shutdown came first.
    async fn wait_for_next_poll(&self, shutdown: &CancellationToken) -> Option<()> {
        // A reload may have changed the interval; it counts from the end of the last poll all the same.
        let next_poll = {
            let state = self.memory.state();
            match (state.last_poll_ended, state.degraded) {
                (Some(ended), None) => (ended + self.poll.interval).max(Instant::now() + self.pause_left()),
                (Some(_) | None, _) => state.next_poll,
            }
        };
        if self.may_get_another_token() {
            return self.wait_for_another_token(next_poll, shutdown).await;
        }
        self.wait_until(next_poll, shutdown).await
    }

    fn pause_left(&self) -> Duration {
        self.gate.pause_left().unwrap_or_default()
    }

    /// `None` when the shutdown came first.
    async fn wait_until(&self, until: Instant, shutdown: &CancellationToken) -> Option<()> {
        self.memory.polling.due_within(until.saturating_duration_since(Instant::now()));
        shutdown.run_until_cancelled(sleep_until(until)).await
    }

    /// Nothing is leased that cannot be stored: after a failure the journal must prove itself before the next
    /// receive.
    async fn wait_for_the_journal(&self, shutdown: &CancellationToken) {
        const BETWEEN_PROBES: Duration = Duration::from_secs(5);
        self.memory.polling.due_within(JOURNAL_PATIENCE);
        while let Err(error) = self.journal.probe().await {
            warn!(
                event = "journal.blocked", account = self.name, wait_ms = BETWEEN_PROBES.as_millis() as u64,
                error = %ErrorChain(&error), "nothing is received until the journal can be written"
            );
            if self.wait_until(Instant::now() + BETWEEN_PROBES, shutdown).await.is_none() {
                return;
            }
            self.memory.polling.due_within(JOURNAL_PATIENCE);
        }
        info!(event = "journal.recovered", account = self.name, "the journal can be written again");
    }

    fn tell(&self, report: &Report, wait: Duration) {
        let stopping = report.ended == Ended::Shutdown;
        self.status.account(&self.name, |facts| {
            facts.last_poll = Some(LastPoll {
                ended: self.wall.now(),
                received: report.received,
                failed: matches!(report.ended, Ended::Failed | Ended::JournalBlocked),
            });
        });
        info!(
            event = "poll.completed",
            account = self.name,
            requests = report.requests,
            received = report.received,
            duplicates = report.duplicates,
            journaled = report.journaled,
            committed = report.committed,
            duration_ms = report.started.elapsed().as_millis() as u64,
            next_poll_ms = (!stopping).then_some(wait.as_millis() as u64),
            ended = report.ended.name(),
            "poll completed"
        );
    }
}

#[cfg(test)]
mod metrics_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
