//! The same failure again and again: three lines, then one at each power of two, then one at its end.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Logged one by one before the thinning begins.
const SAID_SINGLY: u64 = 3;

/// Counts failures by what they are and says which of them to log. Its keys must be few.
#[derive(Debug)]
pub struct Thinning<K> {
    failing: HashMap<K, Failing>,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    times: u64,
    since: Instant,
}

/// A failure that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub times: u64,
    pub lasted: Duration,
}

impl<K> Default for Thinning<K> {
    fn default() -> Self {
        Self { failing: HashMap::new() }
    }
}

impl<K: Eq + Hash> Thinning<K> {
    /// Counts one more failure; returns how many there were in a row if this one is to be logged.
    pub fn note(&mut self, key: K, now: Instant) -> Option<u64> {
        let failing = self.failing.entry(key).or_insert(Failing { times: 0, since: now });
        failing.times += 1;
        (failing.times <= SAID_SINGLY || failing.times.is_power_of_two()).then_some(failing.times)
    }

    /// Ends the failures of which `is_over`; returns them taken together, if there were any.
    pub fn end(&mut self, is_over: impl Fn(&K) -> bool, now: Instant) -> Option<Ended> {
        let over: Vec<Failing> =
            self.failing.extract_if(|key, _| is_over(key)).map(|(_, failing)| failing).collect();
        let since = over.iter().map(|failing| failing.since).min()?;
        Some(Ended {
            times: over.iter().map(|failing| failing.times).sum(),
            lasted: now.saturating_duration_since(since),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_lines_then_powers_of_two_then_the_end() {
        let mut thinning = Thinning::default();
        let start = Instant::now();
        let said: Vec<u64> = (0..100).filter_map(|_| thinning.note("a", start)).collect();
        assert_eq!(said, [1, 2, 3, 4, 8, 16, 32, 64]);
        assert_eq!(thinning.note("b", start + Duration::from_secs(1)), Some(1));

        let now = start + Duration::from_secs(60);
        let ended = thinning.end(|key| *key != "c", now);
        assert_eq!(ended, Some(Ended { times: 101, lasted: Duration::from_secs(60) }));
        assert_eq!(thinning.end(|_| true, now), None);
        assert_eq!(thinning.note("a", now), Some(1));
    }
}
