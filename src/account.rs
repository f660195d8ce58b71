//! One feed: receive → journal → commit, until the feed is empty; then wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config;
use crate::journal::Journal;
use crate::observe::logging::ErrorChain;
use crate::vtex::feed::Feed;

pub use gate::Gate;
use poll::{Ended, Report};

pub mod gate;
mod poll;

/// What the loop of one feed works with.
pub struct Account<F, J> {
    /// The feed's name in the configuration.
    pub name: String,
    /// What envelopes call their source.
    pub source: String,
    pub poll: config::Poll,
    pub feed: F,
    pub journal: Arc<J>,
    /// Shared by the feeds of one VTEX account.
    pub gate: Arc<Gate>,
}

impl<F: Feed, J: Journal> Account<F, J> {
    /// Polls until `shutdown`. Shutdown ends a wait at once; a batch that was received is journaled and its
    /// commit tried first (invariant 7).
    pub async fn run(&self, shutdown: &CancellationToken) {
        while !shutdown.is_cancelled() {
            let report = poll::poll(self, shutdown).await;
            let stopping = matches!(report.ended, Ended::Shutdown);
            self.log(&report, (!stopping).then_some(self.poll.interval));
            if report.ended == Ended::JournalBlocked {
                self.wait_for_the_journal(shutdown).await;
            }
            // Counted from the end of the poll (invariant 3); whatever happened, the loop waits here (invariant 8).
            shutdown.run_until_cancelled(sleep(self.poll.interval)).await;
        }
    }

    /// Nothing is leased that cannot be stored: after a failure the journal must prove itself before the next
    /// receive.
    async fn wait_for_the_journal(&self, shutdown: &CancellationToken) {
        const BETWEEN_PROBES: Duration = Duration::from_secs(5);
        while let Err(error) = self.journal.probe().await {
            warn!(
                event = "journal.blocked", account = self.name, wait_ms = BETWEEN_PROBES.as_millis() as u64,
                error = %ErrorChain(&error), "nothing is received until the journal can be written"
            );
            if shutdown.run_until_cancelled(sleep(BETWEEN_PROBES)).await.is_none() {
                return;
            }
        }
        info!(event = "journal.recovered", account = self.name, "the journal can be written again");
    }

    fn log(&self, report: &Report, next_poll: Option<Duration>) {
        info!(
            event = "poll.completed",
            account = self.name,
            requests = report.requests,
            received = report.received,
            duplicates = report.duplicates,
            journaled = report.journaled,
            committed = report.committed,
            duration_ms = report.started.elapsed().as_millis() as u64,
            next_poll_ms = next_poll.map(|wait| wait.as_millis() as u64),
            ended = report.ended.name(),
            "poll completed"
        );
    }
}

#[cfg(test)]
mod tests;
