//! What to do after a failed attempt. The one retry layer: bounded in retries, in time, and in each delay.

use std::time::Duration;

use super::backoff::Backoff;
use super::classify::{Class, is_retryable};

/// The limits of the retries of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    pub backoff: Backoff,
    /// After the first attempt.
    pub max_retries: u32,
    /// For all attempts and the delays between them.
    pub budget: Duration,
}

/// How one attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub class: Class,
    /// `None` where no answer came.
    pub status: Option<u16>,
    /// What the answer's Retry-After asks for; see [`super::retry_after`].
    pub hint: Option<Duration>,
    /// Whether the same request may be sent again; see [`super::replay`].
    pub may_replay: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Never zero; never shorter than the hint.
    RetryAfter(Duration),
    /// The gate holds the pause; the caller asks it again while it is worth it.
    AwaitGate,
    GiveUp(GiveUp),
}

/// Why an operation is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    NotRetryable,
    /// It may have had its effect, which must not happen twice.
    OutcomeUnknown,
    RetriesExhausted,
    /// The next delay would not fit into the budget.
    BudgetExceeded,
}

impl Retry {
    /// Decides after `attempts` attempts (the failed one included, so at least 1) and `elapsed` since the first
    /// was sent, with `jitter` from 0 up to 1.
    pub fn decide(&self, failure: Failure, attempts: u32, elapsed: Duration, jitter: f64) -> Decision {
        match failure.class {
            Class::Throttled => return Decision::AwaitGate,
            Class::Transient if is_retryable(failure.status) => {}
            Class::Malformed => {}
            Class::Transient | Class::Unauthorized | Class::Unconfigured | Class::Permanent => {
                return Decision::GiveUp(GiveUp::NotRetryable);
            }
        }
        if !failure.may_replay {
            return Decision::GiveUp(GiveUp::OutcomeUnknown);
        }
        if self.max_retries < attempts {
            return Decision::GiveUp(GiveUp::RetriesExhausted);
        }
        let delay = self.backoff.delay(attempts, jitter).max(failure.hint.unwrap_or_default());
        if self.budget < elapsed.saturating_add(delay) {
            return Decision::GiveUp(GiveUp::BudgetExceeded);
        }
        Decision::RetryAfter(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RETRY: Retry = Retry {
        backoff: Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) },
        max_retries: 5,
        budget: Duration::from_secs(120),
    };

    #[test]
    fn a_failure_becomes_a_decision() {
        use Class::{Malformed, Permanent, Throttled, Transient, Unauthorized, Unconfigured};
        use Decision::{AwaitGate, GiveUp as Up};
        use GiveUp::{BudgetExceeded, NotRetryable, RetriesExhausted};
        let after = |seconds| Decision::RetryAfter(Duration::from_secs(seconds));
        for (class, status, hint, attempts, elapsed, expected) in [
            (Transient, Some(503), None, 1, 0, after(1)),
            (Transient, Some(408), None, 2, 1, after(2)),
            (Transient, None, None, 5, 20, after(16)),
            (Transient, None, None, 6, 20, Up(RetriesExhausted)),
            (Transient, Some(500), None, u32::MAX, 0, Up(RetriesExhausted)),
            (Transient, Some(501), None, 1, 0, Up(NotRetryable)),
            (Transient, Some(599), None, 1, 0, Up(NotRetryable)),
            (Malformed, Some(200), None, 1, 0, after(1)),
            (Malformed, None, None, 6, 0, Up(RetriesExhausted)),
            // A hint lengthens and never shortens.
            (Transient, Some(503), Some(90), 1, 0, after(90)),
            (Transient, Some(503), Some(1), 3, 0, after(4)),
            (Transient, Some(503), Some(300), 1, 0, Up(BudgetExceeded)),
            // What just fits is done; what does not is given up before the wait, not after it.
            (Transient, Some(503), None, 1, 119, after(1)),
            (Transient, Some(503), None, 1, 120, Up(BudgetExceeded)),
            (Throttled, Some(429), None, 1, 0, AwaitGate),
            (Throttled, Some(429), Some(9), 1_000, 9_999, AwaitGate),
            (Unauthorized, Some(401), None, 1, 0, Up(NotRetryable)),
            (Unconfigured, Some(404), None, 1, 0, Up(NotRetryable)),
            (Permanent, Some(400), Some(5), 1, 0, Up(NotRetryable)),
        ] {
            let failure = Failure { class, status, hint: hint.map(Duration::from_secs), may_replay: true };
            let decision = RETRY.decide(failure, attempts, Duration::from_secs(elapsed), 1.0);
            assert_eq!(decision, expected, "{failure:?} after {attempts} attempts and {elapsed} s");
        }
    }

    #[test]
    fn what_must_not_happen_twice_is_given_up_unless_a_pause_refused_it() {
        use Class::{Malformed, Permanent, Throttled, Transient};
        for (class, status, expected) in [
            (Transient, None, Decision::GiveUp(GiveUp::OutcomeUnknown)),
            (Transient, Some(500), Decision::GiveUp(GiveUp::OutcomeUnknown)),
            (Malformed, Some(200), Decision::GiveUp(GiveUp::OutcomeUnknown)),
            (Permanent, Some(400), Decision::GiveUp(GiveUp::NotRetryable)),
            (Throttled, Some(429), Decision::AwaitGate),
        ] {
            let failure = Failure { class, status, hint: None, may_replay: false };
            assert_eq!(RETRY.decide(failure, 1, Duration::ZERO, 0.0), expected, "{failure:?}");
        }
    }

    #[test]
    fn without_retries_the_first_failure_is_the_last() {
        let failure = Failure { class: Class::Transient, status: None, hint: None, may_replay: true };
        let decision = Retry { max_retries: 0, ..RETRY }.decide(failure, 1, Duration::ZERO, 0.0);
        assert_eq!(decision, Decision::GiveUp(GiveUp::RetriesExhausted));
    }

    proptest! {
        #[test]
        fn retries_end_within_their_number_and_their_budget(
            max_retries in 0u32..1_000, budget: Duration, base: Duration, max: Duration,
            jitters in prop::collection::vec(any::<f64>(), 1..20), hint: Option<Duration>,
        ) {
            let retry = Retry { backoff: Backoff { base, max }, max_retries, budget };
            let failure = Failure { class: Class::Transient, status: Some(503), hint, may_replay: true };
            let (mut attempts, mut elapsed) = (1, Duration::ZERO);
            let jitter = |attempts| jitters[attempts as usize % jitters.len()];
            while let Decision::RetryAfter(delay) = retry.decide(failure, attempts, elapsed, jitter(attempts)) {
                prop_assert!(Duration::ZERO < delay && hint.unwrap_or_default() <= delay);
                (attempts, elapsed) = (attempts + 1, elapsed + delay);
                prop_assert!(elapsed <= budget && attempts <= max_retries + 1);
            }
        }
    }
}
