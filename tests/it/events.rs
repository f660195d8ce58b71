//! `events list` and `events show`, beside an agent that holds the journal.

use std::process::Output;
use std::time::Duration;

use order_feed_agent::config::Wanted;
use order_feed_agent::event::{Event, Handle, Identity, Item, Leased, date};
use order_feed_agent::journal::{Batch, DeliveryState, Journal, Outbox, Settlement, SqliteJournal};
use serde_json::Value;
use tokio::process::Command;

use crate::support::agent::{BINARY, Workplace};

/// Runs the binary on the configuration of the place.
pub(crate) async fn tool(place: &Workplace, arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).arg("-c").arg(place.config()).output().await.unwrap()
}

/// What it printed; it must have gone well.
pub(crate) async fn told(place: &Workplace, arguments: &[&str]) -> String {
    let output = tool(place, arguments).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) async fn json(place: &Workplace, arguments: &[&str]) -> Value {
    serde_json::from_str(&told(place, arguments).await).unwrap()
}

pub(crate) fn leased(order_id: &str, state: &str, n: usize) -> Item {
    let change = format!("2026-03-02T20:{:02}:{:02}Z", n / 60 % 60, n % 60);
    let identity = Identity {
        account: "store",
        domain: None,
        order_id,
        state: Some(state),
        last_state: None,
        last_change: None,
        current_change: Some(&change),
        event_id: None,
    };
    let event = Event {
        key: identity.key(),
        order_id: order_id.into(),
        state: state.into(),
        current_change: date(&change),
        item: serde_json::json!({ "orderId": order_id, "n": n }).to_string(),
    };
    Item::Leased(Leased { handle: Handle::new("h".into()), event })
}

pub(crate) fn batch(received_at: &str, items: Vec<Item>) -> Batch {
    Batch {
        account: "store".into(),
        source: "http://127.0.0.1:9/api/orders/feed".into(),
        items,
        received_at: received_at.parse().unwrap(),
        lease: Duration::from_secs(30),
    }
}

#[tokio::test]
async fn events_are_listed_and_shown_while_an_agent_holds_the_journal() {
    let place = Workplace::new(
        "http://127.0.0.1:9",
        "[sinks.erp]\ntype = \"webhook\"\nurl = \"https://erp.example/\"\nstates = [\"invoiced\"]\n",
    );
    let journal = SqliteJournal::open(&place.journal()).unwrap();
    for sink in ["erp", "file"] {
        journal.resume(sink).await.unwrap();
    }
    let wanted = Wanted { states: Some(["invoiced".to_owned()].into()), accounts: None };
    journal.note_wanted("erp", &wanted).await.unwrap();
    let items = vec![leased("1-01", "handling", 1), leased("2-01", "invoiced", 2)];
    journal.append(batch("2026-03-02T21:00:00Z", items)).await.unwrap();
    journal.append(batch("2026-03-05T08:00:00Z", vec![leased("1-01", "invoiced", 3)])).await.unwrap();
    let settlement = Settlement { seq: 2, states: vec![(3, DeliveryState::Delivered)] };
    journal.settle("erp", settlement).await.unwrap();

    let table = told(&place, &["events", "list", "--order", "1-01", "--delivery"]).await;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID  ") && lines[0].ends_with("  DELIVERY"), "{table}");
    let cells = |line: &str| -> Vec<String> {
        line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
    };
    let rest = |line: &str| cells(line)[1..].join("|");
    assert_eq!(lines.len(), 3, "{table}");
    assert_eq!(
        rest(lines[1]),
        "2026-03-05T08:00:00.000Z|store|1-01|invoiced|2026-03-02T20:00:03.000Z|erp delivered, file pending"
    );
    assert_eq!(
        rest(lines[2]),
        "2026-03-02T21:00:00.000Z|store|1-01|handling|2026-03-02T20:00:01.000Z|erp skipped, file pending"
    );

    let list =
        json(&place, &["events", "list", "--json", "--until", "2026-03-05", "--state", "invoiced"]).await;
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(
        (list[0]["subject"].as_str(), list[0]["sequence"].as_str()),
        (Some("2-01"), Some("00000000000000000002"))
    );
    let id = list[0]["id"].as_str().unwrap();
    let shown = json(&place, &["events", "show", &id[..8], "--json", "--delivery"]).await;
    assert_eq!((&shown["id"], &shown["event"]["n"]), (&list[0]["id"], &Value::from(2)));
    assert_eq!(
        (shown["deliveries"][0]["sink"].as_str(), shown["deliveries"][0]["state"].as_str()),
        (Some("erp"), Some("delivered"))
    );
    let shown = told(&place, &["events", "show", id]).await;
    assert!(shown.contains("order       2-01\n") && shown.contains(r#"event       {"n":2,"#), "{shown}");
    assert_eq!(json(&place, &["events", "list", "--json", "--order", "none"]).await, Value::Array(vec![]));

    journal.append(batch("2026-03-05T09:00:00Z", vec![leased("3-01", "handling", 4)])).await.unwrap();
}

#[tokio::test]
async fn a_list_that_stops_says_so_and_one_that_is_whole_does_not() {
    let place = Workplace::new("http://127.0.0.1:9", "");
    let journal = SqliteJournal::open(&place.journal()).unwrap();
    let items = (0..60).map(|n| leased("1-01", "handling", n)).collect();
    journal.append(batch("2026-03-02T21:00:00Z", items)).await.unwrap();
    for (arguments, n_lines, note) in [
        (&["events", "list"][..], 51, "note: stopped after 50 events; --limit sets how many\n"),
        (&["events", "list", "--limit", "1"], 2, "note: stopped after 1 event; --limit sets how many\n"),
        (&["events", "list", "--limit", "60"], 61, ""),
        (&["events", "list", "--order", "x"], 0, "note: no such event\n"),
    ] {
        let output = tool(&place, arguments).await;
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stdout.lines().count(), n_lines, "{stdout}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), note);
    }
}

#[tokio::test]
async fn no_order_id_forges_a_line_or_an_escape_on_a_terminal() {
    let place = Workplace::new("http://127.0.0.1:9", "");
    let journal = SqliteJournal::open(&place.journal()).unwrap();
    let hostile = "1\n\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r\u{2028}2";
    let long = "9".repeat(5_000);
    let items = vec![leased(hostile, hostile, 1), leased(&long, "x", 2)];
    journal.append(batch("2026-03-02T21:00:00Z", items)).await.unwrap();
    let table = told(&place, &["events", "list"]).await;
    assert_eq!(table.lines().count(), 3, "{table}");
    let id = json(&place, &["events", "list", "--order", hostile, "--json"]).await[0]["id"].clone();
    let shown = told(&place, &["events", "show", id.as_str().unwrap()]).await;
    assert_eq!(shown.lines().count(), 10, "{shown}");
    for text in [table, shown] {
        let is_harmless = |c: char| c == '\n' || !c.is_control() && !matches!(c, '\u{2028}' | '\u{202e}');
        assert!(text.chars().all(is_harmless), "{text:?}");
        assert!(text.lines().all(|line| line.len() < 1_000), "{text}");
    }
}

#[tokio::test]
async fn a_reader_that_has_enough_is_no_error() {
    let place = Workplace::new("http://127.0.0.1:9", "");
    let journal = SqliteJournal::open(&place.journal()).unwrap();
    let items = (0..1_000).map(|n| leased("1-01", "handling", n)).collect();
    journal.append(batch("2026-03-02T21:00:00Z", items)).await.unwrap();
    for arguments in [
        &["events", "list", "--limit", "100000"][..],
        &["events", "list", "--json", "--limit", "100000"],
        &["dead-letters", "list", "--json"],
        &["dead-letters", "discard", "--all"],
    ] {
        let unread = std::io::pipe().unwrap().1;
        let mut command = Command::new(BINARY);
        let command = command.args(arguments).arg("-c").arg(place.config()).stdout(unread);
        let output =
            command.stderr(std::process::Stdio::piped()).spawn().unwrap().wait_with_output().await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("error"), "{stderr}");
    }
}

#[tokio::test]
async fn an_event_that_is_not_there_is_1_and_wrong_usage_is_64() {
    let place = Workplace::new("http://127.0.0.1:9", "");
    drop(SqliteJournal::open(&place.journal()).unwrap());
    let output = tool(&place, &["events", "show", "0123abcd"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: 0123abcd is the id of no event in the journal\n"
    );
    for arguments in [
        &["events"][..],
        &["events", "show"],
        &["events", "show", "0123abc"],
        &["events", "show", "no-hex-digits"],
        &["events", "list", "--limit", "0"],
        &["events", "list", "--since", "yesterday"],
        &["dead-letters", "retry"],
        &["dead-letters", "retry", "0123abcd", "--all"],
        &["dead-letters", "discard", "0123abcd", "--before", "2h"],
        &["dead-letters", "list", "0123abcd"],
    ] {
        assert_eq!(tool(&place, arguments).await.status.code(), Some(64), "{arguments:?}");
    }
    for since in ["2026-03-02", "2026-03-02T20:54:23", "2026-03-02T20:54:23-03:00", "90m", "4d"] {
        assert_eq!(tool(&place, &["events", "list", "--since", since]).await.status.code(), Some(0));
    }
}
