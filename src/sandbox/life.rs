//! Made-up purchases and the way of each of their orders through the workflow.
//!
//! A life is a value: it is asked what has changed until `now`. It starts in full swing, with orders in every state.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use jiff::SignedDuration;
use rand::RngExt;
use rand::rngs::StdRng;

use super::flow::{self, Flow, LONGEST, Step};
use super::items::happens;
use super::order_ids::{Naming, OrderIds};

/// What a life is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Habits {
    /// Events per second; 0 starts no order after the beginning.
    pub(super) rate: f64,
    /// Changes that have happened at the beginning, at least.
    pub(super) past: u64,
    /// Probability that an order enters a state once more before it goes on.
    pub(super) repeated_state: f64,
    pub(super) odd_order_ids: f64,
    /// Orders stay in `ready-for-handling` until [`Life::start_handling`].
    pub(super) wait_for_start_handling: bool,
}

/// One change of one order. Times count from the epoch of the world.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) at: SignedDuration,
    pub(super) order_id: Arc<str>,
    pub(super) domain: &'static str,
    pub(super) state: &'static str,
    pub(super) last_state: Option<&'static str>,
    pub(super) last_at: SignedDuration,
    /// The states before `state`, oldest first.
    pub(super) passed: Vec<&'static str>,
}

/// One order, as far as it has come.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) id: Arc<str>,
    /// Counts the orders of an account.
    pub(super) sequence: u64,
    pub(super) group: Arc<str>,
    pub(super) affiliate: Option<&'static str>,
    pub(super) flow: Flow,
    pub(super) purchased_at: SignedDuration,
    /// All steps, those to come included.
    steps: Vec<(SignedDuration, &'static str)>,
    /// How many steps are done.
    done: usize,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Life {
    rng: StdRng,
    habits: Habits,
    ids: OrderIds,
    /// By sequence.
    orders: BTreeMap<u64, Order>,
    by_id: BTreeMap<Arc<str>, u64>,
    next_sequence: u64,
    /// When the next step of an order is due, and which step that is; outdated where the order has another way now.
    due: BinaryHeap<Reverse<(SignedDuration, u64, usize)>>,
    next_purchase: Option<SignedDuration>,
}

/// An account remembers this many orders, the newest.
const MAX_ORDERS: usize = 300_000;
/// Where more orders would be under way, all gaps shrink in proportion.
const MAX_UNDER_WAY: f64 = 10_000.0;
/// Means over many purchases; a test holds them to what `flow` draws.
const EVENTS_PER_PURCHASE: f64 = 12.6;
const SECONDS_PER_ORDER: f64 = 10_000.0;
/// However low the rate, there is a purchase an hour.
const LONGEST_SPACING_S: f64 = 3_600.0;
/// The first sequence of a store.
const FIRST_SEQUENCE: u64 = 500_001;

impl Life {
    /// A life that has gone on for a while at `now`.
    pub(super) fn new(habits: Habits, now: SignedDuration, mut rng: StdRng) -> Self {
        let ids = OrderIds::new(habits.odd_order_ids, &mut rng);
        let mut life = Self {
            rng,
            habits,
            ids,
            orders: BTreeMap::new(),
            by_id: BTreeMap::new(),
            next_sequence: FIRST_SEQUENCE,
            due: BinaryHeap::new(),
            next_purchase: (habits.rate > 0.0).then(|| now + habits.spacing()),
        };
        life.begin(now);
        life
    }

    /// The next change that is due at `now`, if any; asked again and again it catches up.
    pub(super) fn next_change(&mut self, now: SignedDuration) -> Option<Change> {
        loop {
            let step = self.due.peek().map(|Reverse((at, ..))| *at);
            match self.next_purchase.filter(|at| *at <= now) {
                Some(at) if step.is_none_or(|step| at < step) => {
                    self.next_purchase = Some(at + self.habits.spacing());
                    let ways = self.draw_purchase(at);
                    self.open_orders(at, ways);
                }
                Some(_) | None => {
                    let Reverse((_, sequence, step)) =
                        self.due.peek().filter(|Reverse((at, ..))| *at <= now).copied()?;
                    self.due.pop();
                    if let Some(change) = self.take_step(sequence, step) {
                        return Some(change);
                    }
                }
            }
        }
    }

    /// The newest `n` changes that have happened, oldest first.
    pub(super) fn history(&self, n: u64) -> Vec<Change> {
        let done = |order: &Order| {
            (0..order.done).map(|step| (order.steps[step].0, order.sequence, step)).collect::<Vec<_>>()
        };
        let mut all: Vec<(SignedDuration, u64, usize)> = self.orders.values().flat_map(done).collect();
        all.sort_unstable();
        let surplus = all.len().saturating_sub(usize::try_from(n).unwrap_or(usize::MAX));
        all[surplus..]
            .iter()
            .filter_map(|(_, sequence, step)| Some(self.orders.get(sequence)?.change(*step)))
            .collect()
    }

    /// An order by its id or by `seq` and its sequence.
    pub(super) fn order(&self, id: &str) -> Option<&Order> {
        let by_sequence = || id.strip_prefix("seq")?.parse().ok();
        self.orders.get(&self.by_id.get(id).copied().or_else(by_sequence)?)
    }

    /// The newest orders first.
    pub(super) fn orders(&self) -> impl Iterator<Item = &Order> {
        self.orders.values().rev()
    }

    /// Starts the handling of an order that is ready for it; the two changes that this makes at once.
    pub(super) fn start_handling(&mut self, id: &str, now: SignedDuration) -> Option<[Change; 2]> {
        let sequence = self.order(id).filter(|order| order.state() == Some("ready-for-handling"))?.sequence;
        let order = self.orders.get_mut(&sequence)?;
        order.steps.truncate(order.done);
        let steps = flow::draw_handling(std::time::Duration::ZERO, &mut self.rng);
        order.steps.extend(self.habits.lay_out(now, &steps, &mut self.rng));
        let first = order.done;
        Some([self.take_step(sequence, first)?, self.take_step(sequence, first + 1)?])
    }

    /// Fills the past with purchases: so many that the changes asked for have happened, and that as many orders are
    /// under way as will be later on.
    fn begin(&mut self, now: SignedDuration) {
        let spacing = self.habits.spacing();
        let under_way = match self.next_purchase {
            Some(_) => SignedDuration::try_from(LONGEST).unwrap_or_default().mul_f64(self.habits.pace()),
            None => SignedDuration::ZERO,
        };
        let (mut happened, mut back, mut purchases) = (0, SignedDuration::ZERO, Vec::new());
        while happened < self.habits.past || back < under_way {
            back += spacing;
            let ways = self.draw_purchase(now - back);
            let new = ways.1.iter().flatten().filter(|(at, _)| *at <= now).count() as u64;
            let over = ways.1.iter().all(|way| way.last().is_none_or(|(at, _)| *at <= now));
            if happened < self.habits.past || !over {
                purchases.push((now - back, ways));
            }
            happened += new;
        }
        for (at, ways) in purchases.into_iter().rev() {
            self.open_orders(at, ways);
        }
        self.due.clear();
        for order in self.orders.values_mut() {
            order.done = order.steps.iter().take_while(|(at, _)| *at <= now).count();
            if let Some((at, _)) = order.steps.get(order.done).filter(|_| self.next_purchase.is_some()) {
                self.due.push(Reverse((*at, order.sequence, order.done)));
            }
        }
    }

    /// A purchase at `at`: mostly one order, one in eight is split between two or three sellers.
    fn draw_purchase(&mut self, at: SignedDuration) -> (Naming, Vec<Way>) {
        let naming = self.ids.draw(&mut self.rng);
        let parts = [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 3][self.rng.random_range(0..16)];
        let ways = (0..parts).map(|_| self.draw_way(naming.flow, at)).collect();
        (naming, ways)
    }

    fn draw_way(&mut self, flow: Flow, at: SignedDuration) -> Way {
        let mut steps = Vec::new();
        for step in flow::draw(flow, &mut self.rng) {
            if self.habits.wait_for_start_handling && step.state == "start-handling" {
                break;
            }
            let again = Step { after: step.after + std::time::Duration::from_secs(1), ..step };
            steps.push(step);
            if happens(self.habits.repeated_state, &mut self.rng) {
                steps.push(again);
            }
        }
        steps.sort_by_key(|step| step.after);
        self.habits.lay_out(at, &steps, &mut self.rng)
    }

    fn open_orders(&mut self, purchased_at: SignedDuration, (naming, ways): (Naming, Vec<Way>)) {
        let group: Arc<str> = naming.group.as_str().into();
        for (part, steps) in (1..).zip(ways) {
            let id: Arc<str> = format!("{group}-{part:02}").into();
            let sequence = self.next_sequence;
            self.next_sequence += 1;
            self.by_id.insert(Arc::clone(&id), sequence);
            if let Some((at, _)) = steps.first() {
                self.due.push(Reverse((*at, sequence, 0)));
            }
            let (group, affiliate, flow) = (Arc::clone(&group), naming.affiliate, naming.flow);
            let order = Order { id, sequence, group, affiliate, flow, purchased_at, steps, done: 0 };
            self.orders.insert(sequence, order);
        }
        while self.orders.len() > MAX_ORDERS {
            if let Some((_, oldest)) = self.orders.pop_first() {
                self.by_id.remove(&oldest.id);
            }
        }
    }

    /// Takes a step unless the order has taken it already, and makes the one after it due.
    fn take_step(&mut self, sequence: u64, step: usize) -> Option<Change> {
        let order =
            self.orders.get_mut(&sequence).filter(|order| order.done == step && step < order.steps.len())?;
        order.done += 1;
        if let Some((at, _)) = order.steps.get(order.done) {
            self.due.push(Reverse((*at, sequence, order.done)));
        }
        Some(order.change(step))
    }
}

impl Order {
    /// The state that it is in; none before its first step.
    pub(super) fn state(&self) -> Option<&'static str> {
        self.done.checked_sub(1).map(|last| self.steps[last].1)
    }

    /// When it entered `state`, if it did.
    pub(super) fn entered(&self, state: &str) -> Option<SignedDuration> {
        self.steps[..self.done].iter().find(|step| step.1 == state).map(|step| step.0)
    }

    pub(super) fn last_change(&self) -> SignedDuration {
        self.done.checked_sub(1).map_or(self.purchased_at, |last| self.steps[last].0)
    }

    fn change(&self, step: usize) -> Change {
        let (at, state) = self.steps[step];
        let last = step.checked_sub(1).map(|last| self.steps[last]);
        Change {
            at,
            order_id: Arc::clone(&self.id),
            domain: flow::domain(self.flow, state),
            state,
            last_state: last.map(|(_, state)| state),
            last_at: last.map_or(self.purchased_at, |(at, _)| at),
            passed: self.steps[..step].iter().map(|(_, state)| *state).collect(),
        }
    }
}

/// States and when they are entered, in order of time.
type Way = Vec<(SignedDuration, &'static str)>;

impl Habits {
    /// From one purchase to the next.
    fn spacing(&self) -> SignedDuration {
        if self.rate > 0.0 {
            let seconds = (EVENTS_PER_PURCHASE / self.rate).min(LONGEST_SPACING_S);
            return SignedDuration::try_from_secs_f64(seconds).unwrap_or_default();
        }
        // The changes of the past fit into a day, at most one purchase in 40 s.
        let purchases = (self.past as f64 / EVENTS_PER_PURCHASE).max(1.0);
        SignedDuration::try_from_secs_f64((86_400.0 / purchases).min(40.0)).unwrap_or_default()
    }

    /// What gaps are multiplied with.
    fn pace(&self) -> f64 {
        let under_way = self.rate / EVENTS_PER_PURCHASE * SECONDS_PER_ORDER;
        (MAX_UNDER_WAY / under_way.max(1.0)).min(1.0)
    }

    fn lay_out(&self, start: SignedDuration, steps: &[Step], rng: &mut StdRng) -> Way {
        let mut last = start;
        steps
            .iter()
            .map(|step| {
                let after = SignedDuration::try_from(step.after).unwrap_or_default().mul_f64(self.pace());
                last = last.max(ragged(start + after, rng));
                (last, step.state)
            })
            .collect()
    }
}

/// Cuts a time to a drawn number of fractional digits, 0–7, as the dates of VTEX have them.
fn ragged(at: SignedDuration, rng: &mut StdRng) -> SignedDuration {
    let unit = 10_i128.pow(9 - rng.random_range(0..=7));
    let nanos = at.as_nanos();
    SignedDuration::try_from_nanos_i128(nanos - nanos.rem_euclid(unit)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const HABITS: Habits = Habits {
        rate: 0.0,
        past: 0,
        repeated_state: 0.0,
        odd_order_ids: 0.0,
        wait_for_start_handling: false,
    };
    const NOW: SignedDuration = SignedDuration::from_secs(5);

    fn life(habits: Habits) -> Life {
        Life::new(habits, NOW, StdRng::seed_from_u64(1))
    }

    fn changes(life: &mut Life, until: SignedDuration) -> Vec<Change> {
        std::iter::from_fn(|| life.next_change(until)).collect()
    }

    #[test]
    fn the_constants_are_the_means_of_what_is_drawn() {
        let mut life = life(HABITS);
        let (mut events, mut seconds, mut orders) = (0, 0.0, 0);
        for _ in 0..4_000 {
            for way in life.draw_purchase(NOW).1 {
                events += way.len();
                seconds += (way.last().unwrap().0 - NOW).as_secs_f64();
                orders += 1;
            }
        }
        let (events, seconds) = (f64::from(events as u32) / 4_000.0, seconds / f64::from(orders));
        assert!((EVENTS_PER_PURCHASE - events).abs() < 0.2, "{events}");
        assert!((SECONDS_PER_ORDER - seconds).abs() < 500.0, "{seconds}");
    }

    #[test]
    fn the_past_holds_exactly_the_changes_asked_for_and_none_of_the_future() {
        for past in [0, 1, 100, 5_000] {
            let life = life(Habits { past, ..HABITS });
            let history = life.history(past);
            assert_eq!(history.len() as u64, past);
            assert!(
                history
                    .iter()
                    .all(|change| change.at <= NOW && change.at > NOW - SignedDuration::from_hours(40))
            );
            assert!(history.is_sorted_by_key(|change| change.at));
        }
    }

    #[test]
    fn without_a_rate_nothing_happens_any_more() {
        let mut life = life(Habits { past: 500, ..HABITS });
        assert_eq!(changes(&mut life, SignedDuration::from_hours(1_000)), []);
    }

    #[test]
    fn events_come_at_about_the_rate_from_the_first_minute_on() {
        for rate in [0.5, 20.0, 300.0] {
            let mut life = life(Habits { rate, ..HABITS });
            for minute in 1..=4 {
                let minutes = SignedDuration::from_mins(5 * minute);
                let n = changes(&mut life, NOW + minutes).len() as f64 / (300.0 * rate);
                assert!((0.7..1.3).contains(&n), "rate {rate}, part {minute}: {n} of what was asked for");
            }
            assert!(life.orders.len() < 60_000, "{}", life.orders.len());
        }
    }

    #[test]
    fn every_change_follows_the_one_before_it() {
        let mut life = life(Habits { rate: 20.0, repeated_state: 0.1, ..HABITS });
        let mut orders: BTreeMap<Arc<str>, Vec<Change>> = BTreeMap::new();
        for change in changes(&mut life, NOW + SignedDuration::from_hours(2)) {
            orders.entry(Arc::clone(&change.order_id)).or_default().push(change);
        }
        assert!(orders.len() > 5_000);
        let (mut repeats, mut parts) = (0, 0);
        for (id, changes) in &orders {
            parts += usize::from(id.ends_with("-02"));
            for pair in changes.windows(2) {
                assert_eq!(pair[1].last_state, Some(pair[0].state));
                assert_eq!(pair[1].last_at, pair[0].at);
                assert!(pair[0].at <= pair[1].at);
                assert_eq!(pair[1].passed.len(), pair[0].passed.len() + 1);
                repeats += usize::from(pair[0].state == pair[1].state);
            }
        }
        assert!(repeats > 100 && parts > 100, "{repeats} repeated states, {parts} split orders");
    }

    #[test]
    fn handling_starts_once_and_only_when_the_order_is_ready() {
        let mut life = life(Habits { past: 2_000, wait_for_start_handling: true, ..HABITS });
        let ready: Vec<Arc<str>> = life
            .orders()
            .filter(|order| order.state() == Some("ready-for-handling"))
            .map(|order| Arc::clone(&order.id))
            .collect();
        assert!(ready.len() > 50);
        let changes = life.start_handling(&ready[0], NOW).unwrap();
        assert_eq!(changes.each_ref().map(|change| change.state), ["start-handling", "handling"]);
        assert_eq!(changes[0].last_state, Some("ready-for-handling"));
        assert_eq!(life.order(&ready[0]).unwrap().state(), Some("handling"));
        assert_eq!(life.start_handling(&ready[0], NOW), None);
        let other =
            life.orders().find(|order| order.state() != Some("ready-for-handling")).unwrap().id.clone();
        assert_eq!(life.start_handling(&other, NOW), None);
        assert_eq!(life.start_handling("nobody", NOW), None);
        let later: Vec<_> =
            std::iter::from_fn(|| life.next_change(NOW + SignedDuration::from_hours(5))).collect();
        assert_eq!(later.iter().map(|change| change.state).collect::<Vec<_>>(), ["invoice", "invoiced"]);
    }

    #[test]
    fn an_order_is_found_by_id_and_by_sequence() {
        let life = life(Habits { past: 10, ..HABITS });
        let order = life.orders().next().unwrap();
        assert_eq!(life.order(&order.id).unwrap().sequence, order.sequence);
        assert_eq!(life.order(&format!("seq{}", order.sequence)).unwrap().id, order.id);
        assert!(life.order("seqx").is_none() && life.order("").is_none());
    }
}
