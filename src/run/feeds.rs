//! The feeds: one loop each, one gate for each VTEX account.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::parts::{Part, Parts};
use super::{Board, RunError};
use crate::account::{Account, Gate};
use crate::config;
use crate::journal::SqliteJournal;
use crate::observe::liveness::Heartbeat;
use crate::vtex::feed::HttpFeed;
use crate::vtex::http::{ClientError, Http};

#[derive(Debug, thiserror::Error)]
#[error("accounts.{account}")]
pub struct FeedsError {
    account: String,
    source: ClientError,
}

pub(super) struct Feeds {
    parts: Parts<Feed>,
    journal: Arc<SqliteJournal>,
    board: Board,
    /// By VTEX account. A gate is kept for good: its pause must outlive any reload.
    gates: HashMap<String, Arc<Gate>>,
    /// The clients of the feeds that run, kept where nothing changed.
    running: BTreeMap<String, Settings>,
}

/// What a feed is made of; equal where its configuration is.
#[derive(Clone)]
struct Settings {
    account: Arc<config::Account>,
    http: Arc<Http>,
    gate: Arc<Gate>,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        self.account == other.account
    }
}

impl Feeds {
    pub(super) fn new(journal: Arc<SqliteJournal>, board: Board, shutdown: CancellationToken) -> Self {
        let parts = Parts::new(shutdown);
        Self { parts, journal, board, gates: HashMap::new(), running: BTreeMap::new() }
    }

    /// Lets exactly these feeds run; returns how many changed.
    ///
    /// # Errors
    /// A client could not be made; everything is as it was then.
    pub(super) fn follow(&mut self, accounts: &[config::Account]) -> Result<usize, FeedsError> {
        let mut settings = BTreeMap::new();
        for account in accounts {
            settings.insert(account.name.clone(), self.settings(account)?);
        }
        for (name, _) in self.running.iter().filter(|(name, _)| !settings.contains_key(*name)) {
            self.board.status.remove_account(name);
        }
        self.running.clone_from(&settings);
        self.pace(accounts);
        let (journal, board) = (&self.journal, &self.board);
        Ok(self.parts.follow(settings, |name| Feed {
            journal: Arc::clone(journal),
            heartbeat: board.liveness.register(format!("feed {name}")),
            board: board.clone(),
            last_poll_ended: None,
        }))
    }

    pub(super) async fn ended_early(&mut self) -> RunError {
        self.parts.ended_early().await
    }

    pub(super) async fn finished(&mut self) -> Result<(), RunError> {
        self.parts.finished().await
    }

    fn settings(&mut self, account: &config::Account) -> Result<Settings, FeedsError> {
        if let Some(running) = self.running.get(&account.name).filter(|running| *running.account == *account)
        {
            return Ok(running.clone());
        }
        let http =
            Http::new(account).map_err(|source| FeedsError { account: account.name.clone(), source })?;
        let gate = self.gates.entry(account.account.clone()).or_default();
        Ok(Settings { account: Arc::new(account.clone()), http: Arc::new(http), gate: Arc::clone(gate) })
    }

    /// Feeds of one VTEX account share its limits: the slowest pace asked for holds.
    fn pace(&self, accounts: &[config::Account]) {
        for (vtex_account, gate) in &self.gates {
            let feeds = || accounts.iter().filter(|account| account.account == *vtex_account);
            let per_second = feeds().map(|account| account.requests.per_second).reduce(f64::min);
            let burst = feeds().map(|account| account.requests.burst).min();
            if let (Some(per_second), Some(burst)) = (per_second, burst) {
                gate.set_pace(per_second, burst);
            }
        }
    }
}

/// One feed through all its configurations.
struct Feed {
    journal: Arc<SqliteJournal>,
    board: Board,
    heartbeat: Heartbeat,
    /// The interval counts on through a reload.
    last_poll_ended: Option<Instant>,
}

impl Part for Feed {
    type Settings = Settings;

    async fn work(&mut self, settings: Settings, stop: CancellationToken) {
        let Settings { account, http, gate } = settings;
        let mut account = Account {
            name: account.name.clone(),
            source: format!("{}/api/orders/feed", account.base_url.as_str().trim_end_matches('/')),
            poll: account.poll.clone(),
            request_timeout: account.requests.timeout,
            feed: HttpFeed::new(http, account.name.clone()),
            journal: Arc::clone(&self.journal),
            gate,
            heartbeat: &self.heartbeat,
            status: self.board.status.clone(),
            last_poll_ended: self.last_poll_ended,
        };
        account.run(&stop).await;
        self.last_poll_ended = account.last_poll_ended;
        // Switched off or not, nothing is due before it works again.
        self.heartbeat.due_within(std::time::Duration::MAX);
    }
}
