//! The composition root: feeds, journal and sinks are made here and nowhere else, followed through reloads, and
//! stopped here.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinError;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::config::Config;
use crate::journal::{JournalError, SqliteJournal};
use crate::observe::liveness::{self, Liveness};
use crate::observe::metrics::Metrics;
use crate::observe::status::{self, Status};
use crate::observe::systemd;

use feeds::Feeds;
pub use reload::{Hangups, Reload};
use sinks::Sinks;

mod feeds;
mod parts;
mod reload;
mod sinks;
mod upkeep;

/// Between two attempts at a journal that another agent holds.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Why the agent could not start, or did not stop as it should.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Feeds(#[from] feeds::FeedsError),
    #[error("a part of the agent ended early")]
    PartEnded(#[source] Option<JoinError>),
    #[error("the grace period of {0:?} ran out before everything in hand was finished")]
    GraceExceeded(Duration),
}

/// Everything that runs, and what it was made from.
struct Agent {
    config: Config,
    feeds: Feeds,
    sinks: Sinks,
}

/// What every part tells about itself.
#[derive(Clone, Default)]
struct Board {
    liveness: Liveness,
    status: Status,
    metrics: Metrics,
}

/// Runs the agent until `shutdown`, then finishes what is in hand within the grace period. SIGHUP reloads the
/// configuration where `reload` says from where. Counts into `metrics`, which outlive the run, however it ends.
///
/// # Errors
/// See [`RunError`]; nothing that was received is lost by any of them.
pub async fn run(
    config: Config,
    reload: Option<Reload>,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    info!(
        event = "agent.started", version = env!("CARGO_PKG_VERSION"), accounts = config.accounts.len(),
        sinks = config.sinks.len(), journal = %config.journal.path.display(), "agent started"
    );
    let board = Board { metrics, ..Board::default() };
    let journal = Arc::new(open_journal(config.journal.path.clone()).await?);
    let retention = config.journal.retention;
    let mut agent = Agent {
        feeds: Feeds::new(Arc::clone(&journal), board.clone(), shutdown.clone()),
        sinks: Sinks::new(Arc::clone(&journal), board.clone()),
        config,
    };
    agent.sinks.note(&agent.config).await?;
    agent.feeds.follow(&agent.config).await?;
    agent.sinks.follow(&agent.config);
    systemd::ready();
    info!(event = "agent.ready", "configuration, journal and sinks are open");
    tokio::select! {
        ended = agent.work_and_stop(reload, &shutdown) => ended,
        never = tell(&board) => match never {},
        never = upkeep::keep_up(&journal, retention) => match never {},
    }
}

impl Agent {
    async fn work_and_stop(
        mut self,
        reload: Option<Reload>,
        shutdown: &CancellationToken,
    ) -> Result<(), RunError> {
        let ended_early = self.work(reload, shutdown).await;
        let grace = self.config.shutdown.grace;
        systemd::stopping();
        info!(event = "shutdown.started", grace_ms = grace.as_millis() as u64, "finishing what is in hand");
        shutdown.cancel();
        let finishing = async {
            self.feeds.finished().await?;
            // Only now is there nothing left that could be journaled.
            self.sinks.stop().await
        };
        let finished = timeout(grace, finishing).await.unwrap_or(Err(RunError::GraceExceeded(grace)));
        ended_early.and(finished)
    }

    /// Reloads at each SIGHUP, until `shutdown`. Reading may take its time: nothing waits for it.
    async fn work(&mut self, reload: Option<Reload>, shutdown: &CancellationToken) -> Result<(), RunError> {
        let Some(mut reload) = reload else { return self.undisturbed(shutdown).await };
        let mut reading = None;
        loop {
            tokio::select! {
                biased; // A feed ends by itself as soon as the shutdown is known.
                ended = self.undisturbed(shutdown) => return ended,
                () = reload.asked() => reading = Some(reload.begin()),
                read = reload::finished(&mut reading) => {
                    reading = None;
                    reload.end(self, read).await;
                }
            }
        }
    }

    /// Waits for the shutdown, or for a part that ends without it. Cancel safe.
    async fn undisturbed(&mut self, shutdown: &CancellationToken) -> Result<(), RunError> {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            error = self.feeds.ended_early() => Err(error),
            error = self.sinks.ended_early() => Err(error),
        }
    }
}

/// Tells the service manager that all loops go round, and where they stand. Runs until dropped.
async fn tell(board: &Board) -> std::convert::Infallible {
    let watching = liveness::watch(&board.liveness, systemd::watchdog_timeout(), systemd::watchdog);
    let publishing = status::publish(&board.status, Timestamp::now, systemd::status);
    tokio::join!(watching, publishing);
    std::future::pending().await
}

/// A program that an agent was starting when it was killed holds its lock for a moment: that is tried once more.
async fn open_journal(path: PathBuf) -> Result<SqliteJournal, JournalError> {
    let open = || async {
        let opening = path.clone();
        tokio::task::spawn_blocking(move || SqliteJournal::open(&opening))
            .await
            .unwrap_or(Err(JournalError::Task { path: path.clone() }))
    };
    match open().await {
        Err(JournalError::Locked { .. }) => {
            sleep(LOCK_PATIENCE).await;
            open().await
        }
        opened => opened,
    }
}
