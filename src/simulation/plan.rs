//! What a seed decides before anything happens.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::account::gate;
use crate::config::{self, Limits, Wanted};
use crate::policy::backoff::Backoff;
use crate::policy::retry::Retry;
use crate::policy::{breaker, pause};
use crate::sandbox::handle::HandleForm;
use crate::sandbox::queue::{Oddities, Rules, StaleHandle};

/// From the wish to stop to the hard end.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// The longest that one request takes.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What an order goes through.
pub(super) const STATES: [&str; 5] =
    ["payment-approved", "ready-for-handling", "handling", "invoiced", "canceled"];

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// How long things go wrong.
    pub(super) span: Duration,
    pub(super) n_accounts: usize,
    pub(super) n_sinks: usize,
    pub(super) feeds: Vec<FeedPlan>,
    /// Sinks that take event by event, beside those above.
    pub(super) receivers: Vec<ReceiverPlan>,
    pub(super) gate: gate::Settings,
    pub(super) retry: Retry,
    /// From one event of a feed to the next.
    pub(super) mean_gap: Duration,
    /// The mean life of an agent until it crashes or is stopped.
    pub(super) mean_life: Duration,
}

#[derive(Debug, Clone)]
pub(super) struct FeedPlan {
    pub(super) name: String,
    /// Its VTEX account; two feeds may share one.
    pub(super) account: usize,
    pub(super) poll: config::Poll,
    pub(super) rules: Rules,
    pub(super) handle_form: HandleForm,
}

#[derive(Debug, Clone)]
pub(super) struct ReceiverPlan {
    pub(super) limits: Limits,
    pub(super) breaker: breaker::Settings,
    pub(super) wanted: Wanted,
    /// One event in so many is never taken; `None`: each is.
    pub(super) poison: Option<u64>,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = generator(seed, "plan");
        let n_feeds = rng.random_range(1..=3);
        let n_accounts = rng.random_range(1..=n_feeds);
        let per_second = [0.5, 2.0, 10.0, 100.0][rng.random_range(0..4)];
        let span = [1, 1, 1, 2, 4][rng.random_range(0..5)];
        let mut receivers_rng = generator(seed, "receivers");
        let n_receivers = [0, 1, 1, 2, 2][receivers_rng.random_range(0..5)];
        Self {
            seed,
            span: hours(span),
            n_accounts,
            n_sinks: rng.random_range(1..=2),
            feeds: (0..n_feeds).map(|feed| FeedPlan::draw(feed, feed % n_accounts, &mut rng)).collect(),
            receivers: (0..n_receivers).map(|_| ReceiverPlan::draw(n_feeds, &mut receivers_rng)).collect(),
            gate: gate::Settings {
                per_second,
                burst: rng.random_range(1..=3),
                concurrency: rng.random_range(1..=4),
                rate_limit: pause::Settings { pause: secs(60), max_pause: secs(900) },
                circuit_breaker: breaker::Settings { failures: 5, recovery: secs(30), successes: 3 },
            },
            retry: Retry {
                backoff: Backoff { base: secs(1), max: secs(60) },
                max_retries: rng.random_range(0..=5),
                budget: secs(120),
            },
            mean_gap: secs([60, 300, 900][rng.random_range(0..3)]),
            mean_life: secs(rng.random_range(600..3_600)),
        }
    }
}

impl FeedPlan {
    fn draw(feed: usize, account: usize, rng: &mut StdRng) -> Self {
        let stale_handle = [StaleHandle::Ignored, StaleHandle::Deleted, StaleHandle::Refused];
        let rare = |rng: &mut StdRng| if rng.random_bool(0.5) { rng.random_range(0.0..0.1) } else { 0.0 };
        Self {
            name: format!("feed-{feed}"),
            account,
            poll: config::Poll {
                interval: secs([5, 30, 30, 60, 60, 60, 300, 300][rng.random_range(0..8)]),
                batch_size: rng.random_range(1..=10),
                drain: rng.random_bool(0.8),
            },
            rules: Rules {
                visibility: visibility(rng),
                retention: hours([1, 96, 96, 336][rng.random_range(0..4)]),
                stale_handle: stale_handle[rng.random_range(0..3)],
                oddities: Oddities {
                    short_read: rare(rng),
                    empty_read: rare(rng),
                    delivered_twice: rare(rng),
                    back_after_commit: rare(rng),
                    kept_despite_commit: rare(rng),
                },
            },
            // The other form costs more and differs only for the wire.
            handle_form: if rng.random_bool(0.1) { HandleForm::Jwt } else { HandleForm::Bare },
        }
    }
}

impl ReceiverPlan {
    fn draw(n_feeds: usize, rng: &mut StdRng) -> Self {
        let some = |names: Vec<String>, rng: &mut StdRng| -> Option<BTreeSet<String>> {
            let all: BTreeSet<String> = names.into_iter().filter(|_| rng.random_bool(0.6)).collect();
            (!all.is_empty() && rng.random_bool(0.3)).then_some(all)
        };
        let feeds = (0..n_feeds).map(|feed| format!("feed-{feed}")).collect();
        let states = STATES.iter().map(ToString::to_string).collect();
        Self {
            limits: Limits {
                max_attempts: rng.random_range(2..=5),
                timeout: secs([5, 30, 60][rng.random_range(0..3)]),
                concurrency: rng.random_range(1..=4),
            },
            breaker: breaker::Settings {
                failures: rng.random_range(2..=5),
                recovery: secs([5, 30, 120][rng.random_range(0..3)]),
                successes: rng.random_range(1..=3),
            },
            wanted: Wanted { states: some(states, rng), accounts: some(feeds, rng) },
            poison: [None, None, Some(15), Some(60)][rng.random_range(0..4)],
        }
    }
}

/// How long a feed hides what it gave.
pub(super) fn visibility(rng: &mut StdRng) -> Duration {
    secs([30, 30, 120, 240, 1_800][rng.random_range(0..5)])
}

/// The generator of one part of the simulation, so that one more draw in a part does not change the others.
pub(super) fn generator(seed: u64, part: &str) -> StdRng {
    let part = part.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part)
}

/// A time of this mean, exponentially distributed; at least a millisecond.
pub(super) fn about(mean: Duration, rng: &mut StdRng) -> Duration {
    let drawn = -(1.0 - rng.random::<f64>()).ln() * mean.as_secs_f64();
    Duration::from_secs_f64(drawn).max(Duration::from_millis(1))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}
