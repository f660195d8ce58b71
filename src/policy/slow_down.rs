//! Slowing down before the limit is met.
//!
//! Source: VTEX's integration samples read `X-RateLimit-Remaining` and `X-RateLimit-Reset`; no page on orders
//! promises them, so they are hints and nothing more.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::retry_after::reset_in;

/// No hint lasts longer; the next answer brings the next one.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// How near the limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Fewer than 20 requests are left.
    Low,
    /// Fewer than 5 are left.
    Critical,
}

impl Level {
    /// The least time between two requests.
    pub fn spacing(self) -> Duration {
        match self {
            Self::Low => Duration::from_secs(1),
            Self::Critical => Duration::from_secs(5),
        }
    }
}

/// A wish to slow down, read from an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowDown {
    pub level: Level,
    /// Above zero, at most 5 minutes.
    pub length: Duration,
}

/// Reads the values of `X-RateLimit-Remaining`, `X-RateLimit-Reset` and `Date`. `None` where one of the first two
/// is missing or odd, or where enough is left.
pub fn slow_down(
    remaining: Option<&str>,
    reset: Option<&str>,
    date: Option<&str>,
    received_at: Timestamp,
) -> Option<SlowDown> {
    let remaining = remaining?.trim();
    if !remaining.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let level = match remaining.parse::<u64>().ok()? {
        0..5 => Level::Critical,
        5..20 => Level::Low,
        20.. => return None,
    };
    let length = reset_in(reset?, date, received_at)?.min(LONGEST);
    Some(SlowDown { level, length })
}

/// The hints in force. Each level has its own end, so that a weaker hint neither ends nor extends a stronger one.
#[derive(Debug, Clone, Default)]
pub(super) struct Slowed {
    low: Option<Window>,
    critical: Option<Window>,
}

/// Kept as start and length, whose sum may be no instant.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    length: Duration,
}

impl Slowed {
    /// Takes a hint; one that would end earlier than what its level has already changes nothing.
    pub(super) fn add(&mut self, now: Instant, hint: SlowDown) {
        let window = match hint.level {
            Level::Low => &mut self.low,
            Level::Critical => &mut self.critical,
        };
        if left(*window, now) < hint.length {
            *window = Some(Window { since: now, length: hint.length });
        }
    }

    /// The strongest level in force.
    pub(super) fn level(&self, now: Instant) -> Option<Level> {
        if !left(self.critical, now).is_zero() {
            Some(Level::Critical)
        } else if !left(self.low, now).is_zero() {
            Some(Level::Low)
        } else {
            None
        }
    }

    /// How long the next request must still wait when the last was sent at `last`; zero if it need not.
    pub(super) fn wait(&self, now: Instant, last: Instant) -> Duration {
        let since_last = now.saturating_duration_since(last);
        let wait = |level: Level, window| level.spacing().saturating_sub(since_last).min(left(window, now));
        wait(Level::Low, self.low).max(wait(Level::Critical, self.critical))
    }
}

fn left(window: Option<Window>, now: Instant) -> Duration {
    window.map_or(Duration::ZERO, |Window { since, length }| {
        length.saturating_sub(now.saturating_duration_since(since))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::start;
    use proptest::prelude::*;

    const DATE: &str = "Mon, 02 Mar 2026 12:00:00 GMT";

    #[test]
    fn few_requests_left_mean_slower_until_the_reset() {
        for (remaining, reset, expected) in [
            (Some("20"), Some("60"), None),
            (Some("19"), Some("60"), Some((Level::Low, 60))),
            (Some("5"), Some("60"), Some((Level::Low, 60))),
            (Some("4"), Some("60"), Some((Level::Critical, 60))),
            (Some(" 0 "), Some("60"), Some((Level::Critical, 60))),
            (Some("3"), Some("1772452860"), Some((Level::Critical, 61))),
            (Some("3"), Some("301"), Some((Level::Critical, 300))),
            (Some("3"), Some("3600"), Some((Level::Critical, 300))),
            (Some("3"), Some("0"), None),
            (Some("3"), Some("1772452799"), None),
            (Some("3"), Some("86400"), None),
            (Some("3"), Some("soon"), None),
            (Some("3"), None, None),
            (None, Some("60"), None),
            (Some(""), Some("60"), None),
            (Some("-1"), Some("60"), None),
            (Some("+1"), Some("60"), None),
            (Some("few"), Some("60"), None),
            (Some("4.5"), Some("60"), None),
            (Some("99999999999999999999"), Some("60"), None),
        ] {
            let expected = expected.map(|(level, s)| SlowDown { level, length: Duration::from_secs(s) });
            let received_at = "2026-03-02T12:00:00.7Z".parse().unwrap();
            assert_eq!(
                slow_down(remaining, reset, Some(DATE), received_at),
                expected,
                "{remaining:?} {reset:?}"
            );
        }
    }

    #[test]
    fn a_weaker_hint_neither_ends_nor_extends_a_stronger_one() {
        let (now, mut slowed) = (start(), Slowed::default());
        slowed.add(now, hint(Level::Critical, 10));
        slowed.add(now, hint(Level::Low, 60));
        slowed.add(now, hint(Level::Critical, 2));
        for (at, level) in [
            (0, Some(Level::Critical)),
            (9, Some(Level::Critical)),
            (10, Some(Level::Low)),
            (59, Some(Level::Low)),
            (60, None),
        ] {
            assert_eq!(slowed.level(now + Duration::from_secs(at)), level, "after {at} s");
        }
    }

    proptest! {
        #[test]
        fn a_wait_is_no_longer_than_its_spacing_or_its_hint(length: Duration, since_ms: u32, critical: bool) {
            let level = if critical { Level::Critical } else { Level::Low };
            let (last, mut slowed) = (start(), Slowed::default());
            slowed.add(last, SlowDown { level, length });
            let now = last + Duration::from_millis(since_ms.into());
            let wait = slowed.wait(now, last);
            prop_assert!(wait <= level.spacing() && wait <= length);
            let then = now + wait;
            prop_assert!(slowed.wait(then, last).is_zero(), "one wait is enough");
        }
    }

    fn hint(level: Level, seconds: u64) -> SlowDown {
        SlowDown { level, length: Duration::from_secs(seconds) }
    }
}
