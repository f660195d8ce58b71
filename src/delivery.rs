//! Delivery of journaled events, one worker for each sink. It reads the journal, never the feed.
//!
//! A [`LineWorker`] hands over many events at once, in journal order; where its sink fails, all wait. An
//! [`EventWorker`] hands over one by one: what may go next is planned by `plan`, which keeps the events of each order
//! apart (`lanes`) and knows what to record (`ledger`).

use std::time::Duration;

use tracing::warn;

use crate::journal::{JournalError, Outbox, Progress};

pub use events::EventWorker;
pub use lines::LineWorker;

mod envelope;
mod events;
mod lanes;
mod ledger;
mod lines;
mod plan;
mod tell;

/// How long nothing may happen before the journal is looked at all the same.
const IDLE: Duration = Duration::from_secs(60);

/// Where a sink goes on.
async fn resume<J: Outbox>(name: &str, journal: &J) -> Result<Progress, JournalError> {
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
