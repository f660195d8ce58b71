//! Delivery to a sink that takes many events at once and in journal order: a file.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Wanted;
use crate::journal::{Entry, JournalError, Outbox, Progress};
use crate::observe::liveness::Heartbeat;
use crate::observe::logging::ErrorChain;
use crate::policy::backoff::Backoff;
use crate::sink::{Delivered, Sink, SinkError};

use super::{IDLE, envelope, resume};

/// What one delivery takes at most: enough to make its fsync cheap, little enough to be in memory.
const EVENTS_MAX: usize = 500;
const BYTES_MAX: usize = 1024 * 1024;

/// How long one delivery may take before the loop counts as hung.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// Between two attempts at a sink that fails.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };

/// A sink that could not be brought any further.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What the loop of such a sink works with.
pub struct LineWorker<'a, J, S> {
    pub name: &'a str,
    pub wanted: Wanted,
    pub sink: S,
    pub journal: &'a J,
    pub heartbeat: &'a Heartbeat,
}

impl<J: Outbox, S: Sink> LineWorker<'_, J, S> {
    /// Delivers until `shutdown`; a delivery in hand is finished, and what was journaled before the shutdown is tried
    /// once more.
    pub async fn run(mut self, seed: u64, shutdown: &CancellationToken) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut appended = self.journal.appended();
        let mut progress = None;
        let mut n_failures = 0;
        loop {
            let last = shutdown.is_cancelled();
            // Seen before the journal is read, so that nothing appended meanwhile is slept over.
            appended.mark_unchanged();
            self.heartbeat.due_within(LONGEST);
            let delivered = self.deliver_next(&mut progress, 0 < n_failures).await;
            if last {
                return;
            }
            match delivered {
                Ok(n_delivered) => {
                    if 0 < n_failures {
                        info!(
                            event = "sink.recovered",
                            sink = self.name,
                            failures = n_failures,
                            "sink works again"
                        );
                        n_failures = 0;
                    }
                    if n_delivered == 0 {
                        self.heartbeat.due_within(IDLE);
                        // Either of a change, the time and the end of the journal leads on.
                        shutdown.run_until_cancelled(timeout(IDLE, appended.changed())).await;
                    }
                }
                Err(error) => {
                    n_failures += 1;
                    let wait = BACKOFF.delay(n_failures, rng.random());
                    let event = match &error {
                        DeliveryError::Sink(_) => "sink.blocked",
                        DeliveryError::Journal(_) => "journal.blocked",
                    };
                    warn!(
                        event, sink = self.name, failures = n_failures, wait_ms = wait.as_millis() as u64,
                        error = %ErrorChain(&error), "sink does not take events; they stay in the journal"
                    );
                    self.heartbeat.due_within(wait);
                    shutdown.run_until_cancelled(sleep(wait)).await;
                }
            }
        }
    }

    /// Delivers what comes next and records it; returns how many events that were.
    async fn deliver_next(
        &mut self,
        progress: &mut Option<Progress>,
        after_failure: bool,
    ) -> Result<usize, DeliveryError> {
        if after_failure {
            // It may have been the journal, which stores nothing more until it has proved itself.
            self.journal.probe().await?;
        }
        let current = match progress {
            Some(progress) => progress,
            None => progress.insert(resume(self.name, self.journal).await?),
        };
        let entries = self.journal.entries_after(current.seq, EVENTS_MAX, BYTES_MAX).await?;
        let Some(last) = entries.last() else { return Ok(0) };
        let wants = |entry: &&Entry| self.wanted.wants(&entry.account, &entry.state);
        let wanted: Vec<&Entry> = entries.iter().filter(wants).collect();
        if wanted.is_empty() {
            let next = Progress { seq: last.seq, mark: current.mark };
            self.journal.record_progress(self.name, next.clone()).await?;
            *current = next;
            return Ok(entries.len());
        }
        loop {
            let envelopes = wanted.iter().copied().map(envelope::envelope).collect();
            let next = match self.sink.deliver(envelopes, current.mark).await? {
                Delivered::Anchored(mark) => Progress { seq: current.seq, mark: Some(mark) },
                Delivered::All(mark) => Progress { seq: last.seq, mark: Some(mark) },
            };
            self.journal.record_progress(self.name, next.clone()).await?;
            *current = next;
            if current.seq == last.seq {
                return Ok(entries.len());
            }
        }
    }
}
