//! The real file sink on storage that fails, is slow, and loses what was not synced.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::coverage::Met;
use super::disk::{Luck, Medium, Trouble};
use super::inline;
use super::oracle::SHORTEST_WAIT;
use super::storage::Storage;
use super::trace::Step;
use super::world::World;
use crate::journal::Mark;
use crate::sink::{Delivered, Envelope, FileSink, Sink, SinkError};

pub(super) struct SimulatedSink {
    pub(super) sink: usize,
    pub(super) inner: FileSink,
    pub(super) storage: Arc<Storage>,
    pub(super) world: Arc<World>,
    pub(super) crash: CancellationToken,
}

/// What the world knows of a sink.
#[derive(Default)]
pub(super) struct SinkState {
    /// The ids of a delivery whose progress is not recorded.
    pub(super) in_hand: Vec<String>,
    /// How long the file was before lines were written to it that are not synced yet.
    pub(super) unsynced: Option<u64>,
    /// When the last delivery failed, if it did.
    pub(super) failed_at: Option<Duration>,
    /// How far its recorded progress is.
    pub(super) seq: i64,
}

impl Sink for SimulatedSink {
    async fn deliver(
        &mut self,
        envelopes: Vec<Envelope>,
        mark: Option<Mark>,
    ) -> Result<Delivered, SinkError> {
        let sink = self.sink;
        let Luck { before, trouble, after } = self.world.luck(Medium::Sink(sink), true);
        self.world.with(|state, now| {
            // At the shutdown it is tried once more, whenever the last time was.
            let is_soon = state.sinks[sink].failed_at.take().is_some_and(|at| now < at + SHORTEST_WAIT);
            if is_soon && !state.oracle.is_stopping() {
                state.expect(Err(format!("sink {sink} is tried again at once")));
            }
            state.sinks[sink].in_hand = envelopes.iter().map(|envelope| envelope.id.clone()).collect();
        });
        sleep(before).await;
        match trouble {
            Some(Trouble::CrashBefore) => self.crash().await,
            Some(Trouble::Fails) => return Err(self.fails(false)),
            Some(Trouble::FailsAfterwards | Trouble::CrashAfter) | None => {}
        }
        let (n_events, length) = (envelopes.len(), self.storage.sink_length(sink));
        let result = inline::to_its_end(self.inner.deliver(envelopes, mark));
        self.world.with(|state, _| state.sinks[sink].unsynced = Some(length));
        sleep(after).await;
        if trouble == Some(Trouble::CrashAfter) {
            self.crash().await;
        }
        self.world.with(|state, now| {
            state.sinks[sink].unsynced = None;
            if let Ok(Delivered::All(mark)) = &result {
                state.trace.note(now, Step::Delivered { sink, n_events, length: mark.length });
            }
        });
        if trouble == Some(Trouble::FailsAfterwards) {
            return Err(self.fails(true));
        }
        result
    }
}

impl SimulatedSink {
    fn fails(&self, done: bool) -> SinkError {
        self.world.with(|state, now| {
            state.coverage.meet(if done { Met::SinkFailedAfterwards } else { Met::SinkFailed });
            let medium = Medium::Sink(self.sink);
            state.trace.note(now, Step::Failed { medium, doing: "deliver", done });
            state.sinks[self.sink].failed_at = Some(now);
        });
        let source = io::Error::other("injected");
        SinkError::Io { path: self.storage.sink(self.sink), doing: "write to", source }
    }

    async fn crash(&self) {
        self.crash.cancel();
        std::future::pending().await
    }
}
