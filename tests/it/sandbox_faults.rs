//! Faults of a settings file, as a client meets them on the wire.

use order_feed_agent::sandbox::{Operation, Options, Sandbox, Settings};
use serde_json::{Value, json};

use crate::sandbox_support::{Client, Stop, start};

const FEED: &str = "/api/orders/feed";

#[tokio::test]
async fn a_written_answer_takes_the_place_of_the_true_one_and_nothing_happens() {
    let fault =
        "nth = 1\nanswer = { status = 503, headers = { Retry-After = '7' }, body = '<html>busy</html>' }";
    let (sandbox, client, _stop) = with_fault(fault).await;
    let answer = client.send("GET", FEED, "").await;
    assert_eq!((answer.status, &answer.body[..]), (503, &b"<html>busy</html>"[..]));
    assert!(answer.head.contains("\r\nretry-after: 7\r\n"), "{}", answer.head);
    assert_eq!(sandbox.ledger().received, 0);
    assert_eq!(client.receive().await.len(), 10);
    assert_eq!(sandbox.ledger().faults, [1]);
}

#[tokio::test]
async fn a_commit_may_be_done_although_its_answer_says_otherwise() {
    let fault = "operations = ['feed.commit']\nnth = 1\nanswer = { status = 500, after_effect = true }";
    let (sandbox, client, _stop) = with_fault(fault).await;
    let batch = client.receive().await;
    assert_eq!(client.commit(&batch).await.0, 500);
    assert_eq!(sandbox.ledger().committed, 10);
}

#[tokio::test]
async fn an_answer_is_lost_or_reset_before_or_after_its_effect() {
    for (key, reset) in [("lose_answer", false), ("reset", true)] {
        for (when, committed) in [("before-effect", 0), ("after-effect", 10)] {
            let fault = format!("operations = ['feed.commit']\nnth = 1\n{key} = '{when}'");
            let (sandbox, client, _stop) = with_fault(&fault).await;
            let batch = client.receive().await;
            let handles: Vec<&Value> = batch.iter().map(|item| &item["handle"]).collect();
            let answer = client.send("POST", FEED, &json!({ "handles": handles }).to_string()).await;
            assert_eq!(answer.status, 0, "{key}");
            assert_eq!(answer.end.is_err(), reset, "{key}: {:?}", answer.end);
            assert_eq!(sandbox.ledger().committed, committed, "{key} {when}");
        }
    }
}

#[tokio::test]
async fn a_cut_answer_is_shorter_than_it_says() {
    let (_sandbox, client, _stop) = with_fault("nth = 1\ncut = '100'").await;
    let answer = client.send("GET", FEED, "").await;
    assert_eq!((answer.status, answer.body.len()), (200, 100));
    assert!(announced(&answer.head) > 10_000, "{}", answer.head);
}

#[tokio::test]
async fn a_truncated_answer_is_not_json_any_more() {
    let (_sandbox, client, _stop) = with_fault("nth = 1\ntruncate = '100'").await;
    let answer = client.send("GET", FEED, "").await;
    assert_eq!((answer.status, answer.body.len(), announced(&answer.head)), (200, 100, 100));
    assert!(serde_json::from_slice::<Value>(&answer.body).is_err());
}

#[tokio::test]
async fn late_and_dripping_answers_are_the_true_ones() {
    for fault in ["delay = '20ms'", "drip = { bytes = '1KiB', every = '1ms' }", "pad = '200KiB'"] {
        let (sandbox, client, _stop) = with_fault(&format!("nth = 1\n{fault}")).await;
        let answer = client.send("GET", FEED, "").await;
        assert_eq!(announced(&answer.head), answer.body.len(), "{fault}");
        let items: Vec<Value> = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((items.len(), sandbox.ledger().received), (10, 10), "{fault}");
    }
}

#[tokio::test]
async fn a_hanging_request_has_neither_answer_nor_effect() {
    let (sandbox, client, _stop) = with_fault("nth = 1\nhang = '20ms'").await;
    assert_eq!(client.send("GET", FEED, "").await.status, 0);
    assert_eq!(sandbox.ledger().received, 0);
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_hanging_request() {
    let (sandbox, client, stop) = with_fault("nth = 1\nhang = '1h'").await;
    let asking = tokio::spawn(async move { client.send("GET", FEED, "").await.status });
    while sandbox.ledger().faults != [1] {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    drop(stop.shutdown);
    stop.served.await.unwrap();
    assert_eq!(asking.await.unwrap(), 0);
}

#[tokio::test]
async fn compressed_answers_say_so() {
    let (_sandbox, client, _stop) = with_fault("nth = 1\nencoding = 'gzip'").await;
    let answer = client.send("GET", FEED, "").await;
    assert!(answer.head.contains("\r\ncontent-encoding: gzip\r\n"));
    assert_eq!(answer.body[..2], [0x1f, 0x8b]);

    let (_sandbox, client, _stop) = with_fault("nth = 1\ngzip_bomb = '4MiB'").await;
    let answer = client.send("GET", FEED, "").await;
    assert!(answer.head.contains("\r\ncontent-encoding: gzip\r\n"));
    assert!(answer.body.len() < 50_000);
}

#[tokio::test]
async fn another_content_type_can_be_claimed() {
    let (_sandbox, client, _stop) = with_fault("nth = 1\ncontent_type = 'text/html'").await;
    assert!(client.send("GET", FEED, "").await.head.contains("\r\ncontent-type: text/html\r\n"));
}

#[tokio::test]
async fn a_rotated_token_is_refused_and_the_new_one_is_welcome() {
    let (_sandbox, client, _stop) = with_fault("nth = 2\nrotate_token = 'for good'").await;
    assert_eq!(client.ask("GET", FEED, "").await.0, 200);
    assert_eq!(client.ask("GET", FEED, "").await.0, 401);
    assert_eq!(client.ask("GET", FEED, "").await.0, 401);
    assert_eq!(client.with_token("new").ask("GET", FEED, "").await.0, 200);
}

#[tokio::test]
async fn a_token_may_be_welcome_again_later() {
    let (sandbox, client, _stop) = with_fault("nth = 1\nrotate_token = '30s'").await;
    assert_eq!(client.ask("GET", FEED, "").await.0, 401);
    sandbox.advance(std::time::Duration::from_secs(30));
    assert_eq!(client.ask("GET", FEED, "").await.0, 200);
}

#[tokio::test]
async fn a_configuration_may_vanish_for_good_or_for_a_while() {
    for (lasting, later, waiting) in [("for good", 404, 0), ("30s", 200, 30)] {
        let (sandbox, client, _stop) = with_fault(&format!("nth = 1\nremove_config = '{lasting}'")).await;
        assert_eq!(client.ask("GET", FEED, "").await.0, 404);
        assert_eq!(client.ask("GET", "/api/orders/feed/config", "").await.0, 404);
        sandbox.advance(std::time::Duration::from_secs(30));
        assert_eq!(client.ask("GET", FEED, "").await.0, later, "{lasting}");
        assert_eq!(sandbox.ledger().waiting, waiting, "{lasting}");
        assert_eq!(client.ask("POST", "/api/orders/feed/config", "{}").await.0, 200);
        assert_eq!(client.ask("GET", FEED, "").await.0, 200);
    }
}

#[tokio::test]
async fn a_throttled_account_is_refused_for_the_time_said_and_early_requests_are_counted() {
    let (sandbox, client, _stop) = with_fault("nth = 2\nthrottle = { lasting = '90s' }").await;
    assert_eq!(client.ask("GET", FEED, "").await.0, 200);
    let answer = client.send("GET", FEED, "").await;
    assert_eq!(answer.status, 429);
    assert!(answer.head.contains("\r\nretry-after: 90\r\n"), "{}", answer.head);
    assert_eq!(sandbox.ledger().in_penalty, 0);

    assert_eq!(client.ask("GET", "/api/oms/pvt/orders/1-01", "").await.0, 429, "all routes share the limit");
    let ledger = sandbox.ledger();
    assert_eq!((ledger.throttled, ledger.in_penalty), (2, 1));
    assert_eq!(ledger.penalized[0].operation, Operation::OrderGet);

    sandbox.advance(std::time::Duration::from_secs(90));
    assert_eq!(client.ask("GET", FEED, "").await.0, 200);
}

#[tokio::test]
async fn an_empty_bucket_is_a_429_and_successes_tell_how_full_it_is() {
    let limit = "[rate_limit]\nper_minute = 1\nburst = 2\nheaders = 'ratelimit'";
    let (_sandbox, client, _stop) = with_settings(limit).await;
    for remaining in ["1", "0"] {
        let answer = client.send("GET", FEED, "").await;
        assert!(
            answer.head.contains(&format!("\r\nratelimit-remaining: {remaining}\r\n")),
            "{}",
            answer.head
        );
    }
    assert_eq!(client.ask("GET", FEED, "").await.0, 429);
}

async fn with_fault(fault: &str) -> (Sandbox, Client, Stop) {
    with_settings(&format!("[[fault]]\n{fault}")).await
}

/// With 30 events waiting.
async fn with_settings(settings: &str) -> (Sandbox, Client, Stop) {
    let settings = Settings::parse(settings).unwrap();
    start(Options { count: 30, settings, ..Options::default() }).await
}

/// The length that an answer's head says its body has.
fn announced(head: &str) -> usize {
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.unwrap().trim().parse().unwrap()
}
