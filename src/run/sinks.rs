//! The sinks: one delivery worker each.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::parts::{Part, Parts};
use super::{Board, RunError};
use crate::config::{self, Config, Limits, SinkKind, Wanted};
use crate::delivery::{EventWorker, LineWorker};
use crate::journal::{JournalError, SqliteJournal};
use crate::observe::liveness::Heartbeat;
use crate::observe::logging::ErrorChain;
use crate::policy::breaker;
use crate::sink::{CommandSink, EventSink, FileSink, WebhookSink};
use crate::wall::Wall;

/// Between two attempts to make an HTTP client.
const CLIENT_WAIT: Duration = Duration::from_secs(60);

pub(super) struct Sinks {
    parts: Parts<SinkPart>,
    /// Cancelled once nothing can be journaled any more.
    shutdown: CancellationToken,
    journal: Arc<SqliteJournal>,
    board: Board,
}

impl Sinks {
    pub(super) fn new(journal: Arc<SqliteJournal>, board: Board) -> Self {
        let shutdown = CancellationToken::new();
        Self { parts: Parts::new(shutdown.clone()), shutdown, journal, board }
    }

    /// Lets exactly the sinks of `config` run; returns how many changed.
    pub(super) fn follow(&mut self, config: &Config) -> usize {
        if config.sinks.is_empty() {
            warn!(
                event = "sink.none",
                "no sink is configured: events stay in the journal and nobody gets them"
            );
        }
        let breaker = config.circuit_breaker;
        let settings = config.sinks.iter().map(|sink| {
            let config::Sink { name, wanted, kind } = sink.clone();
            (name, Settings { wanted, kind, breaker })
        });
        let (journal, board) = (&self.journal, &self.board);
        self.parts.follow(settings.collect(), |name| SinkPart {
            name: name.to_owned(),
            journal: Arc::clone(journal),
            heartbeat: board.liveness.register(format!("sink {name}")),
            has_worked: false,
        })
    }

    /// Tells the journal which sinks there are: before anything is received for them, so that no event passes a new one,
    /// and so that one that is missing for long is forgotten.
    pub(super) async fn note(&self, config: &Config) -> Result<(), JournalError> {
        let names = config.sinks.iter().map(|sink| sink.name.clone()).collect();
        for (sink, skipped) in self.journal.know_sinks(names, Timestamp::now()).await? {
            warn!(
                event = "sink.starts_late",
                sink,
                skipped,
                "sink was added after others: it gets the events from now on, not those already in the journal"
            );
        }
        Ok(())
    }

    pub(super) async fn ended_early(&mut self) -> RunError {
        self.parts.ended_early().await
    }

    pub(super) async fn stop(&mut self) -> Result<(), RunError> {
        self.shutdown.cancel();
        self.parts.finished().await
    }
}

struct SinkPart {
    name: String,
    journal: Arc<SqliteJournal>,
    heartbeat: Heartbeat,
    /// Whether it has worked since the start.
    has_worked: bool,
}

/// What a sink is made from.
#[derive(Clone, PartialEq)]
struct Settings {
    wanted: Wanted,
    kind: SinkKind,
    breaker: breaker::Settings,
}

impl Part for SinkPart {
    type Settings = Settings;

    async fn work(&mut self, settings: Settings, stop: CancellationToken) {
        let Settings { wanted, kind, breaker } = settings;
        if let Err(error) = self.journal.note_wanted(&self.name, &wanted).await {
            // Only what `events` says of this sink is less exact.
            warn!(event = "journal.blocked", sink = self.name, error = %ErrorChain(&error), "the journal does not know yet what the sink wants");
        }
        match kind {
            SinkKind::File(file) => {
                let worker = LineWorker {
                    name: &self.name,
                    wanted,
                    sink: FileSink::new(&file, Wall::System),
                    journal: &*self.journal,
                    heartbeat: &self.heartbeat,
                };
                worker.run(rand::random(), &stop).await;
            }
            SinkKind::Webhook(webhook) => {
                if let Some(sink) = self.webhook(&webhook, &stop).await {
                    self.event_by_event(sink, wanted, webhook.limits, breaker, &stop).await;
                }
            }
            SinkKind::Command(command) => {
                let limits = command.limits.clone();
                let sink = CommandSink::new(&self.name, command);
                self.event_by_event(sink, wanted, limits, breaker, &stop).await;
            }
        }
        self.has_worked = true;
        self.heartbeat.due_within(Duration::MAX);
    }
}

impl SinkPart {
    /// Makes the way to a webhook; `None` at the shutdown.
    async fn webhook(&self, webhook: &config::Webhook, stop: &CancellationToken) -> Option<WebhookSink> {
        loop {
            match WebhookSink::new(webhook) {
                Ok(sink) => return Some(sink),
                Err(error) => {
                    warn!(
                        event = "sink.blocked", sink = self.name, wait_ms = CLIENT_WAIT.as_millis() as u64,
                        error = %ErrorChain(&error), "sink does not take events; they stay in the journal"
                    );
                    self.heartbeat.due_within(CLIENT_WAIT);
                    stop.run_until_cancelled(sleep(CLIENT_WAIT)).await?;
                }
            }
        }
    }

    async fn event_by_event<S: EventSink + 'static>(
        &self,
        sink: S,
        wanted: Wanted,
        limits: Limits,
        breaker: breaker::Settings,
        stop: &CancellationToken,
    ) {
        let worker = EventWorker {
            name: &self.name,
            wanted,
            limits,
            breaker,
            sink: Arc::new(sink),
            journal: Arc::clone(&self.journal),
            wall: Wall::System,
            heartbeat: &self.heartbeat,
            keeps_wait: !self.has_worked,
        };
        worker.run(rand::random(), stop).await;
    }
}
