//! A feed without a socket: the queue model behind the agent's own trait, for loops in paused time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use reqwest::StatusCode;
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::handle::{HandleForm, Issuer};
use super::items::Item;
use super::queue::{Fate, Queue, Rules};
use crate::event;
use crate::journal::Journaled;
use crate::policy::classify::{Operation, classify};
use crate::vtex::feed::{Feed, FeedError};
use crate::vtex::http::AttemptError;
use crate::vtex::wire;

/// A feed in memory, on tokio's clock. It notes every request, and fails as its script says.
pub struct MemoryFeed {
    account: String,
    started: Instant,
    state: Mutex<State>,
}

/// What is to happen to one request instead of its answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The request is answered as it should be; it only uses up a place in the script.
    None,
    /// Answered with this status, without effect.
    Status(u16),
    /// Answered properly, but only after this long.
    Late(Duration),
    /// It takes effect, but the answer never comes.
    AnswerLost,
    /// A body that was cut.
    Cut,
    /// A success that does nothing: an empty batch though items wait, a commit that deletes nothing.
    Hollow,
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub at: Instant,
    pub operation: Operation,
}

struct State {
    queue: Queue,
    script: VecDeque<Fault>,
    requests: Vec<Request>,
    n_committed: u64,
}

impl MemoryFeed {
    /// An empty feed of the app key "memory". The same seed shuffles alike and makes the same handles.
    pub fn new(account: &str, rules: Rules, seed: u64) -> Self {
        let queue = Queue::new(
            rules,
            Issuer::new(account, "memory", HandleForm::default()),
            Timestamp::UNIX_EPOCH,
            StdRng::seed_from_u64(seed),
        );
        Self {
            account: account.to_owned(),
            started: Instant::now(),
            state: Mutex::new(State { queue, script: VecDeque::new(), requests: Vec::new(), n_committed: 0 }),
        }
    }

    pub fn enqueue(&self, item: Item) {
        let mut state = self.state();
        state.queue.enqueue(self.started.elapsed(), item);
    }

    /// The next requests, of whatever kind, meet these faults one after another; after that all goes well.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().script.extend(faults);
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// How many items were deleted by a commit.
    pub fn n_committed(&self) -> u64 {
        self.state().n_committed
    }

    /// How many items are neither committed nor expired, leased ones included.
    pub fn n_waiting(&self) -> usize {
        self.state().queue.len(self.started.elapsed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the request and returns what is to happen to it.
    fn arrive(&self, operation: Operation) -> Fault {
        let mut state = self.state();
        state.requests.push(Request { at: Instant::now(), operation });
        state.script.pop_front().unwrap_or(Fault::None)
    }

    /// Runs `effect` where the fault lets it happen; `hollow` is a success without effect.
    async fn answer<T>(
        &self,
        operation: Operation,
        hollow: T,
        effect: impl FnOnce(&mut State, Duration) -> T,
    ) -> Result<T, FeedError> {
        match self.arrive(operation) {
            Fault::None => {}
            Fault::Late(delay) => sleep(delay).await,
            Fault::Status(code) => return Err(refused(operation, code)),
            Fault::Cut => return Err(malformed()),
            Fault::Hollow => return Ok(hollow),
            Fault::AnswerLost => {
                effect(&mut self.state(), self.started.elapsed());
                return Err(AttemptError::Network("the connection was reset".into()).into());
            }
        }
        Ok(effect(&mut self.state(), self.started.elapsed()))
    }
}

impl Feed for MemoryFeed {
    async fn receive(&self, max: u8, _: &CancellationToken) -> Result<Vec<event::Item>, FeedError> {
        let body = self
            .answer(Operation::Receive, "[]".to_owned(), |state, now| {
                let received = state.queue.receive(now, max.into());
                let items: Vec<_> =
                    received.iter().map(|received| received.item.with_handle(&received.handle)).collect();
                format!("[{}]", items.join(","))
            })
            .await?;
        wire::read_batch(&self.account, body.as_bytes())
            .map_err(|source| FeedError::Malformed { status: StatusCode::OK, source })
    }

    async fn commit(&self, events: &[Journaled]) -> Result<(), FeedError> {
        self.answer(Operation::Commit, (), |state, now| {
            for event in events {
                if let Fate::Deleted(_) = state.queue.commit(now, event.handle().expose()) {
                    state.n_committed += 1;
                }
            }
        })
        .await
    }
}

fn refused(operation: Operation, code: u16) -> FeedError {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match classify(operation, code) {
        Some(class) => FeedError::Refused { status, class },
        None => malformed(),
    }
}

fn malformed() -> FeedError {
    match wire::read_batch("", b"[{") {
        Err(source) => FeedError::Malformed { status: StatusCode::OK, source },
        Ok(_) => AttemptError::Network("cut".into()).into(),
    }
}
