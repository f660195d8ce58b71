//! The composition root: feeds, journal and sinks are made here and nowhere else, and stopped here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::account::{Account, Gate};
use crate::config::{Config, SinkKind};
use crate::delivery;
use crate::journal::{JournalError, SqliteJournal};
use crate::observe::systemd;
use crate::sink::FileSink;
use crate::vtex::feed::HttpFeed;
use crate::vtex::http::{ClientError, Http};

/// Why the agent could not start, or did not stop as it should.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("accounts.{account}")]
    Client { account: String, source: ClientError },
    #[error("a part of the agent ended early")]
    TaskEnded(#[source] Option<JoinError>),
    #[error("the grace period of {0:?} ran out before everything in hand was finished")]
    GraceExceeded(Duration),
}

/// Runs the agent until `shutdown`, then finishes what is in hand within the grace period.
///
/// # Errors
/// See [`RunError`]; nothing that was received is lost by any of them.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), RunError> {
    info!(
        event = "agent.started", version = env!("CARGO_PKG_VERSION"), accounts = config.accounts.len(),
        sinks = config.sinks.len(), journal = %config.journal.path.display(), "agent started"
    );
    let grace = config.shutdown.grace;
    let journal = Arc::new(open_journal(config.journal.path.clone()).await?);
    let sinks_shutdown = CancellationToken::new();
    let mut accounts = spawn_accounts(&config, &journal, &shutdown)?;
    let mut sinks = spawn_sinks(&config, &journal, &sinks_shutdown);
    systemd::ready();
    info!(event = "agent.ready", "configuration, journal and sinks are open");

    let ended_early = tokio::select! {
        biased; // A feed ends by itself as soon as the shutdown is known.
        () = shutdown.cancelled() => Ok(()),
        Some(ended) = accounts.join_next() => Err(RunError::TaskEnded(ended.err())),
        Some(ended) = sinks.join_next() => Err(RunError::TaskEnded(ended.err())),
    };
    systemd::stopping();
    info!(event = "shutdown.started", grace_ms = grace.as_millis() as u64, "finishing what is in hand");
    shutdown.cancel();
    let finishing = async {
        finish(&mut accounts).await?;
        // Only now is there nothing left that could be journaled.
        sinks_shutdown.cancel();
        finish(&mut sinks).await
    };
    let finished = timeout(grace, finishing).await.unwrap_or(Err(RunError::GraceExceeded(grace)));
    ended_early.and(finished)
}

async fn open_journal(path: std::path::PathBuf) -> Result<SqliteJournal, JournalError> {
    let opening = path.clone();
    tokio::task::spawn_blocking(move || SqliteJournal::open(&opening))
        .await
        .unwrap_or(Err(JournalError::Task { path }))
}

fn spawn_accounts(
    config: &Config,
    journal: &Arc<SqliteJournal>,
    shutdown: &CancellationToken,
) -> Result<JoinSet<()>, RunError> {
    let mut tasks = JoinSet::new();
    // Feeds of one VTEX account share what it allows.
    let mut gates: HashMap<&str, Arc<Gate>> = HashMap::new();
    for account in &config.accounts {
        let gate = gates.entry(&account.account).or_insert_with(|| Arc::new(Gate::new(&account.requests)));
        let http = Http::new(account)
            .map_err(|source| RunError::Client { account: account.name.clone(), source })?;
        let account = Account {
            name: account.name.clone(),
            source: format!("{}/api/orders/feed", account.base_url.as_str().trim_end_matches('/')),
            poll: account.poll.clone(),
            feed: HttpFeed::new(http, account.name.clone()),
            journal: Arc::clone(journal),
            gate: Arc::clone(gate),
        };
        let shutdown = shutdown.clone();
        tasks.spawn(async move { account.run(&shutdown).await });
    }
    Ok(tasks)
}

fn spawn_sinks(config: &Config, journal: &Arc<SqliteJournal>, shutdown: &CancellationToken) -> JoinSet<()> {
    if config.sinks.is_empty() {
        warn!(event = "sink.none", "no sink is configured: events stay in the journal and nobody gets them");
    }
    let mut tasks = JoinSet::new();
    for sink in &config.sinks {
        let (name, journal, shutdown) = (sink.name.clone(), Arc::clone(journal), shutdown.clone());
        match &sink.kind {
            SinkKind::File(file) => {
                let file = FileSink::new(file);
                tasks.spawn(
                    async move { delivery::run(&name, file, &*journal, rand::random(), shutdown).await },
                );
            }
        }
    }
    tasks
}

async fn finish(tasks: &mut JoinSet<()>) -> Result<(), RunError> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| RunError::TaskEnded(Some(error)))?;
    }
    Ok(())
}
