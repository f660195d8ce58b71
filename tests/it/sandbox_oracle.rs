//! The oracle over HTTP: what a test in another language can do.

use order_feed_agent::sandbox::Options;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::sandbox_support::{APP_KEY, Client, start, start_oracle};

#[tokio::test]
async fn events_are_pushed_and_the_ledger_tells_what_became_of_them() {
    let (sandbox, client, _stop) = start(Options::default()).await;
    let (oracle, _stop_oracle) = start_oracle(&sandbox).await;
    let items =
        json!({"app_key": APP_KEY, "items": [{"orderId": "1-01", "eventId": "E1"}, {"orderId": "2-01"}]});
    assert_eq!(ask(&oracle, "POST", "/events", &items).await, (200, json!({"pushed": 2})));
    let batch = client.receive().await;
    assert_eq!(batch.len(), 2);
    client.commit(&batch[..1]).await;

    let (_, ledger) = ask(&oracle, "GET", "/ledger", &json!(null)).await;
    assert_eq!(
        (&ledger["received"], &ledger["committed"], &ledger["waiting"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(ledger["requests"], json!({"feed.receive": 1, "feed.commit": 1}));
    let events = ledger["events"].as_array().unwrap();
    let committed: Vec<&Value> = events.iter().filter(|event| !event["committed_at_ms"].is_null()).collect();
    assert_eq!(committed.len(), 1);
    assert_eq!(committed[0]["order_id"], batch[0]["orderId"]);
    assert!(!ledger.to_string().contains(batch[0]["handle"].as_str().unwrap()));
}

#[tokio::test]
async fn the_clock_moves_and_leases_lapse() {
    let (sandbox, client, _stop) = start(Options { count: 3, ..Options::default() }).await;
    let (oracle, _stop_oracle) = start_oracle(&sandbox).await;
    client.receive().await;
    assert!(client.receive().await.is_empty());
    let (status, moved) = ask(&oracle, "POST", "/clock", &json!({"advance": "30s"})).await;
    assert_eq!(status, 200);
    assert!(moved["now_ms"].as_u64().unwrap() >= 30_000);
    assert_eq!(client.receive().await.len(), 3);
}

#[tokio::test]
async fn what_the_oracle_does_not_understand_it_refuses() {
    let options = Options { unconfigured: true, ..Options::default() };
    let (sandbox, _client, _stop) = start(options).await;
    let (oracle, _stop_oracle) = start_oracle(&sandbox).await;
    for (method, path, body, status) in [
        ("GET", "/", json!(null), 404),
        ("POST", "/ledger", json!({}), 404),
        ("POST", "/clock", json!({"advance": "soon"}), 400),
        ("POST", "/clock", json!({"advance": "32d"}), 400),
        ("POST", "/clock", json!({"back": "1s"}), 400),
        ("POST", "/clock", json!(["30s"]), 400),
        ("POST", "/events", json!([APP_KEY, [1]]), 400),
        ("POST", "/events", json!({"items": []}), 400),
        ("POST", "/events", json!({"app_key": APP_KEY, "items": [1]}), 409),
    ] {
        assert_eq!(ask(&oracle, method, path, &body).await.0, status, "{method} {path} {body}");
    }
}

#[tokio::test]
async fn the_oracle_refuses_an_address_that_others_reach() {
    let (sandbox, _client, _stop) = start(Options::default()).await;
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    assert!(sandbox.serve_oracle(listener, shutdown).await.is_err());
}

async fn ask(oracle: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let (status, answer) = oracle.ask(method, path, &body.to_string()).await;
    (status, serde_json::from_str(&answer).unwrap())
}
