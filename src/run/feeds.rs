//! The feeds: one loop each, one gate for each VTEX account.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::parts::{Part, Parts};
use super::{Board, RunError};
use crate::account::{Account, Gate, Memory, gate};
use crate::config::{self, Config};
use crate::http::client::{ClientError, Clients};
use crate::journal::{JournalError, SqliteJournal};
use crate::policy::retry::Retry;
use crate::policy::schedule;
use crate::vtex::feed::HttpFeed;
use crate::vtex::http::Http;
use crate::wall::Wall;

/// The feeds cannot be made as the configuration asks.
#[derive(Debug, thiserror::Error)]
pub enum FeedsError {
    #[error("accounts.{account}")]
    Client { account: String, source: ClientError },
    #[error(transparent)]
    Journal(#[from] JournalError),
}

pub(super) struct Feeds {
    parts: Parts<Feed>,
    journal: Arc<SqliteJournal>,
    board: Board,
    clients: Clients,
    /// By VTEX account. A gate is kept for good: its pause must outlive any reload.
    gates: HashMap<String, Arc<Gate>>,
    /// Kept where nothing changed.
    running: BTreeMap<String, Settings>,
}

/// What a feed is made of; equal where its configuration is.
#[derive(Clone)]
struct Settings {
    account: Arc<config::Account>,
    retry: Retry,
    http: Arc<Http>,
    gate: Arc<Gate>,
    /// Counts only when the feed is begun.
    first_poll: Instant,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        self.account == other.account && self.retry == other.retry
    }
}

impl Feeds {
    pub(super) fn new(journal: Arc<SqliteJournal>, board: Board, shutdown: CancellationToken) -> Self {
        Self {
            parts: Parts::new(shutdown),
            journal,
            board,
            clients: Clients::default(),
            gates: HashMap::new(),
            running: BTreeMap::new(),
        }
    }

    /// Lets exactly the feeds of this configuration run; returns how many changed.
    ///
    /// # Errors
    /// A client could not be made, or a stored pause could not be read; every feed is as it was then.
    pub(super) async fn follow(&mut self, config: &Config) -> Result<usize, FeedsError> {
        let mut settings = BTreeMap::new();
        for (index, account) in config.accounts.iter().enumerate() {
            settings.insert(account.name.clone(), self.settings(config, account, index).await?);
        }
        for (name, _) in self.running.iter().filter(|(name, _)| !settings.contains_key(*name)) {
            self.board.status.remove_account(name);
        }
        self.running.clone_from(&settings);
        for gate in self.gates.values() {
            if let Some(settings) = gate_settings(config, gate.vtex_account()) {
                gate.set(settings);
            }
        }
        let first_polls: HashMap<String, Instant> =
            settings.iter().map(|(name, settings)| (name.clone(), settings.first_poll)).collect();
        let (journal, board) = (&self.journal, &self.board);
        Ok(self.parts.follow(settings, |name| Feed {
            journal: Arc::clone(journal),
            board: board.clone(),
            memory: Memory::new(
                board.liveness.register(format!("feed {name}")),
                board.liveness.register(format!("configuration of feed {name}")),
                first_polls.get(name).copied().unwrap_or_else(Instant::now),
                rand::random(),
            ),
        }))
    }

    pub(super) async fn ended_early(&mut self) -> RunError {
        self.parts.ended_early().await
    }

    pub(super) async fn finished(&mut self) -> Result<(), RunError> {
        self.parts.finished().await
    }

    async fn settings(
        &mut self,
        config: &Config,
        account: &config::Account,
        index: usize,
    ) -> Result<Settings, FeedsError> {
        let gate = self.gate(config, &account.account).await?;
        let client = |source| FeedsError::Client { account: account.name.clone(), source };
        let http = match self.running.get(&account.name) {
            Some(running) if *running.account == *account => Arc::clone(&running.http),
            Some(_) | None => Arc::new(Http::new(self.clients.client(account).map_err(client)?, account)),
        };
        let spread = schedule::first_poll_in(index, config.accounts.len(), account.poll.interval);
        Ok(Settings {
            account: Arc::new(account.clone()),
            retry: config.retry,
            http,
            gate,
            first_poll: Instant::now() + spread,
        })
    }

    /// The gate of a VTEX account. A new one goes on with the pause that was stored.
    async fn gate(&mut self, config: &Config, vtex_account: &str) -> Result<Arc<Gate>, FeedsError> {
        if let Some(gate) = self.gates.get(vtex_account) {
            return Ok(Arc::clone(gate));
        }
        let settings = gate_settings(config, vtex_account);
        #[expect(clippy::expect_used, reason = "it is asked for by an account of this configuration")]
        let settings = settings.expect("a gate is made for at least one feed");
        let gate = Gate::new(vtex_account.to_owned(), settings, rand::random());
        let gate = Arc::new(gate.with_metrics(self.board.metrics.clone()));
        gate.restore(&*self.journal, &Wall::System).await?;
        self.gates.insert(vtex_account.to_owned(), Arc::clone(&gate));
        Ok(gate)
    }
}

fn gate_settings(config: &Config, vtex_account: &str) -> Option<gate::Settings> {
    let feeds = config.accounts.iter().filter(|account| account.account == vtex_account);
    let requests = feeds.map(|account| &account.requests);
    gate::Settings::shared(requests, config.rate_limit, config.circuit_breaker)
}

/// One feed through all its configurations.
struct Feed {
    journal: Arc<SqliteJournal>,
    board: Board,
    memory: Memory,
}

impl Part for Feed {
    type Settings = Settings;

    async fn work(&mut self, settings: Settings, stop: CancellationToken) {
        let Settings { account, retry, http, gate, first_poll: _ } = settings;
        let account = Account {
            name: account.name.clone(),
            source: config::source(&account.base_url),
            poll: account.poll.clone(),
            retry,
            request_timeout: account.requests.timeout,
            app_token_source: account.app_token_source.clone(),
            feed: HttpFeed::new(http, account.name.clone()),
            journal: Arc::clone(&self.journal),
            gate,
            status: self.board.status.clone(),
            wall: Wall::System,
            memory: &self.memory,
        };
        account.run(&stop).await;
        // Switched off or not, nothing is due before it works again.
        self.memory.rest();
    }
}
