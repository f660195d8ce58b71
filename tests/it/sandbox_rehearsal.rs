//! The settings files that users copy, and a run in which everything goes wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use order_feed_agent::sandbox::{Options, Settings};
use serde_json::{Value, json};

use crate::sandbox_support::{Client, start};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_fault_file_of_the_manual_is_accepted_and_holds_what_it_says() {
    let page = std::fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let blocks = page.split("```toml\n").skip(1);
    let files: Vec<&str> = blocks.filter_map(|block| block.split("```").next()).collect();
    let files: Vec<&&str> = files.iter().filter(|file| file.contains("[[fault]]")).collect();
    assert!(!files.is_empty());
    for file in files {
        let settings = Settings::parse(file).unwrap();
        assert_eq!(settings.faults.len(), 3);
        assert!(settings.rate_limit.is_some());
    }
}

#[tokio::test]
async fn a_patient_client_loses_nothing_under_every_fault() {
    let file = std::fs::read_to_string(format!("{ROOT}/examples/every-fault.toml")).unwrap();
    // What takes real time is not what this test is about.
    let file = ["\"1s\"", "\"2s\""]
        .iter()
        .fold(file, |file, time| file.replace(time, "\"1ms\""))
        .replace("20ms", "1ms");
    let settings = Settings::parse(&file).unwrap();
    let rules = settings.faults.len();
    let (sandbox, client, _stop) =
        start(Options { count: 400, seed: 1, settings, ..Options::default() }).await;

    let mut seen = BTreeSet::new();
    for _ in 0..3_000 {
        sandbox.advance(Duration::from_secs(5));
        let Some(batch) = receive(&client).await else { continue };
        seen.extend(batch.iter().map(|item| item["eventId"].as_str().unwrap().to_owned()));
        let handles: Vec<&Value> = batch.iter().map(|item| &item["handle"]).collect();
        client.send("POST", "/api/orders/feed", &json!({ "handles": handles }).to_string()).await;
        if sandbox.ledger().waiting == 0 {
            break;
        }
    }
    let ledger = sandbox.ledger();
    assert_eq!(ledger.waiting, 0);
    assert_eq!(ledger.committed, ledger.enqueued);
    assert_eq!(ledger.events.iter().map(|event| event.event_id.clone()).collect::<BTreeSet<_>>(), seen);
    assert_eq!(ledger.faults.len(), rules);
}

/// The items of an answer that is whole, successful and not compressed.
async fn receive(client: &Client) -> Option<Vec<Value>> {
    let answer = client.send("GET", "/api/orders/feed", "").await;
    serde_json::from_slice(&answer.body).ok().filter(|_| answer.status == 200 && answer.end.is_ok())
}
