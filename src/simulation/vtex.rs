//! VTEX as the agent meets it: the sandbox's queue behind the agent's own trait, in whatever weather there is.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::oracle::Heard;
use super::plan::REQUEST_TIMEOUT;
use super::trace::Step;
use super::world::{State, World};
use crate::config::Secret;
use crate::event::Item;
use crate::http::{Hints, NoAnswer};
use crate::journal::Journaled;
use crate::policy::classify::Operation;
use crate::policy::retry_after::Hint;
use crate::sandbox::memory::{malformed, refused, reply};
use crate::vtex::feed::{ABANDON_AFTER, Feed, FeedError, Reply};
use crate::vtex::http::AttemptError;
use crate::vtex::wire;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Good,
    /// Without effect.
    Refused {
        status: u16,
        retry_after: Option<Duration>,
    },
    /// It takes effect, but the body is cut.
    Cut,
    TooLarge,
    /// The connection breaks before it takes effect,
    LostBefore,
    /// or after that.
    LostAfter,
    /// It takes effect, and no answer comes within the time-out.
    Hung,
    Late(Duration),
    /// A success without effect: an empty batch though items wait, a commit that deletes nothing.
    Hollow,
}

impl Answer {
    fn takes_effect(self) -> bool {
        match self {
            Self::Good | Self::Cut | Self::TooLarge | Self::LostAfter | Self::Hung | Self::Late(_) => true,
            Self::Refused { .. } | Self::LostBefore | Self::Hollow => false,
        }
    }
}

/// What was asked.
pub(super) struct Call<'a> {
    pub(super) operation: Operation,
    /// Of a receive.
    pub(super) max: u8,
    /// Of a commit.
    pub(super) handles: Vec<&'a str>,
}

/// How a call will go; the world draws it when the request leaves.
pub(super) struct Exchange {
    pub(super) sent_at: Duration,
    pub(super) answer: Answer,
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) hints: Hints,
}

/// The items of one receive.
#[derive(Default)]
pub(super) struct Lot {
    pub(super) body: Vec<String>,
    pub(super) events: Vec<u32>,
}

/// One feed as the agent's client.
pub(super) struct SimulatedFeed {
    pub(super) feed: usize,
    pub(super) world: Arc<World>,
}

impl Feed for SimulatedFeed {
    async fn receive(&self, max: u8, shutdown: &CancellationToken) -> Result<Reply<Vec<Item>>, FeedError> {
        let abandoned = async {
            shutdown.cancelled().await;
            sleep(ABANDON_AFTER).await;
        };
        let call = Call { operation: Operation::Receive, max, handles: Vec::new() };
        let (mut under_way, lot) = self
            .exchange(call, abandoned, Lot::default(), |state, now| Ok(state.lease(self.feed, now, max)))
            .await;
        let mut events = Vec::new();
        let result = lot.and_then(|Reply { status, body, hints }| {
            events = body.events;
            let text = format!("[{}]", body.body.join(","));
            match wire::read_batch(&self.world.plan.feeds[self.feed].name, text.as_bytes()) {
                Ok(body) => Ok(Reply { status, body, hints }),
                Err(source) => Err(FeedError::Malformed { status: StatusCode::OK, source }),
            }
        });
        under_way.is_heard(Heard::of(&result, events));
        result
    }

    async fn commit(&self, events: &[Journaled]) -> Result<Reply<()>, FeedError> {
        let handles: Vec<&str> = events.iter().map(|event| event.handle().expose()).collect();
        let call = Call { operation: Operation::Commit, max: 0, handles: handles.clone() };
        let (mut under_way, result) = self
            .exchange(call, std::future::pending(), (), |state, now| state.forget(self.feed, now, &handles))
            .await;
        under_way.is_heard(Heard::of(&result, Vec::new()));
        result
    }

    async fn visibility(&self) -> Result<Reply<Duration>, FeedError> {
        let call = Call { operation: Operation::Config, max: 0, handles: Vec::new() };
        let known = self.world.with(|state, _| state.visibility(self.feed));
        let (mut under_way, result) = self
            .exchange(call, std::future::pending(), known, |state, _| Ok(state.visibility(self.feed)))
            .await;
        under_way.is_heard(Heard::of(&result, Vec::new()));
        result
    }

    fn set_app_token(&self, _: Secret) -> bool {
        false
    }
}

impl SimulatedFeed {
    /// Sends a request and waits for its answer. `hollow` is the success without effect; `effect` fails with the
    /// status of its refusal.
    async fn exchange<T>(
        &self,
        call: Call<'_>,
        gives_up: impl Future<Output = ()>,
        hollow: T,
        effect: impl FnOnce(&mut State, Duration) -> Result<T, u16>,
    ) -> (UnderWay, Result<Reply<T>, FeedError>) {
        let operation = call.operation;
        let exchange = self.world.with(|state, now| state.send(now, self.feed, &call));
        let Exchange { sent_at, answer, there, back, hints } = exchange;
        let world = Arc::clone(&self.world);
        let under_way = UnderWay { feed: self.feed, operation, sent_at, world, heard: false };
        let going = async {
            sleep(there).await;
            let effected = answer.takes_effect().then(|| self.world.with(effect));
            sleep(back).await;
            answered(operation, answer, hints, effected.unwrap_or(Ok(hollow)))
        };
        let result = tokio::select! {
            biased;
            answered = going => answered,
            () = gives_up => Err(AttemptError::Abandoned.into()),
        };
        (under_way, result)
    }
}

fn answered<T>(
    operation: Operation,
    answer: Answer,
    hints: Hints,
    effected: Result<T, u16>,
) -> Result<Reply<T>, FeedError> {
    let reads_body = operation != Operation::Commit;
    match (answer, effected) {
        (Answer::Refused { status, retry_after }, _) => {
            let wait = retry_after.map(|wait| Hint { wait, capped: Duration::from_secs(86_400) <= wait });
            Err(refused(operation, status, Hints { wait, slow_down: None }))
        }
        (Answer::LostBefore | Answer::LostAfter | Answer::Hung, _) => {
            Err(AttemptError::from(NoAnswer::Broken("the connection was reset".into())).into())
        }
        (Answer::Cut, _) if reads_body => Err(malformed()),
        (Answer::TooLarge, _) if reads_body => Err(AttemptError::TooLarge { limit: 8 << 20 }.into()),
        (_, Err(status)) => Err(refused(operation, status, Hints::default())),
        (_, Ok(body)) => Ok(Reply { hints, ..reply(body) }),
    }
}

/// A request whose answer has not been heard; dropped before, nobody waits for it any more.
struct UnderWay {
    feed: usize,
    operation: Operation,
    sent_at: Duration,
    world: Arc<World>,
    heard: bool,
}

impl UnderWay {
    fn is_heard(&mut self, heard: Heard) {
        self.heard = true;
        self.world.with(|state, now| state.hear(now, self.feed, self.operation, self.sent_at, heard));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.world.with(|state, now| {
            state.oracle.request_ended(self.feed);
            if !self.heard {
                state.trace.note(now, Step::Dropped { feed: self.feed, operation: self.operation });
            }
        });
    }
}

impl Exchange {
    /// The times of an exchange that ends like this.
    pub(super) fn new(
        sent_at: Duration,
        answer: Answer,
        hints: Hints,
        there: Duration,
        back: Duration,
    ) -> Self {
        let back = match answer {
            Answer::Hung => REQUEST_TIMEOUT.saturating_sub(there),
            Answer::Late(late) => late,
            Answer::Good
            | Answer::Refused { .. }
            | Answer::Cut
            | Answer::TooLarge
            | Answer::LostBefore
            | Answer::LostAfter
            | Answer::Hollow => back,
        };
        Self { sent_at, answer, there, back, hints }
    }
}
