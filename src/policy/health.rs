//! How a sink that takes event by event is doing, and whether a failure is the event's or the sink's.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::breaker::{Breaker, Permit, Settings, Transition, Verdict};

/// Whom a failed attempt may speak against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The sink alone: it could not be reached, or asked for time.
    Sink,
    /// The event or the sink; what became of other orders tells.
    Unclear,
}

/// What attempts have shown of a sink. Orders are numbers here, equal for equal orders.
#[derive(Debug)]
pub struct Health {
    breaker: Breaker,
    /// Which orders failed since the last success. One order that fails again and again says nothing of the sink.
    failing: HashSet<u64>,
    n_successes: u64,
    /// Successes by their number.
    successes: Latest<u64>,
    /// Whether it went well.
    results: Latest<bool>,
    quiet_until: Option<Instant>,
}

/// The last of something by order, and the last one of another order than that.
#[derive(Debug, Clone, Copy)]
struct Latest<T> {
    last: Option<(u64, T)>,
    before: Option<(u64, T)>,
}

impl<T: Copy> Latest<T> {
    const NONE: Self = Self { last: None, before: None };

    fn note(&mut self, order: u64, what: T) {
        if self.last.is_some_and(|(last, _)| last != order) {
            self.before = self.last;
        }
        self.last = Some((order, what));
    }

    fn of_another_than(&self, order: u64) -> Option<T> {
        let of_another = self.last.filter(|(last, _)| *last != order).or(self.before);
        of_another.map(|(_, what)| what)
    }
}

impl Health {
    /// Nothing is known yet.
    pub fn new(breaker: Settings) -> Self {
        Self {
            breaker: Breaker::new(breaker),
            failing: HashSet::new(),
            n_successes: 0,
            successes: Latest::NONE,
            results: Latest::NONE,
            quiet_until: None,
        }
    }

    /// Lets one attempt pass at `now`, or answers how long to wait before asking again.
    ///
    /// # Errors
    /// The wait, never zero.
    pub fn try_acquire(&mut self, now: Instant) -> Result<Permit, Duration> {
        let left = self.quiet_for(now);
        if !left.is_zero() {
            return Err(left);
        }
        self.breaker.try_acquire(now)
    }

    /// Lets nobody pass for `wait` from `now`; never shortens what was asked before.
    pub fn keep_quiet(&mut self, now: Instant, wait: Duration) {
        let until = now.checked_add(wait);
        self.quiet_until = self.quiet_until.max(until);
    }

    /// How long nobody may pass, as far as that was asked for.
    pub fn quiet_for(&self, now: Instant) -> Duration {
        self.quiet_until.map(|until| until.saturating_duration_since(now)).unwrap_or_default()
    }

    /// How many deliveries went well so far.
    pub fn n_successes(&self) -> u64 {
        self.n_successes
    }

    /// Whether a failed attempt at an event of `order` counts against the event: only if the sink takes others.
    /// `seen` is [`Health::n_successes`] as it was at the event's last attempt; an earlier event of its own order, a dead
    /// letter that was retried, may have gone well since. For a first attempt the last that is known of another order
    /// decides.
    pub fn counts(&self, order: u64, fault: Fault, seen: Option<u64>) -> bool {
        match (fault, seen) {
            (Fault::Sink, _) => false,
            (Fault::Unclear, Some(seen)) => {
                self.successes.of_another_than(order).is_some_and(|nth| seen < nth)
            }
            (Fault::Unclear, None) => self.results.of_another_than(order).unwrap_or(false),
        }
    }

    pub fn succeeded(&mut self, permit: Permit, order: u64, now: Instant) -> Option<Transition> {
        self.n_successes += 1;
        self.successes.note(order, self.n_successes);
        self.failing.clear();
        self.results.note(order, true);
        self.breaker.settle(permit, now, Verdict::Success)
    }

    /// Several different orders that fail in a row open the breaker.
    pub fn failed(&mut self, permit: Permit, order: u64, now: Instant) -> Option<Transition> {
        let is_another = self.failing.insert(order);
        self.results.note(order, false);
        // The one trial of a breaker that is half open decides, whoever's it is.
        let decides = is_another || permit.is_trial();
        let transition =
            self.breaker.settle(permit, now, if decides { Verdict::Failure } else { Verdict::Neutral });
        if transition.is_some() {
            self.failing.clear();
        }
        transition
    }

    /// Takes back the permit of an attempt that was not made.
    pub fn not_tried(&mut self, permit: Permit, now: Instant) {
        self.breaker.settle(permit, now, Verdict::Neutral);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::start;

    const SETTINGS: Settings = Settings { failures: 3, recovery: Duration::from_secs(30), successes: 2 };

    fn attempt(health: &mut Health, now: Instant, order: u64, went_well: bool) -> Option<Transition> {
        let permit = health.try_acquire(now).expect("a permit");
        if went_well { health.succeeded(permit, order, now) } else { health.failed(permit, order, now) }
    }

    #[test]
    fn several_orders_that_fail_in_a_row_open_the_breaker_and_one_order_never_does() {
        let now = start();
        for (results, opens) in [
            (&[(1, false), (2, false), (3, false)][..], true),
            (&[(1, false), (2, false), (1, false), (2, false), (1, false)], false),
            (&[(1, false), (2, false), (4, true), (3, false), (1, false)], false),
            (&[(1, false), (2, false), (1, false), (3, false)], true),
        ] {
            let mut health = Health::new(SETTINGS);
            let last = results.iter().map(|(order, ok)| attempt(&mut health, now, *order, *ok)).last();
            assert_eq!(last, Some(opens.then_some(Transition::Opened)), "{results:?}");
        }
    }

    #[test]
    fn the_trial_of_an_open_breaker_decides_also_when_its_order_failed_before() {
        let (mut health, mut now) = (Health::new(SETTINGS), start());
        for order in 1..=3 {
            attempt(&mut health, now, order, false);
        }
        assert_eq!(health.try_acquire(now), Err(SETTINGS.recovery));
        for _ in 0..3 {
            now += SETTINGS.recovery;
            assert_eq!(attempt(&mut health, now, 1, false), Some(Transition::Opened));
        }
        now += SETTINGS.recovery;
        assert_eq!(attempt(&mut health, now, 1, true), None);
        assert_eq!(attempt(&mut health, now, 1, false), Some(Transition::Opened));
        now += SETTINGS.recovery;
        assert_eq!(attempt(&mut health, now, 1, true), None);
        assert_eq!(attempt(&mut health, now, 2, true), Some(Transition::Closed));
    }

    #[test]
    fn an_attempt_counts_only_if_another_order_went_well_in_between() {
        let (mut health, now) = (Health::new(SETTINGS), start());
        // Nothing is known of the sink: it may be down.
        assert!(!health.counts(1, Fault::Unclear, None));
        attempt(&mut health, now, 1, true);
        assert!(!health.counts(1, Fault::Unclear, None), "its own success says nothing of the others");
        attempt(&mut health, now, 2, true);
        assert!(health.counts(1, Fault::Unclear, None));
        assert!(!health.counts(1, Fault::Sink, None));
        attempt(&mut health, now, 1, false);
        assert!(health.counts(1, Fault::Unclear, None));
        assert!(!health.counts(3, Fault::Unclear, None), "order 1 failed last");
        let seen = health.n_successes();
        assert!(!health.counts(1, Fault::Unclear, Some(seen)));
        attempt(&mut health, now, 2, false);
        assert!(!health.counts(1, Fault::Unclear, Some(seen)));
        attempt(&mut health, now, 3, true);
        assert!(health.counts(1, Fault::Unclear, Some(seen)));
        assert!(!health.counts(1, Fault::Sink, Some(seen)));
    }

    #[test]
    fn a_retried_event_of_the_same_order_that_goes_well_says_nothing_of_the_others() {
        let (mut health, now) = (Health::new(SETTINGS), start());
        attempt(&mut health, now, 2, true);
        attempt(&mut health, now, 1, false);
        let seen = health.n_successes();
        attempt(&mut health, now, 1, true);
        assert!(!health.counts(1, Fault::Unclear, Some(seen)));
        attempt(&mut health, now, 2, true);
        attempt(&mut health, now, 1, true);
        assert!(health.counts(1, Fault::Unclear, Some(seen)));
    }

    #[test]
    fn a_wait_that_was_asked_for_is_kept_and_never_shortened() {
        let (mut health, now) = (Health::new(SETTINGS), start());
        health.keep_quiet(now, Duration::from_secs(60));
        health.keep_quiet(now, Duration::from_secs(5));
        assert_eq!(health.try_acquire(now), Err(Duration::from_secs(60)));
        assert_eq!(health.try_acquire(now + Duration::from_secs(59)), Err(Duration::from_secs(1)));
        assert!(health.try_acquire(now + Duration::from_secs(60)).is_ok());
    }
}
