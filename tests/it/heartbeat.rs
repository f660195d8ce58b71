//! The heartbeats of a feed's loops: one that rightly waits must not get the agent restarted.

use std::sync::Arc;
use std::time::Duration;

use order_feed_agent::account::{Account, Gate, Memory, gate};
use order_feed_agent::config::{self, SecretSource};
use order_feed_agent::journal::SqliteJournal;
use order_feed_agent::observe::liveness::Liveness;
use order_feed_agent::observe::status::Status;
use order_feed_agent::policy::backoff::Backoff;
use order_feed_agent::policy::classify::Operation;
use order_feed_agent::policy::retry::Retry;
use order_feed_agent::policy::{breaker, pause};
use order_feed_agent::sandbox::memory::{Fault, MemoryFeed};
use order_feed_agent::sandbox::queue::Rules;
use order_feed_agent::wall::Wall;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_pause_met_while_the_lease_length_is_asked_for_does_not_make_the_polling_loop_overdue() {
    let feed = MemoryFeed::new("store", Rules::default(), 7);
    // The first answer comes before the first poll, the second in the middle of the wait for the next one.
    feed.script_for(Operation::Config, [Fault::None, Fault::Status(429)]);
    let liveness = Liveness::default();
    let memory =
        Memory::new(liveness.register("polling"), liveness.register("learning"), Instant::now() + MINUTE, 7);
    let account = account(&feed, &memory);
    let shutdown = CancellationToken::new();
    let overdue = async {
        for _ in 0..30 {
            sleep(MINUTE).await;
            assert_eq!(liveness.overdue(Instant::now()), []);
        }
        shutdown.cancel();
    };
    tokio::join!(account.run(&shutdown), overdue);
    assert!(feed.requests().iter().filter(|request| request.operation == Operation::Config).count() >= 3);
}

/// A feed that is polled every ten minutes.
fn account<'a>(feed: &'a MemoryFeed, memory: &'a Memory) -> Account<'a, &'a MemoryFeed, SqliteJournal> {
    let settings = gate::Settings {
        per_second: 10.0,
        burst: 1,
        concurrency: 2,
        rate_limit: pause::Settings { pause: MINUTE, max_pause: 15 * MINUTE },
        circuit_breaker: breaker::Settings { failures: 5, recovery: Duration::from_secs(30), successes: 3 },
    };
    Account {
        name: "store".to_owned(),
        source: "memory:/api/orders/feed".to_owned(),
        poll: config::Poll { interval: 10 * MINUTE, batch_size: 10, drain: true },
        retry: Retry {
            backoff: Backoff { base: Duration::from_secs(1), max: MINUTE },
            max_retries: 5,
            budget: 2 * MINUTE,
        },
        request_timeout: Duration::from_secs(30),
        app_token_source: SecretSource::Literal,
        feed,
        journal: Arc::new(SqliteJournal::in_memory().unwrap()),
        gate: Arc::new(Gate::new("store".to_owned(), settings, 7)),
        status: Status::default(),
        wall: Wall::System,
        memory,
    }
}
