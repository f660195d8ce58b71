//! How long to wait after the n-th failure in a row.

use std::time::Duration;

/// Exponential growth with half of it jittered: `min(max, base · 2^n) · (0.5 + jitter / 2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub base: Duration,
    pub max: Duration,
}

impl Backoff {
    /// The delay after `failures` failures in a row (counted from 1), with `jitter` from 0 up to 1.
    pub fn delay(&self, failures: u32, jitter: f64) -> Duration {
        let factor = 2u32.saturating_pow(failures.saturating_sub(1));
        let full = self.base.checked_mul(factor).unwrap_or(self.max).min(self.max);
        full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
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
        }
    }

    proptest! {
        #[test]
        fn the_delay_is_never_zero_and_never_above_its_maximum(failures: u32, jitter in 0.0..1.0f64, base_ms in 1u64..100_000, max_ms in 1u64..u64::MAX) {
            let backoff = Backoff { base: Duration::from_millis(base_ms), max: Duration::from_millis(max_ms.max(base_ms)) };
            let delay = backoff.delay(failures, jitter);
            prop_assert!(backoff.base / 2 <= delay && delay <= backoff.max);
        }
    }
}
