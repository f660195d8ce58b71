//! Stops asking a server that only fails, and finds out carefully when it is well again.

use std::time::{Duration, Instant};

/// How long to wait while the one trial is out; its settling may let the next one go sooner.
const WHILE_TRIAL_IS_OUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Failures in a row that open it.
    pub failures: u32,
    /// From opening to the first trial.
    pub recovery: Duration,
    /// Trials that must go well, one after the other, to close it.
    pub successes: u32,
}

/// Closed: everything passes. Open: nothing does, for the recovery time. Half-open: one trial at a time.
#[derive(Debug, Clone)]
pub struct Breaker {
    settings: Settings,
    state: State,
    /// Counts the changes of state; what was let through before the last one says nothing any more.
    generation: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed { failures: u32 },
    Open { since: Instant },
    HalfOpen { successes: u32, trial_out: bool },
}

/// The right to make one attempt. Whoever has it settles it once, with [`Verdict::Neutral`] where no answer came
/// because nobody waited for one: a trial that is never settled would keep the breaker half-open.
#[must_use = "an unsettled trial keeps the breaker half-open"]
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    generation: u64,
    half_opened: bool,
    is_trial: bool,
}

impl Permit {
    /// Whether the attempt is a trial of a breaker that is half open.
    pub fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// Whether taking it made the breaker half-open, that is, whether it is the first trial.
    pub fn half_opened(&self) -> bool {
        self.half_opened
    }
}

/// How an attempt counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The server is alive.
    Success,
    Failure,
    /// It says nothing about the server's health.
    Neutral,
}

/// What settling a permit did to the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    Opened,
    Closed,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(settings: Settings) -> Self {
        Self { settings, state: State::Closed { failures: 0 }, generation: 0 }
    }

    /// Takes other settings; it stays as open as it is.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Lets one attempt pass at `now`, or answers how long to wait before asking again.
    ///
    /// # Errors
    /// The wait, never zero.
    pub fn try_acquire(&mut self, now: Instant) -> Result<Permit, Duration> {
        let (mut half_opened, mut is_trial) = (false, true);
        match self.state {
            State::Closed { failures: _ } => is_trial = false,
            State::Open { since } => {
                let left = self.settings.recovery.saturating_sub(now.saturating_duration_since(since));
                if !left.is_zero() {
                    return Err(left);
                }
                self.enter(State::HalfOpen { successes: 0, trial_out: true });
                half_opened = true;
            }
            State::HalfOpen { trial_out: true, .. } => return Err(WHILE_TRIAL_IS_OUT),
            State::HalfOpen { successes, trial_out: false } => {
                self.state = State::HalfOpen { successes, trial_out: true };
            }
        }
        Ok(Permit { generation: self.generation, half_opened, is_trial })
    }

    /// Takes a permit back with what became of its attempt. One of an earlier state changes nothing.
    pub fn settle(&mut self, permit: Permit, now: Instant, verdict: Verdict) -> Option<Transition> {
        if permit.generation != self.generation {
            return None;
        }
        match (self.state, verdict) {
            (State::Closed { .. }, Verdict::Success) => self.state = State::Closed { failures: 0 },
            // Without a permit of its own generation, an open breaker has nothing to settle.
            (State::Closed { .. }, Verdict::Neutral) | (State::Open { .. }, _) => {}
            (State::Closed { failures }, Verdict::Failure) => {
                let failures = failures.saturating_add(1);
                if self.settings.failures <= failures {
                    return Some(self.open(now));
                }
                self.state = State::Closed { failures };
            }
            (State::HalfOpen { .. }, Verdict::Failure) => return Some(self.open(now)),
            (State::HalfOpen { successes, .. }, Verdict::Neutral) => {
                self.state = State::HalfOpen { successes, trial_out: false };
            }
            (State::HalfOpen { successes, .. }, Verdict::Success) => {
                let successes = successes.saturating_add(1);
                if self.settings.successes <= successes {
                    self.enter(State::Closed { failures: 0 });
                    return Some(Transition::Closed);
                }
                self.state = State::HalfOpen { successes, trial_out: false };
            }
        }
        None
    }

    fn open(&mut self, now: Instant) -> Transition {
        self.enter(State::Open { since: now });
        Transition::Opened
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::start;
    use Verdict::{Failure, Neutral, Success};
    use proptest::prelude::*;

    const SETTINGS: Settings = Settings { failures: 5, recovery: Duration::from_secs(30), successes: 3 };

    #[test]
    fn failures_in_a_row_open_it() {
        for (verdicts, opened) in [
            (&[Failure; 4][..], false),
            (&[Failure; 5], true),
            (&[Failure, Failure, Failure, Failure, Success, Failure], false),
            // A 429 in between neither counts nor resets.
            (&[Failure, Failure, Neutral, Failure, Failure, Neutral, Failure], true),
            (&[Success, Neutral, Success], false),
        ] {
            let (mut breaker, now) = (Breaker::new(SETTINGS), start());
            let last = verdicts.iter().filter_map(|verdict| attempt(&mut breaker, now, *verdict)).last();
            assert_eq!(last, opened.then_some(Transition::Opened), "{verdicts:?}");
            assert_eq!(breaker.try_acquire(now).err(), opened.then_some(SETTINGS.recovery), "{verdicts:?}");
        }
    }

    #[test]
    fn after_the_recovery_time_one_trial_goes_and_three_successes_close_it() {
        let (mut breaker, opened_at) = opened();
        let early = opened_at + Duration::from_millis(29_999);
        assert_eq!(breaker.try_acquire(early), Err(Duration::from_millis(1)));

        let now = opened_at + SETTINGS.recovery;
        let trial = breaker.try_acquire(now).unwrap();
        assert!(trial.half_opened());
        assert_eq!(breaker.try_acquire(now), Err(WHILE_TRIAL_IS_OUT));
        assert_eq!(breaker.settle(trial, now, Success), None);
        let second = breaker.try_acquire(now).unwrap();
        assert!(!second.half_opened());
        assert_eq!(breaker.settle(second, now, Success), None);
        assert_eq!(attempt(&mut breaker, now, Success), Some(Transition::Closed));
        // Closed as new: several at once, and five failures to open.
        let permits: Vec<_> = (0..5).map(|_| breaker.try_acquire(now).unwrap()).collect();
        let transitions: Vec<_> =
            permits.into_iter().map(|permit| breaker.settle(permit, now, Failure)).collect();
        assert_eq!(transitions, [None, None, None, None, Some(Transition::Opened)]);
    }

    #[test]
    fn a_failed_trial_opens_it_for_another_recovery_time() {
        let (mut breaker, opened_at) = opened();
        let now = opened_at + SETTINGS.recovery;
        assert_eq!(attempt(&mut breaker, now, Success), None);
        assert_eq!(attempt(&mut breaker, now, Success), None);
        assert_eq!(attempt(&mut breaker, now, Failure), Some(Transition::Opened));
        assert_eq!(breaker.try_acquire(now), Err(SETTINGS.recovery));
    }

    #[test]
    fn a_neutral_trial_makes_room_for_the_next() {
        let (mut breaker, opened_at) = opened();
        let now = opened_at + SETTINGS.recovery;
        for _ in 0..10 {
            assert_eq!(attempt(&mut breaker, now, Neutral), None);
        }
        let trials: Vec<_> = (0..3).map(|_| attempt(&mut breaker, now, Success)).collect();
        assert_eq!(trials, [None, None, Some(Transition::Closed)]);
    }

    #[test]
    fn what_was_let_through_before_it_opened_says_nothing_any_more() {
        let now = start();
        let mut breaker = Breaker::new(SETTINGS);
        let old: Vec<_> = (0..3).map(|_| breaker.try_acquire(now).unwrap()).collect();
        for _ in 0..5 {
            attempt(&mut breaker, now, Failure);
        }
        let later = now + SETTINGS.recovery;
        let trial = breaker.try_acquire(later).unwrap();
        for (permit, verdict) in old.into_iter().zip([Success, Failure, Neutral]) {
            assert_eq!(breaker.settle(permit, later, verdict), None);
        }
        assert_eq!(breaker.try_acquire(later), Err(WHILE_TRIAL_IS_OUT));
        assert_eq!(breaker.settle(trial, later, Failure), Some(Transition::Opened));
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Acquire,
        Settle(usize, Verdict),
        Later(Duration),
    }

    proptest! {
        #[test]
        fn it_lets_one_trial_out_at_a_time_and_always_comes_back(
            failures in 0u32..8, recovery in any::<Duration>(), successes in 0u32..5,
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let settings = Settings { failures, recovery: recovery.min(Duration::from_secs(1 << 40)), successes };
            let mut breaker = Breaker::new(settings);
            let mut now = start();
            let mut permits = Vec::new();
            for step in steps {
                match step {
                    Step::Acquire => match breaker.try_acquire(now) {
                        Ok(permit) => permits.push(permit),
                        Err(wait) => {
                            let longest = settings.recovery.max(WHILE_TRIAL_IS_OUT);
                            prop_assert!(Duration::ZERO < wait && wait <= longest);
                        }
                    },
                    Step::Settle(which, verdict) if !permits.is_empty() => {
                        let permit = permits.swap_remove(which % permits.len());
                        breaker.settle(permit, now, verdict);
                    }
                    Step::Settle(..) => {}
                    Step::Later(wait) => now = now.checked_add(wait).unwrap_or(now),
                }
                let is_trial_out = matches!(breaker.state, State::HalfOpen { trial_out: true, .. });
                let current = permits.iter().filter(|permit| permit.generation == breaker.generation).count();
                if matches!(breaker.state, State::HalfOpen { .. }) {
                    prop_assert_eq!(current, usize::from(is_trial_out));
                }
            }
            for permit in permits {
                breaker.settle(permit, now, Neutral);
            }
            let well_at = now + settings.recovery;
            for _ in 0..settings.successes.max(1) {
                attempt(&mut breaker, well_at, Success);
            }
            let is_closed = matches!(breaker.state, State::Closed { .. });
            prop_assert!(is_closed, "{:?}", breaker.state);
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        let verdict = prop_oneof![Just(Success), Just(Neutral), Just(Failure), Just(Failure)];
        prop_oneof![
            3 => Just(Step::Acquire),
            3 => (any::<usize>(), verdict).prop_map(|(which, verdict)| Step::Settle(which, verdict)),
            1 => (0u64..100_000).prop_map(|ms| Step::Later(Duration::from_millis(ms))),
            1 => (0u64..1 << 41).prop_map(|s| Step::Later(Duration::from_secs(s))),
        ]
    }

    fn opened() -> (Breaker, Instant) {
        let (mut breaker, now) = (Breaker::new(SETTINGS), start());
        for _ in 0..5 {
            attempt(&mut breaker, now, Failure);
        }
        (breaker, now)
    }

    fn attempt(breaker: &mut Breaker, now: Instant, verdict: Verdict) -> Option<Transition> {
        let permit = breaker.try_acquire(now).unwrap();
        breaker.settle(permit, now, verdict)
    }
}
