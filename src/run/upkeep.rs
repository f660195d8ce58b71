//! What the journal needs now and then: a look for what command-line tools have changed, and pruning.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::journal::{Pruned, SqliteJournal};
use crate::observe::logging::ErrorChain;

/// How soon a retried dead letter is noticed.
const LOOK_INTERVAL: Duration = Duration::from_millis(1_500);

/// From the start to the first pruning: the start has enough to do.
const FIRST_PRUNING: Duration = Duration::from_secs(60);

const PRUNE_INTERVAL: Duration = Duration::from_secs(3_600);

/// Runs until dropped.
pub(super) async fn keep_up(journal: &SqliteJournal, retention: Duration) -> Infallible {
    let (never, _) = tokio::join!(notice_changes(journal), prune(journal, retention));
    never
}

async fn notice_changes(journal: &SqliteJournal) -> Infallible {
    loop {
        sleep(LOOK_INTERVAL).await;
        // A journal that cannot be read is told of by those who need it.
        journal.look_for_changes().await.ok();
    }
}

async fn prune(journal: &SqliteJournal, retention: Duration) -> Infallible {
    sleep(FIRST_PRUNING).await;
    loop {
        match journal.prune(retention, Timestamp::now()).await {
            Ok(pruned) => tell(&pruned),
            Err(error) => warn!(
                event = "journal.not_pruned", error = %ErrorChain(&error), "journal is not pruned; it is tried again in an hour"
            ),
        }
        sleep(PRUNE_INTERVAL).await;
    }
}

fn tell(pruned: &Pruned) {
    for (sink, deliveries) in &pruned.sinks {
        warn!(
            event = "sink.dropped",
            sink,
            deliveries,
            "sink is missing in the configuration for longer than journal.retention: what waited for it is dropped"
        );
    }
    if 0 < pruned.n_events + pruned.n_keys {
        info!(
            event = "journal.pruned",
            events = pruned.n_events,
            keys = pruned.n_keys,
            "old events are taken out of the journal"
        );
    }
}
