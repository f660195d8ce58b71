//! The binary towards a VTEX that throttles, refuses, redirects and fails: what it sends, and what it says.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use mockito::{Matcher, Mock, Server, ServerGuard};
use order_feed_agent::sandbox::{Ledger, Options, Sandbox, Settings};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::support::agent::{PATIENCE, Workplace};
use crate::support::raw_server::{self, Script};
use crate::support::{TOKEN, sandbox};

const FEED: &str = "/api/orders/feed";
const FAST: &str = "[poll]\ninterval = \"5s\"\n[retry]\nbase_delay = \"10ms\"\nmax_delay = \"10ms\"\nmax_retries = 40\n\
                    [circuit_breaker]\nfailures = 1000000\n[requests]\nper_second = 1000\n";

/// The handle of every batch that a mock answers; it must never be seen outside a request.
const HANDLE: &str = "CANARY-HANDLE-0815";

#[tokio::test]
async fn killed_within_a_pause_it_asks_nothing_before_the_stored_end() {
    let (sandbox, address) =
        sandbox_with("[[fault]]\noperations = ['feed.receive']\nnth = 1\nthrottle = { lasting = '1s' }")
            .await;
    let place = Workplace::new(&format!("http://{address}"), "");
    let mut agent = place.start();
    agent.wait_for("rate_limit.paused", |record| record["reason"] == "too_many_requests").await;
    // Said after it is decided and before it is stored: the end of the poll comes later than both.
    agent.wait_for("poll.completed", |_| true).await;
    agent.signal(Signal::KILL);
    agent.end().await;

    let before = n_requests(&sandbox.ledger());
    let mut agent = place.start();
    let paused = agent.wait_for("rate_limit.paused", |record| record["reason"] == "stored").await;
    let left_ms = paused["wait_ms"].as_u64().unwrap();
    assert!(0 < left_ms && left_ms < 67_000, "{paused}");
    sleep(Duration::from_secs(4)).await;
    assert_eq!(n_requests(&sandbox.ledger()), before);
    // What is left of a pause shrinks with it.
    agent.signal(Signal::KILL);
    agent.end().await;
    let mut agent = place.start();
    let paused = agent.wait_for("rate_limit.paused", |record| record["reason"] == "stored").await;
    assert!(paused["wait_ms"].as_u64().unwrap() + 4_000 <= left_ms, "{paused}");
}

#[tokio::test]
async fn after_a_429_all_routes_of_all_feeds_of_the_account_are_silent() {
    for throttled in ["feed.receive", "feed.commit", "feed.config"] {
        let fault =
            format!("[[fault]]\noperations = ['{throttled}']\nnth = 1\nthrottle = {{ lasting = '1s' }}");
        let settings = Settings::parse(&fault).unwrap();
        let (sandbox, address) = sandbox(Options { count: 5_000, settings, ..Options::default() }).await;
        // The sibling's first poll is due after half the interval; either drain would take minutes.
        let paces = "[poll]\ninterval = \"5s\"\n[requests]\nper_second = 20\n";
        let more = format!("{paces}{}", feed_tables("sibling", "store", address, ""));
        let place = Workplace::new(&format!("http://{address}"), &more);
        let mut agent = place.start();
        agent.wait_for("rate_limit.paused", |_| true).await;
        // What was under way arrives at once.
        sleep(Duration::from_secs(1)).await;
        let before = n_requests(&sandbox.ledger());
        sleep(Duration::from_secs(5)).await;
        assert_eq!(n_requests(&sandbox.ledger()), before, "a 429 to {throttled}");
    }
}

#[tokio::test]
async fn another_token_in_the_file_heals_a_refused_feed_without_a_restart() {
    let (sandbox, address) = sandbox_with("[[fault]]\nnth = 1\nrotate_token = 'for good'").await;
    let place = Workplace::new(&format!("http://{address}"), "[poll]\ninterval = \"5s\"\n");
    let token = place.path().join("token");
    put_secret(&token, TOKEN);
    replace(&place, &format!("app_token = \"{TOKEN}\""), &format!("app_token = {{ file = {token:?} }}"));
    let mut agent = place.start();
    let degraded = agent.wait_for("account.degraded", |_| true).await;
    assert_eq!(degraded["class"], "unauthorized");
    assert!(degraded["what_to_do"].as_str().unwrap().contains("token"), "{degraded}");
    // The same token again is no reason to try it again.
    sleep(Duration::from_secs(6)).await;
    let before = n_requests(&sandbox.ledger());
    assert!(before <= 2, "the first receive and the configuration: {before}");

    put_secret(&token, "another-token");
    let recovered = agent.wait_for("account.recovered", |_| true).await;
    assert_eq!(recovered["account"], "store");
    agent.signal(Signal::TERM);
    let (_, lines, _) = agent.end().await;
    assert_eq!((count(&lines, "account.degraded"), count(&lines, "account.recovered")), (1, 1));
    assert_eq!(sandbox.ledger().committed, 30);
}

#[tokio::test]
async fn a_token_that_cannot_change_while_it_runs_asks_for_a_restart() {
    let (_sandbox, address) = sandbox_with("[[fault]]\nnth = 1\nrotate_token = 'for good'").await;
    let place = Workplace::new(&format!("http://{address}"), "");
    let mut agent = place.start();
    let degraded = agent.wait_for("account.degraded", |_| true).await;
    assert!(degraded["what_to_do"].as_str().unwrap().contains("restart"), "{degraded}");
    let poll = agent.wait_for("poll.completed", |_| true).await;
    assert_eq!(poll["next_poll_ms"], 300_000);
}

#[tokio::test]
async fn a_feed_without_configuration_says_what_to_do_and_is_polled_slowly() {
    let (_sandbox, address) = sandbox(Options { unconfigured: true, ..Options::default() }).await;
    let place = Workplace::new(&format!("http://{address}"), "");
    let mut agent = place.start();
    let degraded = agent.wait_for("account.degraded", |_| true).await;
    assert_eq!((&degraded["class"], &degraded["level"]), (&"unconfigured".into(), &"ERROR".into()));
    assert!(degraded["what_to_do"].as_str().unwrap().contains("/api/orders/feed/config"), "{degraded}");
    let poll = agent.wait_for("poll.completed", |_| true).await;
    assert_eq!(poll["next_poll_ms"], 300_000);
}

#[tokio::test]
async fn a_redirect_leads_nowhere_and_commits_nothing() {
    let mut other = Server::new_async().await;
    let nobody = [
        other.mock("GET", Matcher::Any).expect(0).create_async().await,
        other.mock("POST", Matcher::Any).expect(0).create_async().await,
    ];
    for status in [301, 302, 307, 308] {
        let mut server = vtex_with_one_event().await;
        let commit = server
            .mock("POST", FEED)
            .with_status(status)
            .with_header("location", &format!("{}{FEED}", other.url()))
            .expect(1)
            .create_async()
            .await;
        let place = Workplace::new(&server.url(), "");
        let mut agent = place.start();
        let failed = agent.wait_for("request.failed", |record| record["operation"] == "feed.commit").await;
        assert_eq!((&failed["status"], &failed["class"]), (&status.into(), &"permanent".into()));
        let rejected = agent.wait_for("commit.rejected", |_| true).await;
        assert_eq!((&rejected["handles"], &rejected["outcome"]), (&1.into(), &"given_up".into()));
        let poll = agent.wait_for("poll.completed", |_| true).await;
        assert_eq!((&poll["journaled"], &poll["committed"]), (&1.into(), &0.into()));
        commit.assert_async().await;
    }
    for method in nobody {
        method.assert_async().await;
    }
}

#[tokio::test]
async fn a_failed_request_is_told_with_every_field_and_no_secret() {
    let body = format!(
        "no\u{1b}[31m such\nthing for {TOKEN} of vtexappkey-store-ABCDEF: {HANDLE}, {} {}",
        "\"quoted\"",
        "and so on ".repeat(2_000)
    );
    let mut server = vtex_with_one_event().await;
    let answer = |mock: Mock| mock.with_status(429).with_header("retry-after", "77").with_body(&body);
    answer(server.mock("POST", FEED)).create_async().await;
    let place = Workplace::new(&server.url(), "[log]\nlevel = \"trace\"\n");
    let mut agent = place.start();
    let failed = agent.wait_for("request.failed", |_| true).await;
    for (field, value) in [
        ("account", Value::from("store")),
        ("operation", "feed.commit".into()),
        ("status", 429.into()),
        ("class", "throttled".into()),
        ("attempt", 1.into()),
        ("retry_after_s", 77.into()),
        ("level", "WARN".into()),
    ] {
        assert_eq!(failed[field], value, "{field}: {failed}");
    }
    assert!(failed["elapsed_ms"].is_u64() && failed["outcome"].is_string(), "{failed}");
    let said = failed["answer"].as_str().unwrap();
    assert!(said.chars().count() <= 512 && said.contains("for *** of ***: ***"), "{said}");
    agent.wait_for("rate_limit.paused", |_| true).await;
    agent.signal(Signal::TERM);
    let (_, lines, stderr) = agent.end().await;
    for line in lines.iter().map(String::as_str).chain([stderr.as_str()]) {
        for secret in [TOKEN, HANDLE, "maxlot", "\u{1b}"] {
            assert!(!line.contains(secret), "{secret} in {line}");
        }
    }
}

#[tokio::test]
async fn a_failure_that_is_tried_again_says_when_and_one_that_is_over_says_so() {
    let fault = "[[fault]]\noperations = ['feed.receive']\nnth = 1\nthrough = 3\nanswer = { status = 503 }";
    let (sandbox, address) = sandbox_with(fault).await;
    let place = Workplace::new(&format!("http://{address}"), "[retry]\nbase_delay = \"200ms\"\n");
    let mut agent = place.start();
    for attempt in 1..=3 {
        let failed = agent.wait_for("request.failed", |_| true).await;
        assert_eq!((&failed["attempt"], &failed["outcome"]), (&attempt.into(), &"retry".into()));
        assert!(failed.get("retry_after_s").is_none(), "{failed}");
        let (wait_ms, full_ms) = (failed["wait_ms"].as_u64().unwrap(), 100 << attempt);
        assert!(full_ms / 2 <= wait_ms && wait_ms <= full_ms, "{failed}");
    }
    let recovered = agent.wait_for("request.recovered", |_| true).await;
    assert_eq!((&recovered["operation"], &recovered["failures"]), (&"feed.receive".into(), &3.into()));
    agent.wait_for("poll.completed", |poll| poll["committed"] == 30).await;
    agent.signal(Signal::TERM);
    let (_, lines, _) = agent.end().await;
    assert_eq!((count(&lines, "request.failed"), count(&lines, "request.recovered")), (3, 1));
    assert_eq!(sandbox.ledger().waiting, 0);
}

#[tokio::test]
async fn the_same_failure_is_told_three_times_then_at_powers_of_two() {
    let address = raw_server::serve(Script::Say(b"")).await;
    let place = Workplace::new(&format!("http://{address}"), FAST);
    let mut agent = place.start();
    let is_receive = |record: &Value| record["operation"] == "feed.receive";
    let mut told = Vec::new();
    while told.last() != Some(&32) {
        let failed = agent.wait_for("request.failed", is_receive).await;
        assert_eq!(failed["class"], "transient");
        told.push(failed["times"].as_u64().unwrap());
    }
    assert_eq!(told, [1, 2, 3, 4, 8, 16, 32]);
}

#[tokio::test]
async fn feeds_of_one_account_share_its_slowest_pace_and_another_account_its_own() {
    let (sandbox, address) = sandbox(Options { count: 2_000, ..Options::default() }).await;
    let slow = "requests.per_second = 4";
    let more = [
        feed_tables("sibling", "store", address, slow),
        feed_tables("other", "elsewhere", address, "requests.per_second = 100"),
        "[requests]\nper_second = 100\n[poll]\ninterval = \"5s\"\n".to_owned(),
    ];
    let place = Workplace::new(&format!("http://{address}"), &more.concat());
    let mut agent = place.start();
    agent.wait_for("agent.ready", |_| true).await;
    let (before, started) = (per_account(&sandbox.ledger()), Instant::now());
    let is_done = |now: [u64; 2]| before[0] < now[0] && now[1] == 2_000;
    while !is_done(per_account(&sandbox.ledger())) {
        assert!(started.elapsed() < PATIENCE, "the other account drains at its own pace");
        sleep(Duration::from_millis(50)).await;
    }
    let (after, share) = (per_account(&sandbox.ledger()), 1.0 + 4.0 * started.elapsed().as_secs_f64());
    let events = |index: usize| (after[index] - before[index]) as f64;
    // Ten events for each receive at most.
    assert!(events(0) <= 10.0 * share, "{before:?} {after:?}");
}

/// Items received so far by the two feeds of the account "store", and by the feed of the other account.
fn per_account(ledger: &Ledger) -> [u64; 2] {
    let received = |is_other: bool| {
        let events = ledger.events.iter().filter(|event| event.app_key.contains("-other-") == is_other);
        events.map(|event| u64::from(event.received)).sum()
    };
    [received(false), received(true)]
}

/// Another feed, of any account; `more` is keys of its table.
fn feed_tables(name: &str, account: &str, address: SocketAddr, more: &str) -> String {
    format!(
        "[accounts.{name}]\naccount = \"{account}\"\nbase_url = \"http://{address}\"\n\
         app_key = \"vtexappkey-{name}-ABCDEF\"\napp_token = \"t\"\n{more}\n"
    )
}

/// With 30 events for each feed.
async fn sandbox_with(settings: &str) -> (Sandbox, SocketAddr) {
    let settings = Settings::parse(settings).unwrap();
    sandbox(Options { count: 30, settings, ..Options::default() }).await
}

/// Answers one event to the first receive and none to the others; what a commit meets is for the test to say.
async fn vtex_with_one_event() -> ServerGuard {
    let mut server = Server::new_async().await;
    let item = format!(
        r#"[{{"handle":"{HANDLE}","orderId":"1-01","state":"handling","currentChange":"2026-03-02T20:54:23Z"}}]"#
    );
    let any_query = Matcher::Regex("maxlot".into());
    // The mock that has not been met as often as it expects goes first.
    server.mock("GET", FEED).match_query(any_query.clone()).with_body(item).expect(1).create_async().await;
    server.mock("GET", FEED).match_query(any_query).with_body("[]").create_async().await;
    let config = r#"{"queue":{"visibilityTimeoutInSeconds":240}}"#;
    server.mock("GET", "/api/orders/feed/config").with_body(config).create_async().await;
    server
}

fn n_requests(ledger: &Ledger) -> u64 {
    ledger.requests.values().sum()
}

fn put_secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

fn replace(place: &Workplace, old: &str, new: &str) {
    let text = std::fs::read_to_string(place.config()).unwrap();
    assert!(text.contains(old));
    std::fs::write(place.config(), text.replace(old, new)).unwrap();
}

fn count(lines: &[String], event: &str) -> usize {
    lines.iter().filter(|line| line.contains(&format!("\"event\":\"{event}\""))).count()
}
