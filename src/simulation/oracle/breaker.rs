//! The breaker of a receiver, as far as it is known from outside: where attempts do not overlap.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::policy::breaker;
use crate::simulation::coverage::Met;

pub(super) struct BreakerBook {
    settings: breaker::Settings,
    /// Orders that failed since the last success.
    failing: BTreeSet<usize>,
    state: State,
}

enum State {
    Closed,
    /// Nothing until then; after it one trial at a time.
    Open {
        until: Duration,
        n_successes: u32,
    },
}

impl BreakerBook {
    pub(super) fn new(settings: breaker::Settings) -> Self {
        Self { settings, failing: BTreeSet::new(), state: State::Closed }
    }

    pub(super) fn begun(&self, now: Duration) -> Result<(), String> {
        match self.state {
            State::Open { until, .. } if now < until => {
                Err(format!("is tried {:?} before the breaker's trial", until - now))
            }
            State::Open { .. } | State::Closed => Ok(()),
        }
    }

    pub(super) fn succeeded(&mut self) -> Option<Met> {
        self.failing.clear();
        match &mut self.state {
            State::Open { n_successes, .. } => *n_successes += 1,
            State::Closed => return None,
        }
        let is_over =
            matches!(self.state, State::Open { n_successes, .. } if self.settings.successes <= n_successes);
        is_over.then(|| {
            self.state = State::Closed;
            Met::BreakerClosed
        })
    }

    pub(super) fn failed(&mut self, now: Duration, order: usize) -> Option<Met> {
        self.failing.insert(order);
        let is_trial = matches!(self.state, State::Open { .. });
        let opens = is_trial || self.settings.failures as usize <= self.failing.len();
        if opens {
            self.failing.clear();
            self.state = State::Open { until: now + self.settings.recovery, n_successes: 0 };
        }
        (opens && !is_trial).then_some(Met::BreakerOpened)
    }
}
