//! Faults: which request goes wrong, and how. Deciding is pure; `api` and `wire` carry the decision out.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::route::Operation;
use super::throttle::RetryAfter;
pub(super) use rule::RawRule;
pub use rule::Rule;

mod gzip;
mod rule;

pub(super) use gzip::gzip;

/// When a rule makes a fault out of a request that it matches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trigger {
    /// From the first of these requests to the last, counted from 1.
    Nth {
        first: u64,
        last: u64,
    },
    Probability(f64),
}

impl Trigger {
    /// Decides on the `nth` request; `draw` is uniform in 0–1.
    pub fn fires(self, nth: u64, draw: f64) -> bool {
        match self {
            Self::Nth { first, last } => (first..=last).contains(&nth),
            Self::Probability(probability) => draw < probability,
        }
    }
}

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The answer waits this long; the effect does not.
    pub delay: Duration,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The true answer, late.
    DelayOnly,
    /// Another answer.
    Answer { canned: Canned, effect: Effect },
    /// The true answer with a body of at most this many bytes, which it says is all.
    Truncate(usize),
    /// The true answer with this many spaces at its end.
    Pad(usize),
    /// The true answer under another content type.
    ContentType(HeaderValue),
    /// The true answer, compressed.
    Gzip,
    /// A small body that is huge when decompressed: spaces, then `[]`.
    GzipBomb(Bytes),
    /// The true answer in small pieces.
    Drip { bytes: usize, every: Duration },
    /// The true answer, cut off after this many bytes of its body.
    Cut { after: usize },
    /// The connection is closed without an answer.
    LoseAnswer(Effect),
    /// The connection is reset without an answer.
    Reset(Effect),
    /// No answer for this long, then the connection is closed. The request has no effect.
    Hang(Duration),
    /// The account is throttled from now on.
    Throttle { lasting: Duration, retry_after: RetryAfter },
    /// The caller's token stops being welcome.
    RotateToken(Lasting),
    /// The feed's configuration is gone.
    RemoveConfig(Lasting),
}

/// Whether a request that is not answered truly is done all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    Taken,
}

/// How long something stays as it became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    ForGood,
    For(Duration),
}

/// An answer that was written beforehand.
#[derive(Debug, Clone, PartialEq)]
pub struct Canned {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}

/// The rules with their counters and generators.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    rule: Rule,
    matched: u64,
    fired: u64,
    rng: StdRng,
}

impl Faults {
    /// The same rules and seed decide the same for the same requests.
    pub fn new(rules: &[Rule], seed: u64) -> Self {
        let watch = |(index, rule): (u64, &Rule)| Watched {
            rule: rule.clone(),
            matched: 0,
            fired: 0,
            rng: StdRng::seed_from_u64(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        };
        Self { rules: (1..).zip(rules).map(watch).collect() }
    }

    /// The fault of the first rule that fires on this request. Every rule that matches the request counts it.
    pub fn decide(&mut self, operation: Operation) -> Option<Fault> {
        let mut decided = None;
        for watched in self.rules.iter_mut().filter(|watched| watched.rule.matches(operation)) {
            watched.matched += 1;
            let fires = watched.rule.trigger.fires(watched.matched, watched.rng.random());
            if fires && decided.is_none() {
                watched.fired += 1;
                decided = Some(watched.rule.fault.clone());
            }
        }
        decided
    }

    /// How often each rule made a fault, in the order of the file.
    pub fn fired(&self) -> Vec<u64> {
        self.rules.iter().map(|watched| watched.fired).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(operations: &[Operation], trigger: Trigger, delay_s: u64) -> Rule {
        let fault = Fault { delay: Duration::from_secs(delay_s), action: Action::DelayOnly };
        Rule { operations: operations.to_vec(), trigger, fault }
    }

    fn delays(faults: &mut Faults, operation: Operation, n: usize) -> Vec<u64> {
        (0..n).map(|_| faults.decide(operation).map_or(0, |fault| fault.delay.as_secs())).collect()
    }

    #[test]
    fn a_trigger_is_a_function_of_number_and_draw() {
        let nth = Trigger::Nth { first: 3, last: 4 };
        assert_eq!([2, 3, 4, 5].map(|n| nth.fires(n, 0.0)), [false, true, true, false]);
        let probability = Trigger::Probability(0.5);
        assert!(probability.fires(1, 0.49) && !probability.fires(1, 0.5));
        assert!(!Trigger::Probability(0.0).fires(1, 0.0) && Trigger::Probability(1.0).fires(1, 0.999));
    }

    #[test]
    fn a_rule_counts_the_requests_of_its_operations_only_and_the_first_rule_wins() {
        let nth = |n| Trigger::Nth { first: n, last: n };
        let mut faults = Faults::new(
            &[rule(&[Operation::FeedCommit], nth(2), 1), rule(&[], nth(3), 2), rule(&[], nth(4), 3)],
            7,
        );
        assert_eq!(delays(&mut faults, Operation::FeedReceive, 1), [0]);
        assert_eq!(delays(&mut faults, Operation::FeedCommit, 4), [0, 1, 3, 0]);
        assert_eq!(faults.fired(), [1, 0, 1]);
    }

    #[test]
    fn probabilities_hold_and_a_seed_repeats_them() {
        let run = |seed| {
            let mut faults = Faults::new(&[rule(&[], Trigger::Probability(0.02), 1)], seed);
            delays(&mut faults, Operation::FeedReceive, 10_000)
        };
        let fired: u64 = run(1).iter().sum();
        assert!((150..250).contains(&fired), "{fired}");
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
