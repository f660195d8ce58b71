//! The silence of an account after a 429.
//!
//! Source: VTEX guide "Orders feed": stop all calls and wait about a minute; the limit is the account's.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::jitter::share;

/// Jitter adds at most this part of a pause,
const JITTER: f64 = 0.1;
/// and at most so long.
const LONGEST_JITTER: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The shortest pause; at least 60 s.
    pub pause: Duration,
    /// Where the growth of pauses ends; a hint may be longer.
    pub max_pause: Duration,
}

/// What closes an account: the pause after a 429, or the Retry-After of another failure.
#[derive(Debug, Clone)]
pub struct Pauses {
    settings: Settings,
    /// Polls in a row that met a 429, the present one included.
    polls: u32,
    /// Whether the present poll met one.
    met: bool,
    /// When the last 429 came.
    throttled_at: Option<Instant>,
    closed: Option<Closed>,
}

/// Kept as start and length, whose sum may be no instant.
#[derive(Debug, Clone, Copy)]
struct Closed {
    since: Instant,
    length: Duration,
}

impl Pauses {
    pub fn new(settings: Settings) -> Self {
        Self { settings, polls: 0, met: false, throttled_at: None, closed: None }
    }

    /// Takes other settings; a pause that runs goes on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Goes on with the rest of a stored pause; see [`remaining`].
    pub fn restore(&mut self, now: Instant, remaining: Duration) {
        self.close(now, remaining);
    }

    /// Begins the pause of a 429 that came at `now` to a request sent at `sent_at`, and answers its length:
    /// max(`pause`, hint, growth) and 0–10 % of that, by `jitter` from 0 up to 1, but at most 60 s.
    ///
    /// `None`, and nothing changes, for a request sent before the last 429 came: it is the same event.
    pub fn throttled(
        &mut self,
        sent_at: Instant,
        now: Instant,
        hint: Option<Duration>,
        jitter: f64,
    ) -> Option<Duration> {
        if self.predates_pause(sent_at) {
            return None;
        }
        if !self.met {
            self.met = true;
            self.polls = self.polls.saturating_add(1);
        }
        let least = self.settings.pause.max(self.growth()).max(hint.unwrap_or_default());
        let length = least.saturating_add(share(share(least, JITTER), jitter).min(LONGEST_JITTER));
        self.throttled_at = Some(now);
        self.close(now, length);
        Some(length)
    }

    /// Closes the account for the Retry-After of a failure other than a 429. Not a pause: nothing grows.
    pub fn hold(&mut self, sent_at: Instant, now: Instant, hint: Duration) {
        if !self.predates_pause(sent_at) {
            self.close(now, hint);
        }
    }

    /// Ends a poll; one without a 429 ends the growth. A 429 between two polls counts for the later one.
    pub fn poll_ended(&mut self) {
        if !self.met {
            self.polls = 0;
        }
        self.met = false;
    }

    /// How long nothing may be sent, never zero; `None` when the account is open.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let Closed { since, length } = self.closed?;
        let left = length.saturating_sub(now.saturating_duration_since(since));
        (!left.is_zero()).then_some(left)
    }

    /// Whether a request was sent before the last 429 came, so that its answer changes nothing any more.
    pub fn predates_pause(&self, sent_at: Instant) -> bool {
        self.throttled_at.is_some_and(|at| sent_at <= at)
    }

    /// `pause`, doubled for each further poll in a row, up to `max_pause`.
    fn growth(&self) -> Duration {
        let factor = 2u32.saturating_pow(self.polls.saturating_sub(1));
        let Settings { pause, max_pause } = self.settings;
        pause.checked_mul(factor).unwrap_or(max_pause).min(max_pause)
    }

    /// Nothing that is closed opens earlier.
    fn close(&mut self, now: Instant, length: Duration) {
        if self.wait(now).unwrap_or_default() < length {
            self.closed = Some(Closed { since: now, length });
        }
    }
}

/// When a pause of `length` from `now` ends, to be stored with its length.
pub fn ends_at(now: Timestamp, length: Duration) -> Timestamp {
    now.checked_add(length).unwrap_or(Timestamp::MAX)
}

/// What is left at `now` of a stored pause: clamp(`end` − `now`, 0, `length`), so that a clock set back cannot
/// lengthen it.
pub fn remaining(now: Timestamp, end: Timestamp, length: Duration) -> Duration {
    Duration::try_from(end.duration_since(now)).unwrap_or_default().min(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::start;
    use proptest::prelude::*;

    const SETTINGS: Settings = Settings { pause: secs(60), max_pause: secs(15 * 60) };

    #[test]
    fn a_pause_is_the_longest_of_its_reasons_and_some_jitter() {
        for (hint, jitter, expected) in [
            (None, 0.0, secs(60)),
            (None, 1.0, secs(66)),
            (Some(secs(7)), 0.5, secs(63)),
            (Some(secs(90)), 0.0, secs(90)),
            (Some(secs(90)), 1.0, secs(99)),
            // Above max_pause: in full.
            (Some(secs(3600)), 0.0, secs(3600)),
            (Some(secs(3600)), 1.0, secs(3660)),
            (Some(secs(86_400)), 1.0, secs(86_460)),
            (Some(Duration::MAX), 1.0, Duration::MAX),
        ] {
            let now = start();
            let mut pauses = Pauses::new(SETTINGS);
            assert_eq!(pauses.throttled(now, now, hint, jitter), Some(expected), "{hint:?} {jitter}");
            assert_eq!(pauses.wait(now), Some(expected));
        }
    }

    #[test]
    fn polls_in_a_row_lengthen_it_and_a_good_one_resets_it() {
        let mut pauses = Pauses::new(SETTINGS);
        let mut now = start();
        let mut lengths = Vec::new();
        for met in [true, true, true, true, true, true, false, true, true] {
            now += secs(3600);
            if met {
                let length = pauses.throttled(now, now + secs(1), None, 0.0).unwrap();
                lengths.push(length.as_secs());
                // A second 429 in the same poll is not another poll.
                now += secs(3600);
                assert_eq!(pauses.throttled(now, now, None, 0.0), Some(length));
            }
            pauses.poll_ended();
        }
        assert_eq!(lengths, [60, 120, 240, 480, 900, 900, 60, 120]);
    }

    #[test]
    fn answers_to_requests_sent_before_the_429_change_nothing() {
        let (sent, now) = (start(), start() + secs(5));
        let mut pauses = Pauses::new(SETTINGS);
        pauses.throttled(sent, now, None, 0.0);
        for earlier in [sent, sent + secs(1), now] {
            assert_eq!(pauses.throttled(earlier, now + secs(1), Some(secs(500)), 1.0), None);
            pauses.hold(earlier, now + secs(1), secs(500));
        }
        assert_eq!(pauses.wait(now), Some(secs(60)));
        pauses.poll_ended();
        let next = now + secs(60);
        assert_eq!(pauses.throttled(next, next, None, 0.0), Some(secs(120)));
    }

    #[test]
    fn another_failure_with_a_hint_closes_without_growth() {
        let now = start();
        let mut pauses = Pauses::new(SETTINGS);
        pauses.hold(now, now, secs(300));
        assert_eq!(pauses.wait(now + secs(299)), Some(secs(1)));
        assert_eq!(pauses.wait(now + secs(300)), None);
        // The shorter pause of a 429 does not open it earlier.
        assert_eq!(pauses.throttled(now, now + secs(1), None, 0.0), Some(secs(60)));
        assert_eq!(pauses.wait(now + secs(1)), Some(secs(299)));
    }

    #[test]
    fn a_stored_pause_ends_when_it_was_to_end_and_no_clock_lengthens_it() {
        let now: Timestamp = "2026-03-02T12:00:00Z".parse().unwrap();
        let length = secs(60);
        let end = ends_at(now, length);
        for (at, left) in [
            (now, 60),
            (ends_at(now, secs(20)), 40),
            (end, 0),
            (ends_at(end, secs(9)), 0),
            (Timestamp::MIN, 60),
            (Timestamp::MAX, 0),
        ] {
            assert_eq!(remaining(at, end, length), secs(left), "{at}");
        }
        assert_eq!(ends_at(now, Duration::MAX), Timestamp::MAX);
        let mut pauses = Pauses::new(SETTINGS);
        let restarted = start();
        pauses.restore(restarted, secs(40));
        assert_eq!(pauses.wait(restarted), Some(secs(40)));
        pauses.restore(restarted, Duration::ZERO);
        assert_eq!(pauses.wait(restarted + secs(40)), None);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Throttled { sent_ago: Duration, hint: Option<Duration>, jitter: f64 },
        Hold(Duration),
        PollEnded,
        Later(u32),
    }

    proptest! {
        #[test]
        fn no_sequence_opens_an_account_within_a_pause(
            pause_s in 60u64..1_000, more_s in 0u64..10_000, steps in prop::collection::vec(step(), 1..60),
        ) {
            let settings = Settings { pause: secs(pause_s), max_pause: secs(pause_s + more_s) };
            let mut pauses = Pauses::new(settings);
            let mut now = start();
            let mut left = Duration::ZERO;
            for step in steps {
                match step {
                    Step::Throttled { sent_ago, hint, jitter } => {
                        let sent = now.checked_sub(sent_ago).unwrap_or(now);
                        if let Some(length) = pauses.throttled(sent, now, hint, jitter) {
                            let hint = hint.unwrap_or_default();
                            prop_assert!(settings.pause.max(hint) <= length);
                            let least = hint.max(settings.max_pause);
                            let jitter = LONGEST_JITTER.min(least / 10 + Duration::from_micros(1));
                            prop_assert!(length <= least.saturating_add(jitter));
                            left = left.max(length);
                        }
                    }
                    Step::Hold(length) => pauses.hold(now, now, length),
                    Step::PollEnded => pauses.poll_ended(),
                    Step::Later(ms) => {
                        now += Duration::from_millis(ms.into());
                        left = left.saturating_sub(Duration::from_millis(ms.into()));
                    }
                }
                prop_assert!(left <= pauses.wait(now).unwrap_or_default());
                prop_assert!(pauses.wait(now) != Some(Duration::ZERO));
            }
        }

        #[test]
        fn pauses_in_a_row_never_shrink(pause: Duration, max_pause: Duration, polls in 1usize..80) {
            let mut pauses = Pauses::new(Settings { pause, max_pause });
            let mut now = start();
            let mut last = Duration::ZERO;
            for _ in 0..polls {
                now += secs(1);
                let length = pauses.throttled(now, now, None, 0.0).unwrap();
                pauses.poll_ended();
                prop_assert!(last <= length && length <= pause.max(max_pause));
                last = length;
            }
        }

        #[test]
        fn a_stored_pause_is_never_longer_than_it_was(
            now_s in -377_000_000_000i64..253_000_000_000, end_s in -377_000_000_000i64..253_000_000_000,
            length_s in 0u64..600_000_000_000,
        ) {
            let length = secs(length_s);
            let [now, end] = [now_s, end_s].map(|second| Timestamp::from_second(second).unwrap());
            prop_assert!(remaining(now, end, length) <= length);
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        let throttled = (any::<Duration>(), any::<Option<Duration>>(), any::<f64>(), any::<bool>()).prop_map(
            |(ago, hint, jitter, recent)| Step::Throttled {
                sent_ago: if recent { Duration::ZERO } else { ago },
                hint,
                jitter,
            },
        );
        prop_oneof![
            throttled,
            any::<Duration>().prop_map(Step::Hold),
            Just(Step::PollEnded),
            any::<u32>().prop_map(Step::Later)
        ]
    }

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
