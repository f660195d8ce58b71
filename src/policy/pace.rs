//! The spacing of an account's requests.

use std::time::{Duration, Instant};

/// At most `burst` requests at once, then `per_second`: a token bucket that starts full.
///
/// It is kept as the one instant at which the bucket is full again (the "theoretical arrival time" of GCRA), so
/// nothing accumulates and nothing overflows however long it is not asked.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Between two requests once the burst is used up.
    spacing: Duration,
    /// How far ahead of the pace the burst may run.
    tolerance: Duration,
    full_at: Option<Instant>,
}

impl Pace {
    /// A pace of `per_second` requests (above 0) with `burst` at once (at least 1).
    pub fn new(per_second: f64, burst: u32) -> Self {
        // A pace so slow that its spacing is no duration waits as long as a duration can say.
        let spacing = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::MAX);
        Self { spacing, tolerance: spacing.saturating_mul(burst.saturating_sub(1)), full_at: None }
    }

    /// Takes a request's place at `now`, or answers how long to wait before asking again.
    ///
    /// # Errors
    /// The wait, never zero.
    pub fn try_acquire(&mut self, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let ahead = full_at.saturating_duration_since(now);
        if self.tolerance < ahead {
            return Err(ahead.saturating_sub(self.tolerance));
        }
        self.full_at = full_at.checked_add(self.spacing).or(self.full_at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn start() -> Instant {
        tokio::time::Instant::now().into_std()
    }

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

    proptest! {
        #[test]
        fn no_window_holds_more_than_its_share(per_second in 0.1..10_000.0f64, burst in 1u32..50, gaps in prop::collection::vec(0u64..2_000, 1..300)) {
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
    }
}
