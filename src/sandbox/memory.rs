//! A feed without a socket: the queue model behind the agent's own trait, for loops in paused time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use reqwest::StatusCode;
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::handle::{HandleForm, Issuer};
use super::items::Item;
use super::queue::{Fate, Queue, Received, Rules};
use crate::config::Secret;
use crate::event;
use crate::http::{Hints, NoAnswer};
use crate::journal::Journaled;
use crate::policy::classify::{Operation, classify};
use crate::policy::retry_after::Hint;
use crate::vtex::feed::{Feed, FeedError, Reply};
use crate::vtex::http::AttemptError;
use crate::vtex::wire;

/// A feed in memory, on tokio's clock. It notes every request, and fails as its script says.
pub struct MemoryFeed {
    account: String,
    visibility: Duration,
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
    /// The same with a Retry-After.
    StatusAfter(u16, Duration),
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
    /// How many items a receive asked for.
    pub max: Option<u8>,
}

struct State {
    queue: Queue,
    script: VecDeque<(Option<Operation>, Fault)>,
    requests: Vec<Request>,
    n_committed: u64,
    n_tokens: u64,
    poison: Option<(String, u16)>,
    /// Of the poisoned order.
    poisoned_handles: BTreeSet<String>,
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
            visibility: rules.visibility,
            started: Instant::now(),
            state: Mutex::new(State {
                queue,
                script: VecDeque::new(),
                requests: Vec::new(),
                n_committed: 0,
                n_tokens: 0,
                poison: None,
                poisoned_handles: BTreeSet::new(),
            }),
        }
    }

    pub fn enqueue(&self, item: Item) {
        let mut state = self.state();
        state.queue.enqueue(self.started.elapsed(), item);
    }

    /// The next receives and commits meet these faults one after another; after that all goes well.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().script.extend(faults.into_iter().map(|fault| (None, fault)));
    }

    /// The same for one operation: the others go well until these have been met.
    pub fn script_for(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        self.state().script.extend(faults.into_iter().map(|fault| (Some(operation), fault)));
    }

    /// Commits that hold a handle of this order are refused with this status.
    pub fn poison(&self, order_id: &str, status: u16) {
        self.state().poison = Some((order_id.to_owned(), status));
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
    fn arrive(&self, operation: Operation, max: Option<u8>) -> Fault {
        let mut state = self.state();
        state.requests.push(Request { at: Instant::now(), operation, max });
        let is_meant = |only: Option<Operation>| match (only, operation) {
            (Some(only), _) => only == operation,
            (None, Operation::Receive | Operation::Commit) => true,
            (None, Operation::Config | Operation::Order | Operation::NotifyPrice) => false,
        };
        if !state.script.front().is_some_and(|(only, _)| is_meant(*only)) {
            return Fault::None;
        }
        state.script.pop_front().map_or(Fault::None, |(_, fault)| fault)
    }

    /// Runs `effect` where the fault lets it happen; `hollow` is a success without effect.
    async fn answer<T>(
        &self,
        operation: Operation,
        max: Option<u8>,
        hollow: T,
        effect: impl FnOnce(&mut State, Duration) -> T,
    ) -> Result<T, FeedError> {
        match self.arrive(operation, max) {
            Fault::None => {}
            Fault::Late(delay) => sleep(delay).await,
            Fault::Status(code) => return Err(refused(operation, code, Hints::default())),
            Fault::StatusAfter(code, wait) => {
                let wait = Some(Hint { wait, capped: false });
                return Err(refused(operation, code, Hints { wait, slow_down: None }));
            }
            Fault::Cut => return Err(malformed()),
            Fault::Hollow => return Ok(hollow),
            Fault::AnswerLost => {
                effect(&mut self.state(), self.started.elapsed());
                return Err(AttemptError::from(NoAnswer::Broken("the connection was reset".into())).into());
            }
        }
        Ok(effect(&mut self.state(), self.started.elapsed()))
    }
}

impl State {
    fn refuses(&self, events: &[Journaled]) -> Option<u16> {
        let (_, status) = self.poison.as_ref()?;
        let is_poisoned = |event: &Journaled| self.poisoned_handles.contains(event.handle().expose());
        events.iter().any(is_poisoned).then_some(*status)
    }
}

impl Feed for MemoryFeed {
    async fn receive(&self, max: u8, _: &CancellationToken) -> Result<Reply<Vec<event::Item>>, FeedError> {
        let body = self
            .answer(Operation::Receive, Some(max), "[]".to_owned(), |state, now| {
                let received = state.queue.receive(now, max.into());
                let is_poisoned = |received: &&Received| {
                    state
                        .poison
                        .as_ref()
                        .is_some_and(|(order_id, _)| received.item.value()["orderId"] == **order_id)
                };
                let poisoned = received.iter().filter(is_poisoned).map(|received| received.handle.clone());
                state.poisoned_handles.extend(poisoned);
                let items: Vec<_> =
                    received.iter().map(|received| received.item.with_handle(&received.handle)).collect();
                format!("[{}]", items.join(","))
            })
            .await?;
        match wire::read_batch(&self.account, body.as_bytes()) {
            Ok(body) => Ok(reply(body)),
            Err(source) => Err(FeedError::Malformed { status: StatusCode::OK, source }),
        }
    }

    async fn commit(&self, events: &[Journaled]) -> Result<Reply<()>, FeedError> {
        let refusal = self.state().refuses(events);
        if let Some(status) = refusal {
            self.arrive(Operation::Commit, None);
            return Err(refused(Operation::Commit, status, Hints::default()));
        }
        self.answer(Operation::Commit, None, (), |state, now| {
            for event in events {
                if let Fate::Deleted(_) = state.queue.commit(now, event.handle().expose()) {
                    state.n_committed += 1;
                }
            }
        })
        .await
        .map(reply)
    }

    async fn visibility(&self) -> Result<Reply<Duration>, FeedError> {
        let visibility = self.visibility;
        self.answer(Operation::Config, None, visibility, |_, _| visibility).await.map(reply)
    }

    fn set_app_token(&self, _: Secret) -> bool {
        self.state().n_tokens += 1;
        true
    }
}

/// A success that asks nothing of the pace.
pub(crate) fn reply<T>(body: T) -> Reply<T> {
    Reply { status: StatusCode::OK, body, hints: Hints::default() }
}

/// An answer of this status.
pub(crate) fn refused(operation: Operation, code: u16, hints: Hints) -> FeedError {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match classify(operation, code) {
        Some(class) => FeedError::Refused { status, class, hints, excerpt: String::new() },
        None => malformed(),
    }
}

/// A success whose body was cut.
pub(crate) fn malformed() -> FeedError {
    match wire::read_batch("", b"[{") {
        Err(source) => FeedError::Malformed { status: StatusCode::OK, source },
        Ok(_) => AttemptError::from(NoAnswer::Broken("cut".into())).into(),
    }
}
