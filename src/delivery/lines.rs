//! Delivery to a sink that takes many events at once and in journal order: a file.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Wanted;
use crate::journal::{DeliveryState, Entry, JournalError, Outbox, Progress, Settlement};
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

/// Where the sink stands.
struct Place {
    progress: Progress,
    /// Whether events may be pending behind the progress: those of a sink that was of another type before.
    may_have_pending: bool,
}

impl<J: Outbox, S: Sink> LineWorker<'_, J, S> {
    /// Delivers until `shutdown`; a delivery in hand is finished, and what was journaled before the shutdown is tried
    /// once more.
    pub async fn run(mut self, seed: u64, shutdown: &CancellationToken) {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut appended, mut altered) = (self.journal.appended(), self.journal.altered());
        let mut place: Option<Place> = None;
        let mut n_failures = 0;
        loop {
            let last = shutdown.is_cancelled();
            // Seen before the journal is read, so that nothing appended meanwhile is slept over.
            appended.mark_unchanged();
            if let (Some(place), Ok(true)) = (&mut place, altered.has_changed()) {
                place.may_have_pending = true;
                altered.mark_unchanged();
            }
            self.heartbeat.due_within(LONGEST);
            let delivered = self.deliver_next(&mut place, 0 < n_failures).await;
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
        place: &mut Option<Place>,
        after_failure: bool,
    ) -> Result<usize, DeliveryError> {
        if after_failure {
            // It may have been the journal, which stores nothing more until it has proved itself.
            self.journal.probe().await?;
        }
        let place = match place {
            Some(place) => place,
            None => {
                let progress = resume(self.name, self.journal).await?;
                place.insert(Place { progress, may_have_pending: true })
            }
        };
        if place.may_have_pending && 0 < self.deliver_pending(place).await? {
            return Ok(1);
        }
        let current = &mut place.progress;
        let entries = self.journal.entries_after(current.seq, EVENTS_MAX, BYTES_MAX).await?;
        let Some(last) = entries.last() else { return Ok(0) };
        let wants = |entry: &&Entry| self.wanted.wants(&entry.account, &entry.state);
        let wanted: Vec<&Entry> = entries.iter().filter(wants).collect();
        self.hand_over(&wanted, last.seq, current).await?;
        Ok(entries.len())
    }

    /// Hands all of it over and records that the sink stands at `seq`.
    async fn hand_over(
        &mut self,
        entries: &[&Entry],
        seq: i64,
        current: &mut Progress,
    ) -> Result<(), DeliveryError> {
        let mut rest = entries;
        loop {
            let next = if rest.is_empty() {
                Progress { seq, mark: current.mark }
            } else {
                let envelopes = rest.iter().copied().map(envelope::envelope).collect();
                match self.sink.deliver(envelopes, current.mark).await? {
                    Delivered::Anchored(mark) => Progress { seq: current.seq, mark: Some(mark) },
                    Delivered::Part { n_events, mark } => {
                        let (delivered, left) = rest.split_at(n_events);
                        rest = left;
                        // Pending ones lie behind the progress, which never goes back.
                        let reached = delivered.last().map_or(current.seq, |last| last.seq.max(current.seq));
                        Progress { seq: reached, mark: Some(mark) }
                    }
                    Delivered::All(mark) => {
                        rest = &[];
                        Progress { seq, mark: Some(mark) }
                    }
                }
            };
            self.journal.record_progress(self.name, next.clone()).await?;
            *current = next;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Delivers what was left pending behind the progress when the sink took events one by one; returns how many
    /// deliveries that settled.
    async fn deliver_pending(&mut self, place: &mut Place) -> Result<usize, DeliveryError> {
        let current = &mut place.progress;
        let open = self.journal.open_deliveries(self.name, 0, EVENTS_MAX).await?;
        // Those ahead come by when the progress gets there.
        place.may_have_pending = !open.is_empty();
        let (mut entries, mut states) = (Vec::new(), Vec::new());
        for (heading, state) in open.into_iter().filter(|(heading, _)| heading.seq <= current.seq) {
            if matches!(state, DeliveryState::Pending(_)) {
                entries.extend(self.journal.entry(heading.seq).await?);
            }
            states.push((heading.seq, DeliveryState::Delivered));
        }
        let n_settled = states.len();
        if 0 < n_settled {
            self.hand_over(&entries.iter().collect::<Vec<_>>(), current.seq, current).await?;
            self.journal.settle(self.name, Settlement { seq: current.seq, states }).await?;
        }
        Ok(n_settled)
    }
}
