//! The plan against a journal in memory, with restarts at any moment.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const BREAKER: breaker::Settings =
    breaker::Settings { failures: 5, recovery: Duration::from_secs(30), successes: 3 };

fn start() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn heading(seq: i64, order_id: u64) -> Heading {
    Heading { seq, account: "store".into(), order_id: order_id.to_string(), state: "handling".into() }
}

fn failed(fault: Fault) -> Failed {
    let attempt = FailedAttempt { at: Timestamp::UNIX_EPOCH, reason: "refused".into(), answer: None };
    Failed { attempt, fault, retry_after: None, is_throttled: false }
}

/// A plan that has loaded all there is.
fn plan(max_attempts: u32, headings: &[Heading]) -> Plan {
    let mut plan = Plan::new(0, Wanted::default(), max_attempts, BREAKER);
    plan.load(Vec::new(), true);
    plan.take(headings.to_vec());
    plan
}

fn deliver(plan: &mut Plan, now: Instant) -> i64 {
    let in_hand = plan.next(now).unwrap();
    let seq = in_hand.seq();
    plan.delivered(in_hand, now);
    seq
}

#[test]
fn an_event_that_is_always_refused_is_set_aside_after_its_attempts_and_its_order_goes_on() {
    let orders: Vec<Heading> = [heading(1, 7), heading(2, 7)]
        .into_iter()
        .chain((3..=9).map(|seq| heading(seq, seq as u64)))
        .collect();
    let (mut plan, mut now) = (plan(3, &orders), start());
    let mut in_hand = plan.next(now).unwrap();
    let mut attempts = Vec::new();
    loop {
        // Another order goes well before each attempt ends.
        deliver(&mut plan, now);
        let consequence = plan.refused(in_hand, failed(Fault::Unclear), now, 0.5);
        attempts.push(consequence.tries.attempts);
        match consequence.next {
            Next::Retry(wait) => now += wait,
            Next::DeadLetter => break,
        }
        in_hand = plan.next(now).unwrap();
        assert_eq!(in_hand.seq(), 1);
    }
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(deliver(&mut plan, now), 2, "the order goes on");
    let states: HashMap<i64, DeliveryState> = plan.settlement().unwrap().states.into_iter().collect();
    assert!(matches!(&states[&1], DeliveryState::Dead(tries) if tries.attempts == 3 && tries.failures == 3));
}

#[test]
fn a_sink_that_takes_nothing_uses_up_nobodys_attempts() {
    for fault in [Fault::Sink, Fault::Unclear] {
        let orders: Vec<Heading> = (1..=50).map(|seq| heading(seq, seq as u64 % 10)).collect();
        let (mut plan, mut now) = (plan(1, &orders), start());
        for n_tried in 0..200 {
            let in_hand = match plan.next(now) {
                Ok(in_hand) => in_hand,
                Err(again_at) => {
                    now = again_at.unwrap();
                    continue;
                }
            };
            let consequence = plan.refused(in_hand, failed(fault), now, 0.5);
            assert_eq!(consequence.tries.attempts, 0, "attempt {n_tried}");
            assert!(matches!(consequence.next, Next::Retry(_)));
        }
        assert!(start() + Duration::from_secs(1_000) < now, "the breaker lets few through");
    }
}

#[test]
fn events_that_are_always_refused_do_not_keep_the_others_from_being_tried() {
    let orders: Vec<Heading> = (1..=80).map(|seq| heading(seq, seq as u64)).collect();
    let (mut plan, mut now, mut n_delivered) = (plan(20, &orders), start(), 0);
    while n_delivered < 40 {
        assert!(now < start() + Duration::from_secs(3_600), "{n_delivered} delivered in an hour");
        match plan.next(now) {
            Ok(in_hand) if in_hand.seq() <= 40 => {
                plan.refused(in_hand, failed(Fault::Unclear), now, 0.5);
            }
            Ok(in_hand) => {
                plan.delivered(in_hand, now);
                n_delivered += 1;
            }
            Err(again_at) => now = again_at.unwrap(),
        }
    }
}

#[test]
fn what_is_delivered_and_not_recorded_yet_is_not_loaded_again() {
    let (mut plan, mut now) = (plan(20, &[heading(1, 1)]), start());
    let in_hand = plan.next(now).unwrap();
    plan.refused(in_hand, failed(Fault::Unclear), now, 0.5);
    let settlement = plan.settlement().unwrap();
    plan.recorded(&settlement);
    now += Duration::from_secs(1);
    assert_eq!(deliver(&mut plan, now), 1);
    // Another process writes just now; the journal still has it as pending.
    plan.reload();
    plan.load(vec![(heading(1, 1), settlement.states[0].1.clone())], true);
    assert!(plan.next(now).is_err());
}

#[test]
fn a_receiver_that_asks_for_time_is_left_alone_by_all_orders() {
    let (mut plan, now) = (plan(20, &[heading(1, 1), heading(2, 2)]), start());
    let in_hand = plan.next(now).unwrap();
    let hint = Some(Duration::from_secs(90));
    let consequence = plan.refused(in_hand, Failed { retry_after: hint, ..failed(Fault::Unclear) }, now, 0.5);
    assert_eq!(consequence.next, Next::Retry(Duration::from_secs(90)));
    assert_eq!(plan.next(now).unwrap_err(), Some(now + Duration::from_secs(90)));
    assert_eq!(deliver(&mut plan, now + Duration::from_secs(90)), 1);
}

#[test]
fn taking_stops_where_there_is_no_room_and_goes_on_behind_what_was_taken() {
    let headings: Vec<Heading> = (1..=AHEAD_MAX as i64).map(|seq| heading(seq, seq as u64)).collect();
    let (mut plan, now) = (plan(20, &headings), start());
    assert_eq!(plan.to_take(), None);
    deliver(&mut plan, now);
    assert_eq!(plan.to_take(), Some((AHEAD_MAX as i64, 1)));
    plan.reload();
    assert_eq!((plan.to_load(), plan.to_take()), (Some(0), None), "what is pending comes first");
}

/// What the journal of one sink would hold.
#[derive(Default)]
struct Kept {
    seq: i64,
    states: BTreeMap<i64, DeliveryState>,
}

impl Kept {
    fn settle(&mut self, settlement: &Settlement) {
        self.seq = settlement.seq;
        self.states.extend(settlement.states.iter().cloned());
        self.states.retain(|seq, state| *state != DeliveryState::Delivered || settlement.seq < *seq);
    }

    fn open(&self, orders: &[u64]) -> Vec<(Heading, DeliveryState)> {
        let open = self.states.iter().filter(|(_, state)| !matches!(state, DeliveryState::Dead(_)));
        open.map(|(seq, state)| (heading(*seq, orders[*seq as usize - 1]), state.clone())).collect()
    }
}

/// One sink's life with refusals, restarts without warning and retried dead letters.
struct Life {
    rng: StdRng,
    orders: Vec<u64>,
    kept: Kept,
    now: Instant,
    /// Which events the receiver took, in order, and which of them were recorded since.
    taken: Vec<i64>,
    in_hand: Vec<InHand>,
    /// Taken by the receiver, not recorded: these may come twice.
    unrecorded: Vec<i64>,
}

impl Life {
    fn begin(&mut self) -> Plan {
        // Whatever was in hand may have arrived or not.
        let mut plan = Plan::new(self.kept.seq, Wanted::default(), 2, BREAKER);
        plan.load(self.kept.open(&self.orders), true);
        self.in_hand.clear();
        plan
    }

    fn step(&mut self, plan: &mut Plan, seed: u64) {
        if let Some((seq, room)) = plan.to_take() {
            let end = self.orders.len().min(seq as usize + room.min(7));
            plan.take((seq as usize..end).map(|at| heading(at as i64 + 1, self.orders[at])).collect());
        }
        if let Some(settlement) = plan.settlement() {
            self.kept.settle(&settlement);
            plan.recorded(&settlement);
            let delivered = |seq: &i64| settlement.states.contains(&(*seq, DeliveryState::Delivered));
            self.unrecorded.retain(|seq| !delivered(seq));
        }
        if self.in_hand.len() < 4 {
            match plan.next(self.now) {
                Ok(in_hand) => self.in_hand.push(in_hand),
                Err(again_at) if self.in_hand.is_empty() => {
                    self.now = again_at.unwrap_or(self.now + Duration::from_secs(1));
                }
                Err(_) => {}
            }
        }
        if self.in_hand.is_empty() || self.rng.random_bool(0.3) {
            return;
        }
        let in_hand = self.in_hand.swap_remove(self.rng.random_range(0..self.in_hand.len()));
        if self.rng.random_bool(0.2) {
            let fault = if self.rng.random_bool(0.3) { Fault::Sink } else { Fault::Unclear };
            plan.refused(in_hand, failed(fault), self.now, self.rng.random());
            return;
        }
        let (seq, order) = (in_hand.seq(), self.orders[in_hand.seq() as usize - 1]);
        let is_again = self.taken.contains(&seq);
        assert!(
            !is_again || self.unrecorded.contains(&seq),
            "seed {seed}: {seq} again though it was recorded"
        );
        let is_dead = |seq: &i64| matches!(self.kept.states.get(seq), Some(DeliveryState::Dead(_)));
        let mut before = (1..seq).filter(|seq| self.orders[*seq as usize - 1] == order);
        let overtaken = before.find(|seq| !self.taken.contains(seq) && !is_dead(seq));
        // A dead letter of this very round is not recorded yet; the plan's own settlement knows it.
        let dead_now = |seq: i64| {
            plan.settlement().is_some_and(|settlement| {
                settlement
                    .states
                    .iter()
                    .any(|(at, state)| *at == seq && matches!(state, DeliveryState::Dead(_)))
            })
        };
        assert!(overtaken.is_none_or(dead_now), "seed {seed}: {seq} overtakes {overtaken:?}");
        self.taken.push(seq);
        self.unrecorded.push(seq);
        plan.delivered(in_hand, self.now);
    }
}

#[test]
fn whatever_happens_each_event_is_delivered_in_the_order_of_its_order_or_set_aside() {
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let orders = (0..rng.random_range(1..60)).map(|_| rng.random_range(0..8)).collect();
        let mut life = Life {
            rng,
            orders,
            kept: Kept::default(),
            now: start(),
            taken: Vec::new(),
            in_hand: Vec::new(),
            unrecorded: Vec::new(),
        };
        let mut plan = life.begin();
        for _ in 0..400 {
            life.step(&mut plan, seed);
            if life.rng.random_bool(0.02) {
                plan = life.begin();
            }
        }
        // Then all goes well.
        for _ in 0..2_000 {
            while let Some((seq, _)) = plan.to_take()
                && (seq as usize) < life.orders.len()
            {
                let at = seq as usize;
                plan.take(vec![heading(at as i64 + 1, life.orders[at])]);
            }
            match life.in_hand.pop().map_or_else(|| plan.next(life.now), Ok) {
                Ok(in_hand) => {
                    life.taken.push(in_hand.seq());
                    plan.delivered(in_hand, life.now);
                }
                Err(Some(again_at)) => life.now = again_at,
                Err(None) => break,
            }
        }
        let settlement = plan.settlement();
        settlement.iter().for_each(|settlement| life.kept.settle(settlement));
        assert_eq!(life.kept.seq as usize, life.orders.len(), "seed {seed}");
        assert_eq!((plan.n_failing(), plan.lanes.n_events()), (0, 0), "seed {seed}");
        for seq in 1..=life.orders.len() as i64 {
            let state = life.kept.states.get(&seq);
            let is_dead = matches!(state, Some(DeliveryState::Dead(_)));
            assert!(is_dead || state.is_none(), "seed {seed}: {seq} is left {state:?}");
            assert!(is_dead || life.taken.contains(&seq), "seed {seed}: {seq} is lost");
        }
    }
}
