//! Delivery of journaled events, one worker for each sink. It reads the journal, never the feed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::journal::{Journal, JournalError, Progress};
use crate::observe::logging::ErrorChain;
use crate::policy::backoff::Backoff;
use crate::sink::{Delivered, Sink, SinkError};

mod envelope;

/// What one delivery takes at most: enough to make its fsync cheap, little enough to be in memory.
const EVENTS_MAX: usize = 500;
const BYTES_MAX: usize = 1024 * 1024;

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

/// Delivers to one sink until `shutdown`; a delivery in hand is finished, and what was journaled before the
/// shutdown is tried once more.
pub async fn run<J: Journal, S: Sink>(
    name: &str,
    mut sink: S,
    journal: &J,
    seed: u64,
    shutdown: CancellationToken,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut appended = journal.appended();
    let mut progress = None;
    let mut n_failures = 0;
    loop {
        let last = shutdown.is_cancelled();
        // Seen before the journal is read, so that nothing appended meanwhile is slept over.
        appended.mark_unchanged();
        match deliver_next(name, &mut sink, journal, &mut progress).await {
            Ok(n_delivered) => {
                if 0 < n_failures {
                    info!(event = "sink.recovered", sink = name, failures = n_failures, "sink works again");
                    n_failures = 0;
                }
                if last {
                    return;
                }
                if n_delivered == 0 {
                    // An error would say that the journal is gone, and with it whoever could append.
                    shutdown.run_until_cancelled(appended.changed()).await;
                }
            }
            Err(error) => {
                if last {
                    return;
                }
                n_failures += 1;
                let wait = BACKOFF.delay(n_failures, rng.random());
                warn!(
                    event = "sink.blocked", sink = name, failures = n_failures, wait_ms = wait.as_millis() as u64,
                    error = %ErrorChain(&error), "sink does not take events; they stay in the journal"
                );
                shutdown.run_until_cancelled(sleep(wait)).await;
            }
        }
    }
}

/// Delivers what comes next and records it; returns how many events that were.
async fn deliver_next<J: Journal, S: Sink>(
    name: &str,
    sink: &mut S,
    journal: &J,
    progress: &mut Option<Progress>,
) -> Result<usize, DeliveryError> {
    let current = match progress {
        Some(progress) => progress,
        None => progress.insert(resume(name, journal).await?),
    };
    let entries = journal.entries_after(current.seq, EVENTS_MAX, BYTES_MAX).await?;
    let Some(last) = entries.last() else { return Ok(0) };
    let last_seq = last.seq;
    loop {
        let envelopes = entries.iter().map(envelope::envelope).collect();
        let next = match sink.deliver(envelopes, current.mark).await? {
            Delivered::Anchored(mark) => Progress { seq: current.seq, mark: Some(mark) },
            Delivered::All(mark) => Progress { seq: last_seq, mark: Some(mark) },
        };
        journal.record_progress(name, next.clone()).await?;
        *current = next;
        if current.seq == last_seq {
            return Ok(entries.len());
        }
    }
}

async fn resume<J: Journal>(name: &str, journal: &J) -> Result<Progress, JournalError> {
    let resume = journal.resume(name).await?;
    if 0 < resume.n_skipped {
        warn!(
            event = "sink.starts_late",
            sink = name,
            skipped = resume.n_skipped,
            "sink was added after others: it gets the events from now on, not those already in the journal"
        );
    }
    Ok(resume.progress)
}
