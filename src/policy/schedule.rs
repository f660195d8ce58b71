//! When a poll starts, and when a lease ends.

use std::time::{Duration, Instant};

use super::classify::Class;
use super::jitter::share;

/// Between two polls of a feed that cannot work before a person or another request has helped.
const SLOW: Duration = Duration::from_secs(5 * 60);

/// The first polls of all feeds start within this time.
const LONGEST_SPREAD: Duration = Duration::from_secs(60);

/// How long VTEX hides an item as long as its configuration is not known.
const LEASE_UNTIL_KNOWN: Duration = Duration::from_secs(30);

/// The longest visibility timeout that VTEX allows.
const LONGEST_LEASE: Duration = Duration::from_secs(12 * 60 * 60);

/// How often a feed is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cadence {
    /// Every `poll.interval`.
    Normal,
    /// Every 5 minutes, or every `poll.interval` where that is longer.
    Slow,
}

/// The cadence after a poll that ended with `failure`, or without one.
pub fn cadence(failure: Option<Class>) -> Cadence {
    match failure {
        Some(Class::Unauthorized | Class::Unconfigured) => Cadence::Slow,
        None | Some(Class::Throttled | Class::Transient | Class::Malformed | Class::Permanent) => {
            Cadence::Normal
        }
    }
}

/// From the end of a poll to the start of the next: max(pause end, poll end + interval), where `pause_left` is
/// what was left of the pause when the poll ended.
pub fn next_poll_in(cadence: Cadence, interval: Duration, pause_left: Option<Duration>) -> Duration {
    let least = match cadence {
        Cadence::Normal => interval,
        Cadence::Slow => interval.max(SLOW),
    };
    least.max(pause_left.unwrap_or_default())
}

/// From the start of the agent to the first poll of its `index`-th feed (from 0) of `n_feeds`: evenly spread over
/// the interval (at most over a minute, so that nobody wonders what the agent waits for), the first at once. The one wait that may be zero; it comes once.
pub fn first_poll_in(index: usize, n_feeds: usize, interval: Duration) -> Duration {
    share(interval.min(LONGEST_SPREAD), index as f64 / n_feeds.max(1) as f64)
}

/// When the lease of a batch ends that was asked for at `sent_at`. Counted from there and not from the answer,
/// since VTEX hides the items some time before we know. `visibility` is the feed's visibility timeout; 30 s while
/// it is not known (or zero, which it cannot be).
pub fn lease_ends(sent_at: Instant, visibility: Option<Duration>) -> Instant {
    let lease = visibility.filter(|lease| !lease.is_zero()).unwrap_or(LEASE_UNTIL_KNOWN).min(LONGEST_LEASE);
    sent_at.checked_add(lease).unwrap_or(sent_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::start;
    use proptest::prelude::*;

    #[test]
    fn the_next_poll_waits_for_the_interval_and_for_the_pause() {
        for (cadence, interval, pause_left, expected) in [
            (Cadence::Normal, 30, None, 30),
            (Cadence::Normal, 30, Some(7), 30),
            (Cadence::Normal, 30, Some(64), 64),
            (Cadence::Normal, 3600, Some(64), 3600),
            (Cadence::Slow, 30, None, 300),
            (Cadence::Slow, 3600, None, 3600),
            (Cadence::Slow, 30, Some(900), 900),
        ] {
            let wait = next_poll_in(cadence, secs(interval), pause_left.map(secs));
            assert_eq!(wait, secs(expected), "{cadence:?} {interval} {pause_left:?}");
        }
    }

    #[test]
    fn what_only_a_person_can_heal_is_polled_slowly() {
        use Class::{Malformed, Permanent, Throttled, Transient, Unauthorized, Unconfigured};
        for class in [Unauthorized, Unconfigured] {
            assert_eq!(cadence(Some(class)), Cadence::Slow, "{class}");
        }
        for failure in [None, Some(Throttled), Some(Transient), Some(Malformed), Some(Permanent)] {
            assert_eq!(cadence(failure), Cadence::Normal, "{failure:?}");
        }
    }

    #[test]
    fn first_polls_are_spread_over_the_interval() {
        let starts: Vec<_> = (0..4).map(|index| first_poll_in(index, 4, secs(30)).as_millis()).collect();
        assert_eq!(starts, [0, 7_500, 15_000, 22_500]);
        assert_eq!(first_poll_in(0, 0, secs(30)), Duration::ZERO);
        assert_eq!(first_poll_in(999, 1000, secs(30)), Duration::from_millis(29_970));
    }

    #[test]
    fn a_lease_runs_from_when_it_was_asked_for() {
        let sent = start();
        for (visibility, seconds) in
            [(None, 30), (Some(0), 30), (Some(240), 240), (Some(43_200), 43_200), (Some(u64::MAX), 43_200)]
        {
            assert_eq!(lease_ends(sent, visibility.map(secs)), sent + secs(seconds), "{visibility:?}");
        }
    }

    proptest! {
        #[test]
        fn no_poll_starts_early(interval: Duration, pause_left: Option<Duration>, slow: bool) {
            let wait = next_poll_in(if slow { Cadence::Slow } else { Cadence::Normal }, interval, pause_left);
            prop_assert!(interval <= wait && pause_left.unwrap_or_default() <= wait);
        }

        #[test]
        fn first_polls_start_in_order_and_within_the_interval(index: usize, n_feeds: usize, interval: Duration) {
            let wait = first_poll_in(index, n_feeds, interval);
            prop_assert!(wait <= interval && first_poll_in(index.saturating_sub(1), n_feeds, interval) <= wait);
        }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
