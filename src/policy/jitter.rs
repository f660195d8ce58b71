//! Chance as an argument.

use std::time::Duration;

/// `length · fraction`; a fraction outside 0..=1 is the nearer end, one that is no number is 1.
pub(super) fn share(length: Duration, fraction: f64) -> Duration {
    // `Duration::mul_f64` would panic where rounding reaches 2^64 seconds.
    Duration::try_from_secs_f64(length.as_secs_f64() * fraction.clamp(0.0, 1.0))
        .map_or(length, |share| share.min(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_share_is_a_part_of_the_length() {
        let minute = Duration::from_secs(60);
        for (fraction, seconds) in [(0.0, 0), (0.5, 30), (1.0, 60), (-1.0, 0), (7.0, 60), (f64::NAN, 60)] {
            assert_eq!(share(minute, fraction), Duration::from_secs(seconds), "{fraction}");
        }
        assert_eq!(share(Duration::MAX, 1.0), Duration::MAX);
    }

    proptest! {
        #[test]
        fn a_share_never_exceeds_its_length(length: Duration, fraction: f64) {
            prop_assert!(share(length, fraction) <= length);
        }
    }
}
