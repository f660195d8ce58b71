//! The world around the agent. Everything outside it is here, behind one lock: the queues, the weather, the disks,
//! the oracle and the trace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::audit::Found;
use super::coverage::{Coverage, Met};
use super::disk::{Disk, Luck, Medium};
use super::oracle::{Heard, Kind, Oracle};
use super::plan::{Plan, STATES, generator};
use super::receiver::ReceiverState;
use super::sink::SinkState;
use super::trace::{Step, Trace};
use super::vtex::{Answer, Call, Exchange, Lot};
use super::weather::Weather;
use crate::http::Hints;
use crate::policy::classify::Operation;
use crate::policy::slow_down::{Level, SlowDown};
use crate::sandbox::handle::{Issuer, MessageId};
use crate::sandbox::items::{Event, Item, Variety, finish};
use crate::sandbox::queue::{Fate, Oddities, Queue};
use crate::wall::{SimulatedWall, Wall};

/// When the simulation begins, as the walls have it.
const ORIGIN: Timestamp = Timestamp::constant(1_772_452_800, 0);

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) wall: Wall,
    pub(super) simulated_wall: SimulatedWall,
    /// Cancelled at the first violation.
    pub(super) violated: CancellationToken,
    started: Instant,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) trace: Trace,
    pub(super) coverage: Coverage,
    pub(super) oracle: Oracle,
    pub(super) weather: Vec<Weather>,
    pub(super) disks: BTreeMap<Medium, Disk>,
    /// Cleared when the faults end.
    pub(super) faulty: bool,
    pub(super) violation: Option<String>,
    violated: CancellationToken,
    pub(super) feeds: Vec<FeedState>,
    pub(super) sinks: Vec<SinkState>,
    /// By sink, the ids of what was in hand when something happened that may make it come twice.
    pub(super) may_repeat: Vec<BTreeSet<String>>,
    pub(super) receivers: Vec<ReceiverState>,
    /// Up to here the receivers' books know the journal.
    pub(super) noted_to: i64,
    pub(super) found: Found,
    /// Since when neither VTEX nor a disk makes trouble.
    pub(super) calm_since: Option<Duration>,
    rng: StdRng,
    disk_rng: StdRng,
}

/// A feed at VTEX.
pub(super) struct FeedState {
    pub(super) queue: Queue,
    pub(super) rules: crate::sandbox::queue::Rules,
    messages: BTreeMap<MessageId, u32>,
    /// What every handle stands for; looked up only.
    handles: HashMap<String, u32>,
    /// The newest handle of an event.
    newest: BTreeMap<u32, String>,
    /// Commits that hold a handle of this event are refused.
    pub(super) poisoned: Option<u32>,
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let simulated_wall = SimulatedWall::new(ORIGIN);
        let violated = CancellationToken::new();
        let feeds = plan.feeds.iter().enumerate().map(|(n, feed)| {
            let issuer = Issuer::new(&format!("account-{}", feed.account), &feed.name, feed.handle_form);
            let rng = generator(plan.seed, &format!("queue {n}"));
            FeedState {
                queue: Queue::new(feed.rules, issuer, ORIGIN, rng),
                rules: feed.rules,
                messages: BTreeMap::new(),
                handles: HashMap::new(),
                newest: BTreeMap::new(),
                poisoned: None,
            }
        });
        let state = State {
            trace: Trace::default(),
            coverage: Coverage::default(),
            oracle: Oracle::new(&plan),
            weather: vec![Weather::Calm; plan.n_accounts],
            disks: BTreeMap::new(),
            faulty: true,
            violation: None,
            violated: violated.clone(),
            feeds: feeds.collect(),
            sinks: (0..plan.n_sinks).map(|_| SinkState::default()).collect(),
            may_repeat: vec![BTreeSet::new(); plan.n_sinks],
            receivers: ReceiverState::all(&plan),
            noted_to: 0,
            found: Found::default(),
            calm_since: Some(Duration::ZERO),
            rng: generator(plan.seed, "answers"),
            disk_rng: generator(plan.seed, "disks"),
        };
        Self {
            wall: Wall::Simulated(simulated_wall.clone()),
            simulated_wall,
            violated,
            started: Instant::now(),
            state: Mutex::new(state),
            plan,
        }
    }

    /// Since the start of the simulation.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Looks at the world or changes it; `work` must not come back here.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State, Duration) -> T) -> T {
        let now = self.now();
        work(&mut self.lock(), now)
    }

    /// How the next piece of work on a medium goes.
    pub(super) fn luck(&self, medium: Medium, writes: bool) -> Luck {
        self.with(|state, _| {
            let disk = state.disks.get(&medium).copied().unwrap_or(Disk::Healthy);
            let may_crash = state.faulty && writes;
            let disk = if writes || disk == Disk::Flaky { disk } else { Disk::Healthy };
            disk.luck(may_crash, &mut state.disk_rng)
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes note of the first violation; it ends the simulation.
    pub(super) fn expect(&mut self, kept: Result<(), String>) {
        if let Err(text) = kept {
            self.violation.get_or_insert(text);
            self.violated.cancel();
        }
    }

    pub(super) fn visibility(&self, feed: usize) -> Duration {
        self.feeds[feed].rules.visibility
    }

    /// A change of an order becomes an item of a feed; now and then an unusable one, or twice the same.
    pub(super) fn enqueue(&mut self, now: Duration, feed: usize, rng: &mut StdRng) {
        let kind = match rng.random_range(0..400) {
            0 => Kind::WithoutHandle,
            1..4 => Kind::WithoutOrder,
            _ => Kind::Usable,
        };
        let event = self.oracle.events.enqueued(feed, now, kind);
        let item = item(event, kind, now, rng);
        self.coverage.events += 1;
        if kind != Kind::Usable {
            self.coverage.meet(Met::UnusableItem);
        }
        let twice = rng.random_bool(0.02) && kind == Kind::Usable;
        if twice {
            self.coverage.meet(Met::EnqueuedTwice);
        }
        for _ in 0..=u8::from(twice) {
            let id = self.feeds[feed].queue.enqueue(now, item.clone());
            self.feeds[feed].messages.insert(id, event);
        }
        self.trace.note(now, Step::Enqueued { feed, event });
    }

    /// A request leaves the agent.
    pub(super) fn send(&mut self, now: Duration, feed: usize, call: &Call<'_>) -> Exchange {
        let events: Vec<u32> =
            call.handles.iter().filter_map(|handle| self.feeds[feed].handles.get(*handle)).copied().collect();
        let kept = self.oracle.sent(now, feed, call, &events);
        self.expect(kept);
        let account = self.oracle.account_of(feed);
        let answer = self.weather[account].answer(call.operation, &mut self.rng);
        self.meet_answer(answer);
        let mut hints = Hints::default();
        if self.weather[account] == Weather::Fitful && self.rng.random_bool(0.02) {
            let level = if self.rng.random_bool(0.5) { Level::Low } else { Level::Critical };
            let length = Duration::from_secs(self.rng.random_range(1..=300));
            hints.slow_down = Some(SlowDown { level, length });
            self.coverage.meet(Met::SlowDown);
        }
        let mut latency = || Duration::from_millis(self.rng.random_range(1..150));
        let (there, back) = (latency(), latency());
        self.coverage.requests += 1;
        self.trace.note(now, Step::Sent { feed, operation: call.operation, events, fate: answer });
        Exchange::new(now, answer, hints, there, back)
    }

    /// The agent hears an answer.
    pub(super) fn hear(
        &mut self,
        now: Duration,
        feed: usize,
        operation: Operation,
        sent_at: Duration,
        heard: Heard,
    ) {
        let met = self.oracle.heard(now, feed, operation, sent_at, &heard);
        if let Some(met) = met {
            self.coverage.meet(met);
        }
        self.trace.note(now, Step::Heard { feed, operation, status: heard.status, events: heard.events });
    }

    /// Gives the agent what is visible; now and then more than it asked for, or one item twice in the same batch.
    pub(super) fn lease(&mut self, feed: usize, now: Duration, max: u8) -> Lot {
        let [is_generous, repeats] = [(); 2].map(|()| self.faulty && self.rng.random_bool(0.02));
        let state = &mut self.feeds[feed];
        let mut lot = Lot::default();
        let n_lots = if is_generous { 3 } else { 1 };
        let received: Vec<_> = (0..n_lots).flat_map(|_| state.queue.receive(now, max.into())).collect();
        for (n, received) in received.into_iter().enumerate() {
            let Some(&event) = state.messages.get(&received.message) else { continue };
            for _ in 0..=usize::from(n == 0 && repeats) {
                lot.body.push(received.item.with_handle(&received.handle));
                lot.events.push(event);
            }
            if self.oracle.events.is_journaled(event) {
                self.coverage.meet(Met::Redelivered);
            }
            if self.oracle.events.is_deleted(event) {
                self.coverage.meet(Met::BackAfterCommit);
            }
            state.newest.insert(event, received.handle.clone());
            state.handles.insert(received.handle, event);
        }
        lot
    }

    /// Somebody else with the same app key takes items and does nothing with them.
    pub(super) fn stranger(&mut self, feed: usize, now: Duration) {
        let n_items = self.lease(feed, now, 10).events.len();
        if 0 < n_items {
            self.coverage.meet(Met::Stranger);
        }
        self.trace.note(now, Step::Stranger { feed, n_items });
    }

    /// A commit takes effect.
    ///
    /// # Errors
    /// The status of its refusal.
    pub(super) fn forget(&mut self, feed: usize, now: Duration, handles: &[&str]) -> Result<(), u16> {
        let state = &mut self.feeds[feed];
        for handle in handles {
            let event = state.handles.get(*handle);
            if state.poisoned.is_some() && state.poisoned == event.copied() {
                self.coverage.meet(Met::PoisonedCommit);
                return Err(400);
            }
            if event.and_then(|event| state.newest.get(event)).is_some_and(|newest| newest != handle) {
                self.coverage.meet(Met::StaleHandle);
            }
            if matches!(state.queue.judge(now, handle), Fate::Stale(_)) {
                return Err(400);
            }
        }
        for handle in handles {
            let Some(&event) = state.handles.get(*handle) else { continue };
            match state.queue.commit(now, handle) {
                Fate::Deleted(_) => {
                    self.trace.note(now, Step::Deleted { feed, event });
                    self.oracle.events.deleted(event);
                }
                Fate::Kept(_) => self.coverage.meet(Met::KeptDespiteCommit),
                Fate::Stale(_) | Fate::AlreadyGone | Fate::Foreign | Fate::Garbled => {}
            }
        }
        Ok(())
    }

    /// The event that a handle stands for.
    pub(super) fn event_of(&self, feed: usize, handle: &str) -> Option<u32> {
        self.feeds[feed].handles.get(handle).copied()
    }

    /// The newest event of a feed that was received, if any.
    pub(super) fn newest_event(&self, feed: usize) -> Option<u32> {
        self.feeds[feed].newest.keys().next_back().copied()
    }

    pub(super) fn set_visibility(&mut self, now: Duration, feed: usize, visibility: Duration) {
        let state = &mut self.feeds[feed];
        state.rules.visibility = visibility;
        state.queue.set_rules(state.rules);
        self.coverage.meet(Met::VisibilityChanged);
        self.trace.note(now, Step::Visibility { feed, visibility });
    }

    /// From now on all goes well.
    pub(super) fn end_faults(&mut self, now: Duration) {
        self.faulty = false;
        self.weather.fill(Weather::Calm);
        self.disks.clear();
        for feed in &mut self.feeds {
            feed.poisoned = None;
            feed.rules.oddities = Oddities::default();
            feed.queue.set_rules(feed.rules);
        }
        let last = self.noted_to;
        self.receivers.iter_mut().for_each(|receiver| receiver.end_faults(last));
        self.note_calm(now);
        self.trace.note(now, Step::FaultsEnd);
    }

    fn meet_answer(&mut self, answer: Answer) {
        let met = match answer {
            Answer::Good => return,
            // What a refusal means is met when it is heard.
            Answer::Refused { .. } => return,
            Answer::Cut => Met::Cut,
            Answer::TooLarge => Met::TooLarge,
            Answer::LostBefore => Met::LostBefore,
            Answer::LostAfter => Met::LostAfter,
            Answer::Hung => Met::Hung,
            Answer::Late(_) => Met::Late,
            Answer::Hollow => Met::Hollow,
        };
        self.coverage.meet(met);
    }
}

/// The item of an event; it tells its number.
fn item(number: u32, kind: Kind, now: Duration, rng: &mut StdRng) -> Item {
    if kind == Kind::WithoutHandle {
        return Item::new(&json!({ "n": number, "orderId": "x", "handle": null }));
    }
    let order_id = format!("{}-01", 1_100_000_000_000_u64 + u64::from(number) / 3);
    let changed = ORIGIN.saturating_add(now + Duration::from_micros(number.into())).unwrap_or(ORIGIN);
    let event = Event {
        order_id: &order_id,
        domain: "Fulfillment",
        state: STATES[rng.random_range(0..STATES.len())],
        last_state: None,
        last_change: changed,
        current_change: changed,
    };
    let mut item = if rng.random_bool(0.8) { event.from_workflow() } else { event.from_orders() };
    item["n"] = number.into();
    if kind == Kind::WithoutOrder {
        item["orderId"] = json!(null);
    }
    finish(item, Variety { odd_state: 0.02, extra_fields: 0.02 }, rng)
}
