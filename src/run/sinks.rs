//! The sinks: one delivery worker each.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::parts::{Part, Parts};
use super::{Board, RunError};
use crate::config::{self, SinkKind};
use crate::delivery;
use crate::journal::SqliteJournal;
use crate::observe::liveness::Heartbeat;
use crate::sink::FileSink;
use tracing::warn;

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

    /// Lets exactly these sinks run; returns how many changed.
    pub(super) fn follow(&mut self, sinks: &[config::Sink]) -> usize {
        if sinks.is_empty() {
            warn!(
                event = "sink.none",
                "no sink is configured: events stay in the journal and nobody gets them"
            );
        }
        let settings = sinks.iter().map(|sink| (sink.name.clone(), sink.kind.clone())).collect();
        let (journal, board) = (&self.journal, &self.board);
        self.parts.follow(settings, |name| SinkPart {
            name: name.to_owned(),
            journal: Arc::clone(journal),
            heartbeat: board.liveness.register(format!("sink {name}")),
        })
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
}

impl Part for SinkPart {
    type Settings = SinkKind;

    async fn work(&mut self, settings: SinkKind, stop: CancellationToken) {
        match settings {
            SinkKind::File(file) => {
                let worker = delivery::Worker {
                    name: &self.name,
                    sink: FileSink::new(&file),
                    journal: &*self.journal,
                    heartbeat: &self.heartbeat,
                };
                worker.run(rand::random(), &stop).await;
            }
        }
        self.heartbeat.due_within(std::time::Duration::MAX);
    }
}
