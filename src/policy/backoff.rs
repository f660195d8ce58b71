//! How long to wait after the n-th failure in a row.

use std::time::Duration;

use super::jitter::share;

/// No delay is shorter, so that no loop spins.
const SHORTEST: Duration = Duration::from_millis(1);

/// Exponential growth with half of it jittered: `min(max, base · 2^n) · (0.5 + jitter / 2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub base: Duration,
    pub max: Duration,
}

impl Backoff {
    /// The delay after `failures` failures in a row (counted from 1), with `jitter` from 0 up to 1;
    /// at least 1 ms.
    pub fn delay(&self, failures: u32, jitter: f64) -> Duration {
        let factor = 2u32.saturating_pow(failures.saturating_sub(1));
        let full = self.base.checked_mul(factor).unwrap_or(self.max).min(self.max);
        share(full, 0.5 + jitter.clamp(0.0, 1.0) / 2.0).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        for (failures, seconds) in [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (u32::MAX, 60)] {
            assert_eq!(BACKOFF.delay(failures, 1.0), Duration::from_secs(seconds), "after {failures}");
            assert_eq!(BACKOFF.delay(failures, 0.0), Duration::from_secs(seconds) / 2, "after {failures}");
        }
    }

    proptest! {
        #[test]
        fn the_delay_stays_between_half_of_its_base_and_its_maximum(
            failures: u32, jitter: f64, base_ms in 1u64..100_000, max_ms in 1u64..u64::MAX,
        ) {
            let [base, max] = [base_ms, max_ms.max(base_ms)].map(Duration::from_millis);
            let backoff = Backoff { base, max };
            let delay = backoff.delay(failures, jitter);
            prop_assert!(backoff.base / 2 <= delay && delay <= backoff.max);
        }

        #[test]
        fn no_setting_makes_it_zero_or_panic(failures: u32, jitter: f64, base: Duration, max: Duration) {
            for (base, max) in [(base, max), (Duration::ZERO, max), (Duration::MAX, Duration::MAX)] {
                let backoff = Backoff { base, max };
                prop_assert!(SHORTEST <= backoff.delay(failures, jitter));
            }
        }
    }
}
