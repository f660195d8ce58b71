//! One attempt from the gate's side: the right to it, and what its answer changes.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Gate, State};
use crate::http::Hints;
use crate::observe::metrics::PauseReason;
use crate::policy::breaker::{self, Transition, Verdict};
use crate::policy::classify::{Class, verdict};

/// The right to one attempt. Dropping it unsettled says nothing about the server.
#[must_use]
pub struct Permit {
    pub(super) gate: Arc<Gate>,
    pub(super) breaker: Option<breaker::Permit>,
    pub sent_at: Instant,
}

/// How an attempt went, as far as the gate is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The feed that made it, for the log.
    pub account: &'a str,
    /// `None` for a success.
    pub failure: Option<Class>,
    pub hints: Hints,
    /// Whether a failure counts for the breaker: the parts of a split commit count once.
    pub counts: bool,
}

impl Permit {
    /// Takes note of how the attempt went. Where that closed the account, returns how long it is closed in all, to be
    /// stored: what was in force before may last longer.
    pub fn settle(mut self, attempt: Attempt<'_>) -> Option<Duration> {
        let now = Instant::now();
        let verdict = match verdict(attempt.failure) {
            Verdict::Failure if !attempt.counts => Verdict::Neutral,
            verdict @ (Verdict::Success | Verdict::Failure | Verdict::Neutral) => verdict,
        };
        let gate = Arc::clone(&self.gate);
        let mut state = gate.lock();
        let transition =
            self.breaker.take().and_then(|permit| state.breaker.settle(permit, now.into_std(), verdict));
        let begun = state.note(self.sent_at, now, attempt);
        let closed_for = state.pauses.wait(now.into_std());
        drop(state);
        gate.tell(attempt.account, transition, &begun);
        // Dropping the permit frees its lane.
        begun.pause.or(begun.hold).and(closed_for)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        if let Some(permit) = self.breaker.take() {
            state.breaker.settle(permit, Instant::now().into_std(), Verdict::Neutral);
        }
        state.n_running -= 1;
        drop(state);
        self.gate.changed.notify_waiters();
    }
}

/// What an attempt began.
#[derive(Default)]
struct Begun {
    pause: Option<Duration>,
    /// A Retry-After of another failure than a 429.
    hold: Option<Duration>,
    capped: bool,
    slowed: Option<Duration>,
}

impl State {
    fn note(&mut self, sent_at: Instant, now: Instant, attempt: Attempt<'_>) -> Begun {
        let (sent_at, now) = (sent_at.into_std(), now.into_std());
        let wait = attempt.hints.wait;
        let mut begun = Begun::default();
        match (attempt.failure, wait) {
            (Some(Class::Throttled), _) => {
                let hint = wait.map(|hint| hint.wait);
                begun.pause = self.pauses.throttled(sent_at, now, hint, self.rng.random());
            }
            (Some(_), Some(hint)) if !self.pauses.predates_pause(sent_at) => {
                self.pauses.hold(sent_at, now, hint.wait);
                begun.hold = Some(hint.wait);
            }
            (Some(_) | None, _) => {}
        }
        begun.capped = wait.is_some_and(|hint| hint.capped);
        if let Some(hint) = attempt.hints.slow_down
            && self.pace.slow_down(now, hint)
        {
            begun.slowed = Some(hint.level.spacing());
        }
        begun
    }
}

impl Gate {
    fn tell(&self, account: &str, transition: Option<Transition>, begun: &Begun) {
        let vtex_account = self.vtex_account.as_str();
        match transition {
            Some(Transition::Opened) => {
                warn!(
                    event = "circuit.opened",
                    account, vtex_account, "VTEX only fails; a trial comes later"
                );
            }
            Some(Transition::Closed) => {
                info!(event = "circuit.closed", account, vtex_account, "VTEX works again");
            }
            None => {}
        }
        for (length, reason) in
            [(begun.pause, PauseReason::TooManyRequests), (begun.hold, PauseReason::RetryAfter)]
        {
            if let Some(length) = length {
                self.metrics.paused(reason);
                warn!(
                    event = "rate_limit.paused",
                    account,
                    vtex_account,
                    wait_ms = length.as_millis() as u64,
                    reason = reason.name(),
                    capped_to_a_day = begun.capped,
                    "no request to this account until the pause ends"
                );
            }
        }
        if let Some(spacing) = begun.slowed {
            info!(
                event = "pace.slowed",
                account,
                vtex_account,
                spacing_ms = spacing.as_millis() as u64,
                "few requests are left until the limit is reset"
            );
        }
    }
}
