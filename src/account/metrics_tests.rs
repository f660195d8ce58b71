//! What the loop of a feed counts, in paused time.

use prometheus_client::encoding::text::encode;
use tokio::time::sleep;

use super::*;
use crate::journal::SqliteJournal;
use crate::observe::liveness::Liveness;
use crate::observe::metrics::{Metrics, Totals};
use crate::policy::backoff::Backoff;
use crate::policy::{breaker, pause};
use crate::sandbox::items::Item;
use crate::sandbox::memory::{Fault, MemoryFeed};
use crate::sandbox::queue::Rules;
use crate::wall::Wall;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs a feed of ten events for some time, with faults that meet its receives and commits.
async fn run_for(
    length: Duration,
    faults: &[(Operation, &[Fault])],
    prepare: impl FnOnce(&MemoryFeed),
) -> Metrics {
    let directory = tempfile::tempdir().unwrap();
    let rules = Rules { visibility: 10 * MINUTE, ..Rules::default() };
    let feed = MemoryFeed::new("store", rules, 7);
    for n in 0..10 {
        let item = serde_json::json!({ "orderId": format!("{n}-01"), "state": "handling", "currentChange": "2026-03-02T20:54:23Z" });
        feed.enqueue(Item::new(&item));
    }
    for (operation, faults) in faults {
        feed.script_for(*operation, faults.iter().copied());
    }
    prepare(&feed);
    let metrics = Metrics::default();
    let settings = gate::Settings {
        per_second: 10.0,
        burst: 1,
        concurrency: 2,
        rate_limit: pause::Settings { pause: MINUTE, max_pause: 15 * MINUTE },
        circuit_breaker: breaker::Settings { failures: 5, recovery: MINUTE, successes: 3 },
    };
    let liveness = Liveness::default();
    let account = Account {
        name: "store".to_owned(),
        source: "memory:/api/orders/feed".to_owned(),
        poll: config::Poll { interval: Duration::from_secs(30), batch_size: 10, drain: true },
        retry: Retry {
            backoff: Backoff { base: Duration::from_secs(1), max: MINUTE },
            max_retries: 5,
            budget: 2 * MINUTE,
        },
        request_timeout: Duration::from_secs(30),
        app_token_source: SecretSource::Literal,
        feed: &feed,
        journal: Arc::new(SqliteJournal::open(&directory.path().join("journal.db")).unwrap()),
        gate: Arc::new(Gate::new("store".to_owned(), settings, 7).with_metrics(metrics.clone())),
        status: Status::default(),
        wall: Wall::System,
        memory: &Memory::new(liveness.register("polling"), liveness.register("learning"), Instant::now(), 7),
    };
    let shutdown = CancellationToken::new();
    tokio::join!(account.run(&shutdown), async {
        sleep(length).await;
        shutdown.cancel();
    });
    metrics
}

/// The value of a series, 0 where there is none.
fn value(metrics: &Metrics, series: &str) -> f64 {
    let mut text = String::new();
    encode(&mut text, metrics.registry()).unwrap();
    let start = format!("order_feed_agent_{series} ");
    text.lines().find_map(|line| line.strip_prefix(&start)).map_or(0.0, |value| value.parse().unwrap())
}

fn assert_values(metrics: &Metrics, expected: &[(&str, f64)]) {
    for (series, expected) in expected {
        assert_eq!(value(metrics, series), *expected, "{series}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_operation_and_status() {
    let metrics = run_for(Duration::from_secs(29), &[], |_| {}).await;
    assert_values(
        &metrics,
        &[
            (r#"requests_total{operation="feed.receive",status="200"}"#, 2.0),
            (r#"requests_total{operation="feed.commit",status="200"}"#, 1.0),
            (r#"requests_total{operation="feed.config",status="200"}"#, 1.0),
            (r#"request_duration_seconds_count{operation="feed.receive"}"#, 2.0),
        ],
    );
    assert_eq!(metrics.totals(), Totals { requests: 4, throttled: 0, retried_well: 0, given_up: 0 });
    // Four requests at ten a second: each but the first waited for its place, some behind another.
    let pace = value(&metrics, r#"wait_seconds_sum{cause="pace"}"#);
    assert!((0.2..1.0).contains(&pace), "{pace} s");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_went_well_counts_once_and_its_waits_as_backoff() {
    let faults = [Fault::Status(503), Fault::AnswerLost];
    let metrics = run_for(Duration::from_secs(29), &[(Operation::Receive, &faults)], |_| {}).await;
    assert_values(
        &metrics,
        &[
            (r#"requests_total{operation="feed.receive",status="503"}"#, 1.0),
            (r#"requests_total{operation="feed.receive",status="none"}"#, 1.0),
            (r#"retries_succeeded_total{operation="feed.receive"}"#, 1.0),
            (r#"wait_seconds_count{cause="backoff"}"#, 2.0),
        ],
    );
    let backoff = value(&metrics, r#"wait_seconds_sum{cause="backoff"}"#);
    assert!((1.5..=3.0).contains(&backoff), "{backoff} s");
    assert_eq!((metrics.totals().retried_well, metrics.totals().given_up), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_429_counts_as_throttled_as_a_pause_and_as_given_up() {
    let faults: &[(Operation, &[Fault])] =
        &[(Operation::Receive, &[Fault::None, Fault::None, Fault::Status(429)])];
    let metrics = run_for(3 * MINUTE, faults, |_| {}).await;
    assert_values(
        &metrics,
        &[
            (r#"requests_total{operation="feed.receive",status="429"}"#, 1.0),
            (r#"given_up_total{operation="feed.receive",class="throttled"}"#, 1.0),
            (r#"pauses_total{reason="too_many_requests"}"#, 1.0),
        ],
    );
    assert_eq!((metrics.totals().throttled, metrics.totals().given_up), (1, 1));

    let faults: &[(Operation, &[Fault])] = &[(Operation::Commit, &[Fault::Status(429)])];
    let metrics = run_for(3 * MINUTE, faults, |_| {}).await;
    assert_values(
        &metrics,
        &[
            (r#"requests_total{operation="feed.commit",status="429"}"#, 1.0),
            // The first leases are taken for short.
            (r#"given_up_total{operation="feed.commit",class="out_of_time"}"#, 1.0),
            (r#"pauses_total{reason="too_many_requests"}"#, 1.0),
        ],
    );
    let paused = value(&metrics, r#"wait_seconds_sum{cause="pause"}"#);
    assert!((60.0..200.0).contains(&paused), "{paused} s");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_once_counts_as_well_retried() {
    let metrics =
        run_for(Duration::from_secs(29), &[(Operation::Commit, &[Fault::Status(503)])], |_| {}).await;
    assert_values(
        &metrics,
        &[
            (r#"retries_succeeded_total{operation="feed.commit"}"#, 1.0),
            (r#"wait_seconds_count{cause="backoff"}"#, 1.0),
        ],
    );
    assert_eq!((metrics.totals().retried_well, metrics.totals().given_up), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_vtex_never_takes_is_given_up_once() {
    let metrics = run_for(Duration::from_secs(29), &[], |feed| feed.poison("3-01", 400)).await;
    assert_values(&metrics, &[(r#"given_up_total{operation="feed.commit",class="permanent"}"#, 1.0)]);
    assert_eq!(metrics.totals().given_up, 1);
    assert!(1.0 < value(&metrics, r#"requests_total{operation="feed.commit",status="400"}"#));
}

#[tokio::test(start_paused = true)]
async fn retries_that_are_used_up_and_an_open_breaker_are_counted() {
    let faults = [Fault::Status(503); 40];
    let metrics = run_for(5 * MINUTE, &[(Operation::Receive, &faults)], |_| {}).await;
    assert!(1.0 <= value(&metrics, r#"given_up_total{operation="feed.receive",class="transient"}"#));
    assert!(60.0 <= value(&metrics, r#"wait_seconds_sum{cause="breaker"}"#));
}
