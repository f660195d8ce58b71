//! The events of each order one after another, different orders side by side. Values only; time is an argument.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use crate::journal::Tries;

/// Which order an event belongs to. Two orders that share a number by chance wait for each other, nothing worse.
pub(super) type Order = u64;

/// An event that is to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) seq: i64,
    pub(super) order: Order,
    /// `None` before the first failure; apart, since most events never have one.
    pub(super) tries: Option<Box<Tries>>,
    /// How many deliveries of the sink had gone well at the last attempt.
    pub(super) seen: Option<u64>,
}

/// Every event that is taken and not finished, by order.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: HashMap<Order, Lane>,
    /// The first place of each lane that may go now.
    ready: BTreeSet<(i64, Order)>,
    /// When a lane may go that waits after a failure.
    later: BTreeSet<(Instant, Order)>,
    n_events: usize,
}

#[derive(Debug)]
struct Lane {
    /// In journal order; without the one in hand.
    events: VecDeque<Waiting>,
    turn: Turn,
    /// Its first event has failed and is not finished.
    is_held_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Listed in `ready` under this place.
    Ready(i64),
    Later(Instant),
    /// Its first event, of this place, is in hand.
    InHand(i64),
}

impl Lanes {
    /// How many events there are, those in hand included.
    pub(super) fn n_events(&self) -> usize {
        self.n_events
    }

    /// Adds an event in its place; returns whether it was not there.
    pub(super) fn add(&mut self, event: Waiting) -> bool {
        let (seq, order) = (event.seq, event.order);
        let lane = self.lanes.entry(order).or_insert_with(|| {
            self.ready.insert((seq, order));
            Lane { events: VecDeque::with_capacity(1), turn: Turn::Ready(seq), is_held_up: false }
        });
        if lane.turn == Turn::InHand(seq) {
            return false;
        }
        let Err(place) = lane.events.binary_search_by_key(&seq, |waiting| waiting.seq) else { return false };
        lane.is_held_up |= event.tries.is_some();
        lane.events.insert(place, event);
        self.n_events += 1;
        if let (0, Turn::Ready(first)) = (place, lane.turn) {
            self.ready.remove(&(first, order));
            self.ready.insert((seq, order));
            lane.turn = Turn::Ready(seq);
        }
        true
    }

    /// Whether the events of an order wait for one that failed.
    pub(super) fn is_held_up(&self, order: Order) -> bool {
        self.lanes.get(&order).is_some_and(|lane| lane.is_held_up)
    }

    /// Whether there is an event that may go at `now`.
    pub(super) fn has_next(&self, now: Instant) -> bool {
        !self.ready.is_empty() || self.next_due().is_some_and(|due| due <= now)
    }

    /// Takes the earliest event into hand that may go at `now`. It goes back by [`Lanes::done`] or
    /// [`Lanes::failed`]; until then its order waits.
    pub(super) fn next(&mut self, now: Instant) -> Option<Waiting> {
        self.wake(now);
        let (_, order) = self.ready.pop_first()?;
        self.take_first(order)
    }

    /// The same for the one trial of a sink that may be down: takes the event that failed least. Those that are always
    /// refused would else, being early, use up every trial.
    pub(super) fn next_trial(&mut self, now: Instant) -> Option<Waiting> {
        self.wake(now);
        let (seq, order) =
            self.ready.iter().copied().min_by_key(|(seq, order)| (self.n_failures(*order), *seq))?;
        self.ready.remove(&(seq, order));
        self.take_first(order)
    }

    /// When the next order may go that waits after a failure; `None` where none does.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(due, _)| *due)
    }

    /// The event in hand is finished: the next of its order may go.
    pub(super) fn done(&mut self, order: Order) {
        self.n_events = self.n_events.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(&order) {
            lane.is_held_up = false;
        }
        self.make_ready(order);
    }

    /// The event in hand goes back and may go again at `due`; returns the places that wait behind it.
    pub(super) fn failed(&mut self, event: Waiting, due: Instant) -> Vec<i64> {
        let order = event.order;
        let Some(lane) = self.lanes.get_mut(&order) else { return Vec::new() };
        // One of an earlier place may have come meanwhile: it goes first.
        let place = lane.events.partition_point(|waiting| waiting.seq < event.seq);
        lane.events.insert(place, event);
        lane.is_held_up = true;
        lane.turn = Turn::Later(due);
        self.later.insert((due, order));
        lane.events.iter().skip(place + 1).map(|waiting| waiting.seq).collect()
    }

    /// The event in hand goes back as it was.
    pub(super) fn put_back(&mut self, event: Waiting) {
        let order = event.order;
        if let Some(lane) = self.lanes.get_mut(&order) {
            let place = lane.events.partition_point(|waiting| waiting.seq < event.seq);
            lane.events.insert(place, event);
        }
        self.make_ready(order);
    }

    /// Makes those ready whose wait is over.
    fn wake(&mut self, now: Instant) {
        while let Some((due, order)) = self.later.first().copied()
            && due <= now
        {
            self.later.pop_first();
            self.make_ready(order);
        }
    }

    fn take_first(&mut self, order: Order) -> Option<Waiting> {
        let lane = self.lanes.get_mut(&order)?;
        let event = lane.events.pop_front()?;
        lane.turn = Turn::InHand(event.seq);
        Some(event)
    }

    /// Of the first event of an order.
    fn n_failures(&self, order: Order) -> u32 {
        let first = self.lanes.get(&order).and_then(|lane| lane.events.front());
        first.and_then(|event| event.tries.as_ref()).map_or(0, |tries| tries.failures)
    }

    fn make_ready(&mut self, order: Order) {
        let Some(lane) = self.lanes.get_mut(&order) else { return };
        match lane.events.front() {
            Some(first) => {
                lane.turn = Turn::Ready(first.seq);
                self.ready.insert((first.seq, order));
            }
            None => {
                self.lanes.remove(&order);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn event(seq: i64, order: Order) -> Waiting {
        Waiting { seq, order, tries: None, seen: None }
    }

    fn lanes(events: &[(i64, Order)]) -> Lanes {
        let mut lanes = Lanes::default();
        for (seq, order) in events {
            assert!(lanes.add(event(*seq, *order)));
        }
        lanes
    }

    fn start() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    #[test]
    fn an_order_has_one_event_in_hand_and_others_go_beside_it() {
        let (mut lanes, now) = (lanes(&[(1, 7), (2, 7), (3, 8), (4, 9), (5, 8)]), start());
        let in_hand: Vec<i64> = std::iter::from_fn(|| lanes.next(now)).map(|event| event.seq).collect();
        assert_eq!(in_hand, [1, 3, 4]);
        lanes.done(8);
        assert_eq!(lanes.next(now), Some(event(5, 8)));
        lanes.done(7);
        assert_eq!(lanes.next(now), Some(event(2, 7)));
        for order in [7, 8, 9] {
            lanes.done(order);
        }
        assert_eq!((lanes.n_events(), lanes.lanes.len(), lanes.next(now)), (0, 0, None));
    }

    #[test]
    fn a_failed_event_holds_up_its_order_and_nobody_else() {
        let (mut lanes, now) = (lanes(&[(1, 7), (2, 7), (3, 8)]), start());
        let due = now + Duration::from_secs(1);
        let first = lanes.next(now).unwrap();
        assert_eq!(lanes.failed(first, due), [2]);
        assert!(lanes.is_held_up(7) && !lanes.is_held_up(8));
        assert_eq!(lanes.next(now), Some(event(3, 8)));
        assert_eq!((lanes.next(now), lanes.next_due()), (None, Some(due)));
        assert_eq!(lanes.next(due), Some(event(1, 7)));
        assert_eq!(lanes.next_due(), None);
    }

    #[test]
    fn an_earlier_event_that_comes_late_goes_first_but_never_beside_another_of_its_order() {
        let (mut lanes, now) = (lanes(&[(5, 7), (6, 7)]), start());
        assert!(lanes.add(event(4, 7)));
        assert_eq!(lanes.next(now), Some(event(4, 7)));
        assert!(lanes.add(event(3, 7)), "while one is in hand");
        assert!(!lanes.add(event(4, 7)) && !lanes.add(event(3, 7)), "each is there once");
        assert_eq!(lanes.next(now), None);
        lanes.failed(event(4, 7), now);
        assert_eq!(lanes.next(now), Some(event(3, 7)));
        lanes.done(7);
        assert_eq!(lanes.next(now), Some(event(4, 7)));
    }
}
