//! Receivers that take one event at a time, in whatever mood they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::Deserialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::audit;
use super::coverage::Met;
use super::oracle::deliveries::Came;
use super::plan::{Plan, ReceiverPlan, generator};
use super::trace::Step;
use super::world::{State, World};
use crate::http::NoAnswer;
use crate::sink::{Envelope, EventSink, Refusal, RefusalCause};

/// How a receiver is doing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Mood {
    Calm,
    /// Every fault now and then.
    Fitful,
    /// Wants to be left alone.
    Throttling,
    Slow,
    /// Refuses all, as after a change of its password.
    Refusing,
    /// Nothing works.
    Down,
}

/// What happens to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    Taken,
    Late(Duration),
    Refused {
        status: u16,
        retry_after: Option<Duration>,
    },
    Unreachable,
    /// No answer within the time-out; it may have been taken.
    Hung {
        takes: bool,
    },
    /// The connection breaks after the event was taken.
    TakenAndBroken,
    /// The power goes at the agent's, before the event was taken,
    CrashBefore,
    /// or after that.
    CrashAfter,
}

/// A receiver as the agent's sink.
pub(super) struct SimulatedReceiver {
    pub(super) receiver: usize,
    pub(super) world: Arc<World>,
    pub(super) crash: CancellationToken,
}

/// A receiver on the other side.
pub(super) struct ReceiverState {
    pub(super) mood: Mood,
    plan: ReceiverPlan,
    salt: u64,
    /// Poison that somebody mended.
    healed: BTreeSet<i64>,
    /// No event behind this place is poison.
    poison_to: i64,
    rng: StdRng,
}

/// How an attempt will go; the world draws it when the request leaves.
struct Exchange {
    seq: i64,
    fate: Fate,
    there: Duration,
    back: Duration,
}

#[derive(Deserialize)]
struct Line {
    sequence: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    event: Box<serde_json::value::RawValue>,
}

impl EventSink for SimulatedReceiver {
    async fn deliver(&self, envelope: &Envelope) -> Result<(), Refusal> {
        let receiver = self.receiver;
        let exchange = self.world.with(|state, now| state.attempt(now, receiver, envelope));
        let Some(Exchange { seq, fate, there, back }) = exchange else { return std::future::pending().await };
        sleep(there).await;
        if fate == Fate::CrashBefore {
            self.crash().await;
        }
        if fate.takes() {
            self.world.with(|state, now| state.take(now, receiver, seq));
        }
        if fate == Fate::CrashAfter {
            self.crash().await;
        }
        sleep(back).await;
        let result = fate.answer();
        self.world.with(|state, now| state.answered(now, receiver, seq, &result));
        result
    }
}

impl SimulatedReceiver {
    async fn crash(&self) {
        self.crash.cancel();
        std::future::pending().await
    }
}

impl State {
    /// An attempt leaves the agent; `None` where what it sends is wrong.
    fn attempt(&mut self, now: Duration, receiver: usize, envelope: &Envelope) -> Option<Exchange> {
        let read = serde_json::from_str::<Line>(&envelope.line).ok();
        let line = read.and_then(|line| Some((line.sequence.parse().ok()?, line.data.event)));
        let sent = line.and_then(|(seq, item)| Some((seq, audit::number(item.get()).ok()?)));
        let (seq, event) =
            sent.filter(|(seq, _)| self.oracle.receivers[receiver].is_in_hand(*seq)).or_else(|| {
                self.expect(Err(format!("receiver {receiver} is sent {}", envelope.line)));
                None
            })?;
        let may_crash = self.faulty;
        let of = &mut self.receivers[receiver];
        let fate = of.fate(seq, may_crash);
        let mut latency = || Duration::from_millis(of.rng.random_range(1..150));
        let (there, back) = (latency(), latency());
        let back = match fate {
            Fate::Late(late) => late,
            Fate::Hung { .. } => of.plan.limits.timeout.saturating_sub(there),
            Fate::Taken
            | Fate::Refused { .. }
            | Fate::Unreachable
            | Fate::TakenAndBroken
            | Fate::CrashBefore
            | Fate::CrashAfter => back,
        };
        if let Some(met) = fate.met() {
            self.coverage.meet(met);
        }
        self.coverage.attempts += 1;
        self.trace.note(now, Step::Attempted { receiver, seq, event, fate });
        Some(Exchange { seq, fate, there, back })
    }

    fn take(&mut self, now: Duration, receiver: usize, seq: i64) {
        if let Some(met) = self.oracle.receivers[receiver].taken(seq) {
            self.coverage.meet(met);
        }
        self.coverage.taken += 1;
        self.trace.note(now, Step::Taken { receiver, seq });
    }

    fn answered(&mut self, now: Duration, receiver: usize, seq: i64, result: &Result<(), Refusal>) {
        let (came, status) = match result {
            Ok(()) => (Came::Taken, Some(200)),
            Err(Refusal { cause, retry_after, .. }) => {
                let retry_after = *retry_after;
                let (of_the_receiver, status) = match cause {
                    RefusalCause::Status(status) => (*status == 429, Some(*status)),
                    RefusalCause::NoAnswer(NoAnswer::NotConnected(_)) => (true, None),
                    RefusalCause::NoAnswer(NoAnswer::Broken(_)) | RefusalCause::Program(_) => (false, None),
                };
                (Came::Refused { of_the_receiver, retry_after }, status)
            }
        };
        for met in self.oracle.receivers[receiver].heard(now, seq, came) {
            self.coverage.meet(met);
        }
        self.trace.note(now, Step::Answered { receiver, seq, status });
    }
}

impl ReceiverState {
    pub(super) fn all(plan: &Plan) -> Vec<Self> {
        let state = |(n, receiver): (usize, &ReceiverPlan)| {
            let mut rng = generator(plan.seed, &format!("receiver {n}"));
            let salt = rng.random();
            let plan = receiver.clone();
            Self { mood: Mood::Calm, plan, salt, healed: BTreeSet::new(), poison_to: i64::MAX, rng }
        };
        plan.receivers.iter().enumerate().map(state).collect()
    }

    /// Whether it never takes the event at this place.
    pub(super) fn is_poison(&self, seq: i64) -> bool {
        let Some(every) = self.plan.poison else { return false };
        let drawn = (seq.unsigned_abs() ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        drawn.is_multiple_of(every) && seq <= self.poison_to && !self.healed.contains(&seq)
    }

    pub(super) fn heal(&mut self, seq: i64) {
        self.healed.insert(seq);
    }

    /// From now on it takes all but its poison, and no new event is poison.
    pub(super) fn end_faults(&mut self, last: i64) {
        self.mood = Mood::Calm;
        self.poison_to = last;
    }

    fn fate(&mut self, seq: i64, may_crash: bool) -> Fate {
        if may_crash && self.rng.random_bool(0.003) {
            return if self.rng.random_bool(0.5) { Fate::CrashBefore } else { Fate::CrashAfter };
        }
        let (timeout, rng) = (self.plan.limits.timeout, &mut self.rng);
        let fate = match self.mood {
            Mood::Calm => Fate::Taken,
            Mood::Fitful if rng.random_bool(0.6) => Fate::Taken,
            Mood::Fitful => fault(timeout, rng),
            Mood::Throttling if rng.random_bool(0.3) => Fate::Taken,
            Mood::Throttling => Fate::Refused { status: 429, retry_after: retry_after(rng) },
            Mood::Slow => late(timeout, rng),
            Mood::Refusing => Fate::Refused { status: 401, retry_after: None },
            Mood::Down => down(rng),
        };
        if fate.takes() && self.is_poison(seq) {
            return Fate::Refused { status: if seq % 2 == 0 { 422 } else { 500 }, retry_after: None };
        }
        fate
    }
}

impl Mood {
    pub(super) fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..100) {
            0..30 => Self::Calm,
            30..65 => Self::Fitful,
            65..73 => Self::Throttling,
            73..83 => Self::Slow,
            83..87 => Self::Refusing,
            _ => Self::Down,
        }
    }
}

impl Fate {
    fn takes(self) -> bool {
        match self {
            Self::Taken | Self::Late(_) | Self::TakenAndBroken | Self::CrashAfter => true,
            Self::Hung { takes } => takes,
            Self::Refused { .. } | Self::Unreachable | Self::CrashBefore => false,
        }
    }

    /// What the agent hears.
    fn answer(self) -> Result<(), Refusal> {
        let refusal = |cause, retry_after| Err(Refusal { cause, retry_after, answer: None });
        match self {
            Self::Taken | Self::Late(_) | Self::CrashBefore | Self::CrashAfter => Ok(()),
            Self::Refused { status, retry_after } => refusal(RefusalCause::Status(status), retry_after),
            Self::Unreachable => refusal(NoAnswer::NotConnected("connection refused".into()).into(), None),
            Self::Hung { .. } => refusal(NoAnswer::Broken("no answer in time".into()).into(), None),
            Self::TakenAndBroken => refusal(NoAnswer::Broken("connection reset".into()).into(), None),
        }
    }

    fn met(self) -> Option<Met> {
        match self {
            Self::Taken | Self::CrashBefore | Self::CrashAfter => None,
            Self::Late(_) => Some(Met::ReceiverLate),
            Self::Refused { status: 429, retry_after: Some(_) } => Some(Met::ReceiverThrottled),
            Self::Refused { retry_after: Some(_), .. } => Some(Met::ReceiverUnavailable),
            Self::Refused { status: 422, .. } => Some(Met::PoisonRefused),
            Self::Refused { .. } => Some(Met::ReceiverRefused),
            Self::Unreachable => Some(Met::ReceiverUnreachable),
            Self::Hung { .. } => Some(Met::ReceiverHung),
            Self::TakenAndBroken => Some(Met::ReceiverTookAndBroke),
        }
    }
}

fn fault(timeout: Duration, rng: &mut StdRng) -> Fate {
    let refused = |status| Fate::Refused { status, retry_after: None };
    match rng.random_range(0..12) {
        0 => Fate::Refused { status: 429, retry_after: retry_after(rng) },
        1 => Fate::Refused { status: 503, retry_after: retry_after(rng) },
        2..5 => refused([400, 404, 408, 413, 500, 502, 504][rng.random_range(0..7)]),
        5 => Fate::Unreachable,
        6 => Fate::Hung { takes: rng.random_bool(0.5) },
        7..9 => Fate::TakenAndBroken,
        _ => late(timeout, rng),
    }
}

fn down(rng: &mut StdRng) -> Fate {
    match rng.random_range(0..10) {
        0 => Fate::Hung { takes: false },
        1..6 => Fate::Unreachable,
        n => Fate::Refused { status: [502, 503, 503, 504][n - 6], retry_after: None },
    }
}

fn late(timeout: Duration, rng: &mut StdRng) -> Fate {
    Fate::Late(timeout.mul_f64(rng.random_range(0.1..0.95)))
}

fn retry_after(rng: &mut StdRng) -> Option<Duration> {
    let seconds = match rng.random_range(0..10) {
        0..3 => return None,
        3..6 => rng.random_range(1..60),
        6..9 => rng.random_range(60..600),
        _ => rng.random_range(600..3_600),
    };
    Some(Duration::from_secs(seconds))
}
