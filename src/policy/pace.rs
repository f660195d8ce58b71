//! The spacing of an account's requests.

use std::time::{Duration, Instant};

use super::slow_down::{Level, SlowDown, Slowed};

/// A documented limit of VTEX: a steady rate, and credits for what exceeds it, refilled at that rate.
///
/// Source: VTEX guide "Pricing API overview".
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preset {
    pub name: &'static str,
    pub per_second: f64,
    pub credits: u32,
}

impl Preset {
    /// PUT and POST of the Pricing API.
    pub const PRICING_WRITE: Self = Self { name: "pricing-write", per_second: 40.0, credits: 1000 };
    /// DELETE of the Pricing API.
    pub const PRICING_DELETE: Self = Self { name: "pricing-delete", per_second: 16.0, credits: 300 };

    /// A pace that uses the whole limit and no more.
    pub fn pace(self) -> Pace {
        Pace::new(self.per_second, self.credits)
    }
}

/// At most `burst` requests at once, then `per_second`: a token bucket that starts full. Slower while the answers
/// say that the limit is near.
///
/// The bucket is kept as how far the last request ran ahead of the pace (GCRA), so nothing accumulates and
/// nothing overflows however long it is not asked.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Between two requests once the burst is used up.
    spacing: Duration,
    /// How far ahead of the pace the burst may run.
    tolerance: Duration,
    last: Option<Last>,
    slowed: Slowed,
}

/// The last request that was let go.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: Instant,
    /// From then until the bucket is full again.
    ahead: Duration,
}

impl Pace {
    /// A pace of `per_second` requests (above 0) with `burst` at once (at least 1).
    pub fn new(per_second: f64, burst: u32) -> Self {
        // A pace so slow that its spacing is no duration waits as long as a duration can say.
        let spacing = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::MAX);
        let tolerance = spacing.saturating_mul(burst.saturating_sub(1));
        Self { spacing, tolerance, last: None, slowed: Slowed::default() }
    }

    /// Takes another rate; what was used up and slowed down stays so.
    pub fn set(&mut self, per_second: f64, burst: u32) {
        let Self { spacing, tolerance, .. } = Self::new(per_second, burst);
        (self.spacing, self.tolerance) = (spacing, tolerance);
    }

    /// Takes a request's place at `now`, or answers how long to wait before asking again.
    ///
    /// # Errors
    /// The wait, never zero.
    pub fn try_acquire(&mut self, now: Instant) -> Result<(), Duration> {
        let Some(last) = self.last else {
            self.last = Some(Last { at: now, ahead: self.spacing });
            return Ok(());
        };
        let ahead = last.ahead.saturating_sub(now.saturating_duration_since(last.at));
        let wait = ahead.saturating_sub(self.tolerance).max(self.slowed.wait(now, last.at));
        if !wait.is_zero() {
            return Err(wait);
        }
        self.last = Some(Last { at: last.at.max(now), ahead: ahead.saturating_add(self.spacing) });
        Ok(())
    }

    /// Slows down as an answer that came at `now` asks for. Answers whether that is slower than before.
    pub fn slow_down(&mut self, now: Instant, hint: SlowDown) -> bool {
        let spacing = |level: Option<Level>| level.map(Level::spacing);
        let before = spacing(self.slowed.level(now));
        self.slowed.add(now, hint);
        before < spacing(self.slowed.level(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::start;
    use proptest::prelude::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_is_spaced() {
        let now = start();
        let mut pace = Pace::new(10.0, 3);
        for _ in 0..3 {
            assert_eq!(pace.try_acquire(now), Ok(()));
        }
        assert_eq!(pace.try_acquire(now), Err(Duration::from_millis(100)));
        assert_eq!(pace.try_acquire(now + Duration::from_millis(100)), Ok(()));
        assert_eq!(pace.try_acquire(now + Duration::from_millis(100)), Err(Duration::from_millis(100)));
    }

    #[test]
    fn idle_time_refills_no_more_than_the_burst() {
        let now = start();
        let mut pace = Pace::new(1.0, 2);
        assert_eq!(pace.try_acquire(now), Ok(()));
        let later = now + Duration::from_secs(3600);
        assert_eq!((pace.try_acquire(later), pace.try_acquire(later)), (Ok(()), Ok(())));
        assert!(pace.try_acquire(later).is_err());
    }

    #[test]
    fn a_clock_read_earlier_by_another_does_not_turn_it_back() {
        let (now, earlier) = (start() + Duration::from_secs(1), start());
        let mut pace = Pace::new(10.0, 2);
        assert_eq!((pace.try_acquire(now), pace.try_acquire(earlier)), (Ok(()), Ok(())));
        assert_eq!(pace.try_acquire(now), Err(Duration::from_millis(100)));
    }

    #[test]
    fn the_slowest_pace_lets_one_request_go() {
        let now = start();
        for per_second in [f64::MIN_POSITIVE, 1e-19, 1e-12] {
            let mut pace = Pace::new(per_second, 1);
            assert_eq!(pace.try_acquire(now), Ok(()), "{per_second}");
            assert!(pace.try_acquire(now + Duration::from_secs(1 << 39)).is_err(), "{per_second}");
        }
    }

    #[test]
    fn credits_are_spent_at_once_and_come_back_at_the_rate() {
        for (preset, per_second, credits) in
            [(Preset::PRICING_WRITE, 40, 1000), (Preset::PRICING_DELETE, 16, 300)]
        {
            let now = start();
            let mut pace = preset.pace();
            assert_eq!(granted(&mut pace, now), credits, "{}", preset.name);
            assert_eq!(granted(&mut pace, now + Duration::from_secs(1)), per_second, "{}", preset.name);
            assert_eq!(granted(&mut pace, now + Duration::from_secs(3600)), credits, "{}", preset.name);
        }
    }

    #[test]
    fn a_hint_spaces_the_requests_until_the_reset() {
        let now = start();
        let mut pace = Pace::new(10.0, 5);
        let hint = |level| SlowDown { level, length: Duration::from_secs(12) };
        assert!(pace.slow_down(now, hint(Level::Low)));
        assert!(!pace.slow_down(now, hint(Level::Low)));
        assert!(pace.slow_down(now, hint(Level::Critical)));
        assert!(!pace.slow_down(now, hint(Level::Low)));
        let mut sent = Vec::new();
        let mut at = now;
        while sent.len() < 6 {
            match pace.try_acquire(at) {
                Ok(()) => sent.push(at.duration_since(now).as_secs()),
                Err(wait) => at += wait,
            }
        }
        assert_eq!(sent, [0, 5, 10, 12, 12, 12]);
        assert!(pace.slow_down(at, hint(Level::Low)));
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_its_share(
            per_second in 0.1..10_000.0f64, burst in 1u32..50, gaps in prop::collection::vec(0u64..2_000, 1..300),
        ) {
            let mut pace = Pace::new(per_second, burst);
            let mut now = start();
            let mut granted: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                match pace.try_acquire(now) {
                    Ok(()) => granted.push(now),
                    Err(wait) => prop_assert!(wait > Duration::ZERO),
                }
            }
            for (first, start) in granted.iter().enumerate() {
                for (last, end) in granted.iter().enumerate().skip(first) {
                    let share = f64::from(burst) + end.duration_since(*start).as_secs_f64() * per_second + 1e-3;
                    prop_assert!((last - first + 1) as f64 <= share);
                }
            }
        }

        #[test]
        fn one_wait_is_enough_at_any_pace_and_hint(
            per_second in prop_oneof![1e-6..10_000.0f64, any::<f64>()], burst: u32, length: Duration,
            critical: bool, ages_ms in prop::collection::vec(any::<u32>(), 1..50),
        ) {
            let mut pace = Pace::new(per_second, burst);
            let origin = start();
            let level = if critical { Level::Critical } else { Level::Low };
            for age_ms in ages_ms {
                // Those who share a pace may ask with clocks read in another order.
                let now = origin + Duration::from_millis(age_ms.into());
                pace.slow_down(now, SlowDown { level, length });
                if let Err(wait) = pace.try_acquire(now) {
                    prop_assert!(wait > Duration::ZERO);
                    let asked_at = pace.last.map_or(now, |last| last.at.max(now));
                    if let Some(then) = asked_at.checked_add(wait) {
                        prop_assert_eq!(pace.clone().try_acquire(then), Ok(()));
                    }
                }
            }
        }
    }

    fn granted(pace: &mut Pace, now: Instant) -> usize {
        (0..10_000).take_while(|_| pace.try_acquire(now).is_ok()).count()
    }
}
