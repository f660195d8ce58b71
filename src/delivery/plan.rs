//! Which event goes to a sink next, and what becomes of it then. Values only; time and jitter are arguments.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::config::Wanted;
use crate::journal::{DeliveryState, FailedAttempt, Heading, Settlement, Tries};
use crate::policy::backoff::Backoff;
use crate::policy::breaker::{self, Permit, Transition};
use crate::policy::health::{Fault, Health};

use super::lanes::{Lanes, Order, Waiting};
use super::ledger::Ledger;

/// Events taken ahead of the first that was never tried.
const AHEAD_MAX: usize = 1_000;

/// Events taken and not finished; more than this many that fail, and the sink waits for some to become dead letters.
const EVENTS_MAX: usize = 20_000;

/// Between two attempts at one event.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(600) };

/// How long a receiver is left alone at most that gets too much and does not say for how long.
const UNHINTED_MAX: Duration = Duration::from_secs(60);

/// All that one sink has before it.
#[derive(Debug)]
pub(super) struct Plan {
    wanted: Wanted,
    max_attempts: u32,
    lanes: Lanes,
    ledger: Ledger,
    health: Health,
    /// Events that failed and are not finished.
    n_failing: usize,
    /// Behind which place the journal may have pending deliveries that are not here.
    unloaded: Option<i64>,
}

/// An event that is being delivered.
#[derive(Debug)]
pub(super) struct InHand {
    event: Waiting,
    permit: Permit,
}

/// An attempt that failed, as far as the plan needs to know it.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) attempt: FailedAttempt,
    pub(super) fault: Fault,
    /// How long the receiver wants to be left alone.
    pub(super) retry_after: Option<Duration>,
    /// Whether it said that it gets too much.
    pub(super) is_throttled: bool,
}

/// What becomes of an event that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Consequence {
    pub(super) tries: Tries,
    pub(super) next: Next,
    pub(super) transition: Option<Transition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It goes again after this long.
    Retry(Duration),
    DeadLetter,
}

impl Plan {
    /// Goes on behind `seq`; what is pending in the journal is still to be [loaded](Plan::load).
    pub(super) fn new(seq: i64, wanted: Wanted, max_attempts: u32, breaker: breaker::Settings) -> Self {
        Self {
            wanted,
            max_attempts,
            lanes: Lanes::default(),
            ledger: Ledger::new(seq),
            health: Health::new(breaker),
            n_failing: 0,
            unloaded: Some(0),
        }
    }

    /// The journal may have deliveries that became pending without us.
    pub(super) fn reload(&mut self) {
        self.unloaded = Some(0);
    }

    /// Behind which place to load, where something is to be loaded and there is room for it.
    pub(super) fn to_load(&self) -> Option<i64> {
        self.unloaded.filter(|_| self.lanes.n_events() < EVENTS_MAX)
    }

    /// Adds what the journal has open; `is_last` where that was all of it.
    pub(super) fn load(&mut self, open: Vec<(Heading, DeliveryState)>, is_last: bool) {
        self.unloaded = open.last().map(|(heading, _)| heading.seq).filter(|_| !is_last);
        for (heading, state) in open {
            if self.ledger.is_unrecorded(heading.seq) {
                // What the journal says of it is out of date.
                continue;
            }
            self.ledger.knows(heading.seq);
            match state {
                DeliveryState::Pending(tries) => {
                    let tries = (0 < tries.failures).then(|| Box::new(tries));
                    let (order, has_failed) = (order(&heading), tries.is_some());
                    let is_new = self.lanes.add(Waiting { seq: heading.seq, order, tries, seen: None });
                    self.n_failing += usize::from(is_new && has_failed);
                }
                DeliveryState::Delivered | DeliveryState::Dead(_) => {}
            }
        }
    }

    /// Behind which place to take events and how many; `None` where there is no room. What is pending is loaded
    /// before, so that no event overtakes one of its order.
    pub(super) fn to_take(&self) -> Option<(i64, usize)> {
        let room = AHEAD_MAX
            .saturating_sub(self.ledger.n_untold())
            .min(EVENTS_MAX.saturating_sub(self.lanes.n_events()));
        (self.unloaded.is_none() && 0 < room).then_some((self.ledger.taken_to(), room))
    }

    /// Takes events in journal order.
    pub(super) fn take(&mut self, headings: Vec<Heading>) {
        for heading in headings {
            let (seq, order) = (heading.seq, order(&heading));
            if !self.ledger.take(seq, self.wanted.wants(&heading.account, &heading.state)) {
                continue;
            }
            if self.lanes.is_held_up(order) {
                self.ledger.wait([seq]);
            }
            self.lanes.add(Waiting { seq, order, tries: None, seen: None });
        }
    }

    /// Takes the next event into hand, or says when to ask again; `None` where nothing waits.
    ///
    /// # Errors
    /// None may go at `now`.
    pub(super) fn next(&mut self, now: Instant) -> Result<InHand, Option<Instant>> {
        if !self.lanes.has_next(now) {
            return Err(self.lanes.next_due());
        }
        let permit = self.health.try_acquire(now).map_err(|wait| now.checked_add(wait))?;
        let event = if permit.is_trial() { self.lanes.next_trial(now) } else { self.lanes.next(now) };
        match event {
            Some(event) => Ok(InHand { event, permit }),
            None => {
                self.health.not_tried(permit, now);
                Err(None)
            }
        }
    }

    pub(super) fn delivered(&mut self, in_hand: InHand, now: Instant) -> Option<Transition> {
        let InHand { event, permit } = in_hand;
        self.n_failing -= usize::from(event.tries.is_some());
        self.ledger.is(event.seq, DeliveryState::Delivered);
        self.lanes.done(event.order);
        self.health.succeeded(permit, event.order, now)
    }

    /// Decides with `jitter` from 0 up to 1.
    pub(super) fn refused(
        &mut self,
        in_hand: InHand,
        failed: Failed,
        now: Instant,
        jitter: f64,
    ) -> Consequence {
        let InHand { mut event, permit } = in_hand;
        let counts = self.health.counts(event.order, failed.fault, event.seen);
        self.n_failing += usize::from(event.tries.is_none());
        let mut tries = event.tries.take().map(|tries| *tries).unwrap_or_default();
        tries.failures = tries.failures.saturating_add(1);
        tries.attempts = tries.attempts.saturating_add(u32::from(counts));
        tries.last = Some(failed.attempt);
        let delay = BACKOFF.delay(tries.failures, jitter).max(failed.retry_after.unwrap_or_default());
        if failed.is_throttled || failed.retry_after.is_some() {
            self.health.keep_quiet(now, failed.retry_after.unwrap_or(delay.min(UNHINTED_MAX)));
        }
        event.seen = Some(self.health.n_successes());
        let transition = self.health.failed(permit, event.order, now);
        let next = if counts && self.max_attempts <= tries.attempts {
            self.n_failing -= 1;
            self.ledger.is(event.seq, DeliveryState::Dead(tries.clone()));
            self.lanes.done(event.order);
            Next::DeadLetter
        } else {
            self.ledger.is(event.seq, DeliveryState::Pending(tries.clone()));
            event.tries = Some(Box::new(tries.clone()));
            let behind = self.lanes.failed(event, now.checked_add(delay).unwrap_or(now));
            self.ledger.wait(behind);
            Next::Retry(delay)
        };
        Consequence { tries, next, transition }
    }

    /// Takes an event back that was not tried.
    pub(super) fn not_tried(&mut self, in_hand: InHand, now: Instant) {
        self.health.not_tried(in_hand.permit, now);
        self.lanes.put_back(in_hand.event);
    }

    /// Leaves the sink alone for so long, as a receiver asked for before a restart.
    pub(super) fn keep_quiet(&mut self, now: Instant, wait: Duration) {
        self.health.keep_quiet(now, wait);
    }

    /// How long the sink is left alone because its receiver wants it.
    pub(super) fn quiet_for(&self, now: Instant) -> Duration {
        self.health.quiet_for(now)
    }

    /// How many events have failed and are not finished.
    pub(super) fn n_failing(&self) -> usize {
        self.n_failing
    }

    /// See [`Ledger::settlement`].
    pub(super) fn settlement(&self) -> Option<Settlement> {
        self.ledger.settlement()
    }

    /// See [`Ledger::recorded`].
    pub(super) fn recorded(&mut self, settlement: &Settlement) {
        self.ledger.recorded(settlement);
    }
}

impl InHand {
    pub(super) fn seq(&self) -> i64 {
        self.event.seq
    }
}

fn order(heading: &Heading) -> Order {
    let mut hasher = DefaultHasher::new();
    (&heading.account, &heading.order_id).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
