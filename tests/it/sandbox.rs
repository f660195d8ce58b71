//! The sandbox over real sockets, spoken to in raw HTTP.

use std::collections::BTreeSet;
use std::time::Duration;

use order_feed_agent::sandbox::Options;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sandbox_support::{APP_KEY, start};

#[tokio::test]
async fn five_hundred_waiting_events_are_each_received_and_committed_once() {
    let (sandbox, client, _stop) =
        start(Options { count: 500, visibility: Duration::from_secs(3_600), ..Options::default() }).await;
    let mut seen = BTreeSet::new();
    loop {
        let batch = client.receive().await;
        if batch.is_empty() {
            break;
        }
        assert!(batch.len() <= 10);
        batch.iter().for_each(|item| assert!(seen.insert(item["eventId"].to_string()), "twice: {item}"));
        assert_eq!(client.commit(&batch).await, (200, String::new()));
    }
    assert_eq!(seen.len(), 500);
    let ledger = sandbox.ledger();
    assert_eq!((ledger.enqueued, ledger.received, ledger.committed, ledger.waiting), (500, 500, 500, 0));
    let committed = ledger.committed_events().map(|event| Value::from(event.event_id.as_str()).to_string());
    assert_eq!(committed.collect::<BTreeSet<_>>(), seen);
}

#[tokio::test]
async fn an_uncommitted_event_comes_back_with_a_new_handle_and_the_old_one_commits_nothing() {
    let (sandbox, client, _stop) = start(Options { count: 1, ..Options::default() }).await;
    let first = client.receive().await.remove(0);
    assert!(client.receive().await.is_empty());
    sandbox.advance(Duration::from_secs(30));
    let second = client.receive().await.remove(0);
    assert_eq!(first["eventId"], second["eventId"]);
    assert_ne!(first["handle"], second["handle"]);
    assert_eq!(client.commit(&[first]).await.0, 200);
    assert_eq!((sandbox.ledger().committed, sandbox.ledger().waiting), (0, 1));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_bad_request_and_only_a_long_one_is_too_large() {
    let (_sandbox, client, _stop) = start(Options::default()).await;
    for (headers, body, status) in [
        ("Content-Length: 500", "abc", "400"),
        ("Transfer-Encoding: chunked", "zz\r\nabc", "400"),
        ("Transfer-Encoding: chunked", "5\r\nabc", "400"),
        ("Content-Length: 5000000", &"x".repeat(5_000_000), "413"),
    ] {
        let stream = TcpStream::connect(client.address).await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        let request = format!(
            "POST /api/orders/feed HTTP/1.1\r\nHost: sandbox\r\nX-VTEX-API-AppKey: me\r\n\
             X-VTEX-API-AppToken: any\r\n{headers}\r\n\r\n{body}"
        );
        // Both at once: the answer may come before the whole body was taken.
        let sending = async {
            let sent = writing.write_all(request.as_bytes()).await;
            sent.and(writing.shutdown().await).ok();
        };
        let receiving = async {
            let mut head = [0; 12];
            reading.read_exact(&mut head).await.unwrap();
            String::from_utf8(head.to_vec()).unwrap()
        };
        let ((), head) = tokio::join!(sending, receiving);
        assert_eq!(head, format!("HTTP/1.1 {status}"), "{headers} {body:.20}");
    }
}

#[tokio::test]
async fn a_list_is_no_commit() {
    let (_sandbox, client, _stop) = start(Options::default()).await;
    for body in ["[[]]", "[]", "{}"] {
        assert_eq!(client.ask("POST", "/api/orders/feed", body).await.0, 400, "{body}");
    }
}

#[tokio::test]
async fn items_of_any_shape_can_be_pushed() {
    let (sandbox, client, _stop) = start(Options::default()).await;
    let odd = [json!(7), json!({"orderId": 7}), json!({"orderId": "1-01", "handle": null})];
    sandbox.push(APP_KEY, &odd).unwrap();
    let batch = client.receive().await;
    assert_eq!(batch.len(), 3);
    assert!(batch.contains(&odd[0]) && batch.contains(&odd[2]));
    assert!(batch.iter().any(|item| item["orderId"] == 7 && item["handle"].is_string()));
}

#[tokio::test]
async fn an_item_has_the_documented_fields_and_a_handle_of_real_length() {
    let (_sandbox, client, _stop) = start(Options { count: 10, ..Options::default() }).await;
    for item in client.receive().await {
        let fields: Vec<&String> = item.as_object().unwrap().keys().collect();
        let documented =
            ["currentChange", "domain", "eventId", "handle", "lastChange", "lastState", "orderId", "state"];
        assert_eq!(fields, documented);
        let length = item["handle"].as_str().unwrap().len();
        assert!((1_300..1_500).contains(&length), "{length}");
    }
}

#[tokio::test]
async fn the_configuration_tells_visibility_and_backlog() {
    let visibility = Duration::from_secs(240);
    let (_sandbox, client, _stop) = start(Options { count: 12, visibility, ..Options::default() }).await;
    client.receive().await;
    let (status, body) = client.ask("GET", "/api/orders/feed/config", "").await;
    let config: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(config["queue"]["visibilityTimeoutInSeconds"], 240);
    assert_eq!(config["quantity"], 12, "hidden messages count");
    assert!(config["approximateAgeOfOldestMessageInSeconds"].is_f64());
}

#[tokio::test]
async fn shutdown_ends_an_idle_connection_and_serve_returns() {
    let (_sandbox, client, stop) = start(Options::default()).await;
    let mut idle = TcpStream::connect(client.address).await.unwrap();
    drop(stop.shutdown);
    stop.served.await.unwrap();
    assert_eq!(idle.read(&mut [0; 8]).await.unwrap(), 0);
}
