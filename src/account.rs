//! One feed: receive → journal → commit, until the feed is empty; then wait.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config;
use crate::journal::Journal;
use crate::observe::liveness::Heartbeat;
use crate::observe::logging::ErrorChain;
use crate::observe::status::{LastPoll, Status};
use crate::vtex::feed::Feed;

pub use gate::Gate;
use poll::{Ended, Report};

pub mod gate;
mod poll;

/// How long the journal may take for one step before the loop counts as hung.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(60);

/// What the loop of one feed works with.
pub struct Account<'a, F, J> {
    /// The feed's name in the configuration.
    pub name: String,
    /// What envelopes call their source.
    pub source: String,
    pub poll: config::Poll,
    /// The longest that one request takes.
    pub request_timeout: Duration,
    pub feed: F,
    pub journal: Arc<J>,
    /// Shared by the feeds of one VTEX account.
    pub gate: Arc<Gate>,
    pub heartbeat: &'a Heartbeat,
    pub status: Status,
    /// The next poll starts an interval after it; at once where there was none.
    pub last_poll_ended: Option<Instant>,
}

impl<F: Feed, J: Journal> Account<'_, F, J> {
    /// Polls until `shutdown`. Shutdown ends a wait at once; a batch that was received is journaled and its
    /// commit tried first (invariant 7).
    pub async fn run(&mut self, shutdown: &CancellationToken) {
        loop {
            // Counted from the end of the last poll (invariant 3); whatever happened, the loop waits here
            // (invariant 8).
            let next_poll =
                self.last_poll_ended.map_or_else(Instant::now, |ended| ended + self.poll.interval);
            if self.wait_until(next_poll, shutdown).await.is_none() {
                return;
            }
            let report = poll::poll(self, shutdown).await;
            self.last_poll_ended = Some(Instant::now());
            self.tell(&report);
            if report.ended == Ended::JournalBlocked {
                self.wait_for_the_journal(shutdown).await;
            }
        }
    }

    /// `None` when the shutdown came first.
    async fn wait_until(&self, until: Instant, shutdown: &CancellationToken) -> Option<()> {
        self.heartbeat.due_within(until.saturating_duration_since(Instant::now()));
        shutdown.run_until_cancelled(sleep_until(until)).await
    }

    /// Nothing is leased that cannot be stored: after a failure the journal must prove itself before the next
    /// receive.
    async fn wait_for_the_journal(&self, shutdown: &CancellationToken) {
        const BETWEEN_PROBES: Duration = Duration::from_secs(5);
        self.heartbeat.due_within(JOURNAL_PATIENCE);
        while let Err(error) = self.journal.probe().await {
            warn!(
                event = "journal.blocked", account = self.name, wait_ms = BETWEEN_PROBES.as_millis() as u64,
                error = %ErrorChain(&error), "nothing is received until the journal can be written"
            );
            if self.wait_until(Instant::now() + BETWEEN_PROBES, shutdown).await.is_none() {
                return;
            }
            self.heartbeat.due_within(JOURNAL_PATIENCE);
        }
        info!(event = "journal.recovered", account = self.name, "the journal can be written again");
    }

    fn tell(&self, report: &Report) {
        let stopping = report.ended == Ended::Shutdown;
        self.status.account(&self.name, |facts| {
            facts.last_poll = Some(LastPoll {
                ended: Timestamp::now(),
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
            next_poll_ms = (!stopping).then_some(self.poll.interval.as_millis() as u64),
            ended = report.ended.name(),
            "poll completed"
        );
    }
}

#[cfg(test)]
mod tests;
