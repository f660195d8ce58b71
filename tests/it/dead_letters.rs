//! `dead-letters list`, `show`, `retry` and `discard`, beside an agent that holds the journal.

use order_feed_agent::event::{Item, Unusable, UnusableReason, hash};
use order_feed_agent::journal::{
    DeliveryState, FailedAttempt, Journal, Outbox, Settlement, SqliteJournal, Tries,
};
use serde_json::{Value, json};

use crate::events::{batch, json, leased, told, tool};
use crate::support::agent::Workplace;

fn dead(at: &str) -> DeliveryState {
    let last = FailedAttempt {
        at: at.parse().unwrap(),
        reason: "the receiver answered 500".into(),
        answer: Some("\u{1b}[31mno\n".into()),
    };
    DeliveryState::Dead(Tries { attempts: 20, failures: 31, last: Some(last) })
}

/// Events 1 to `n`, each a dead letter of these sinks.
async fn journal(place: &Workplace, n: usize, sinks: &[&str]) -> SqliteJournal {
    let journal = SqliteJournal::open(&place.journal()).unwrap();
    let items = (0..n).map(|n| leased(&format!("{n}-01"), "handling", n)).collect();
    journal.append(batch("2026-03-02T21:00:00Z", items)).await.unwrap();
    for sink in sinks {
        journal.resume(sink).await.unwrap();
        let n = i64::try_from(n).unwrap();
        let states = (1..=n).map(|seq| (seq, dead("2026-03-03T09:00:00Z"))).collect();
        journal.settle(sink, Settlement { seq: n, states }).await.unwrap();
    }
    journal
}

fn quarantined(account: &str, rest: &str) -> Item {
    Item::Unusable(Unusable {
        handle: None,
        hash: hash([Some(account), Some(rest)]),
        rest: rest.into(),
        reason: UnusableReason::NoHandle,
    })
}

#[tokio::test]
async fn without_a_journal_of_this_version_there_is_one_line_and_nothing_is_made() {
    let commands: [&[&str]; 6] = [
        &["events", "list"],
        &["events", "show", "0123abcd"],
        &["dead-letters", "list"],
        &["dead-letters", "show", "0123abcd"],
        &["dead-letters", "retry", "--all"],
        &["dead-letters", "discard", "0123abcd"],
    ];
    let place = Workplace::new("http://127.0.0.1:9", "");
    let refused = async |why: &str| {
        for arguments in commands {
            let output = tool(&place, arguments).await;
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
            let path = place.journal();
            assert!(stderr.starts_with(&format!("error: journal {}: {why}", path.display())), "{stderr}");
        }
    };
    refused("there is none yet; `order-feed-agent run` makes it").await;
    assert!(!place.journal().try_exists().unwrap());

    rusqlite::Connection::open(place.journal())
        .unwrap()
        .execute_batch("CREATE TABLE recipes (name TEXT)")
        .unwrap();
    refused("this is a database of another program").await;

    std::fs::remove_file(place.journal()).unwrap();
    drop(SqliteJournal::open(&place.journal()).unwrap());
    rusqlite::Connection::open(place.journal()).unwrap().pragma_update(None, "user_version", 2).unwrap();
    let before = std::fs::read(place.journal()).unwrap();
    refused("written by an older version").await;
    assert_eq!(std::fs::read(place.journal()).unwrap(), before);
}

#[tokio::test]
async fn dead_letters_are_listed_and_shown_without_any_secret() {
    let place = Workplace::new(
        "http://127.0.0.1:9",
        "[sinks.erp]\ntype = \"webhook\"\nurl = \"https://erp.example/\"\nsigning_secret = { credential = \"signing\" }\n",
    );
    let config = std::fs::read_to_string(place.config()).unwrap();
    let config =
        config.replace("app_token = \"", "app_token = { credential = \"").replacen("4711\"", "4711\" }", 1);
    std::fs::write(place.config(), config).unwrap();
    let journal = journal(&place, 1, &["erp"]).await;
    journal
        .append(batch("2026-03-02T22:00:00Z", vec![quarantined("store", r#"{"orderId":"9-01"}"#)]))
        .await
        .unwrap();

    let list = json(&place, &["dead-letters", "list", "--json"]).await;
    let id = list[0]["id"].as_str().unwrap();
    let quarantined_id = list[1]["id"].as_str().unwrap();
    assert_eq!(
        list,
        json!([
            {
                "sink": "erp", "id": id, "account": "store", "subject": "0-01", "state": "handling",
                "reason": "the receiver answered 500", "attempts": 20, "failed_at": "2026-03-03T09:00:00Z",
                "answer": "\u{1b}[31mno\n"
            },
            {
                "sink": null, "id": quarantined_id, "account": "store", "subject": "9-01", "state": "",
                "reason": "the item has no handle", "attempts": 1, "failed_at": "2026-03-02T22:00:00Z",
                "answer": null
            },
        ])
    );
    let table = told(&place, &["dead-letters", "list"]).await;
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.lines().nth(2).unwrap().starts_with("(quarantine)  "), "{table}");
    let shown = told(&place, &["dead-letters", "show", id]).await;
    assert!(shown.contains("answer    \\u001b[31mno\\n\n") && !shown.contains('\u{1b}'), "{shown}");
    let shown = json(&place, &["dead-letters", "show", &quarantined_id[..9], "--json"]).await;
    assert_eq!(shown[0]["event"], json!({ "orderId": "9-01" }));
}

#[tokio::test]
async fn more_dead_letters_than_a_step_takes_are_retried_beside_an_agent_that_goes_on_writing() {
    let place = Workplace::new(
        "http://127.0.0.1:9",
        "[sinks.erp]\ntype = \"webhook\"\nurl = \"https://erp.example/\"\n",
    );
    // Three for each event, so that a step ends in the middle of one.
    let journal = journal(&place, 400, &["erp", "gone", "shop"]).await;
    journal.look_for_changes().await.unwrap();
    let list = json(&place, &["dead-letters", "list", "--json", "--sink", "erp"]).await;
    assert_eq!(list.as_array().unwrap().len(), 400);
    let list = json(&place, &["dead-letters", "list", "--json"]).await;
    assert_eq!(list.as_array().unwrap().len(), 1_200);

    let retrying = tool(&place, &["dead-letters", "retry", "--all"]);
    let writing = async {
        for n in 0..20 {
            journal.append(batch("2026-03-04T21:00:00Z", vec![leased("x", "y", n)])).await.unwrap();
        }
    };
    let (output, ()) = tokio::join!(retrying, writing);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "1200 dead letters pending again\na running agent takes them up within 2 s, a stopped one when it starts\n"
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        stderr,
        "note: sink gone is not configured: nobody delivers to it\nnote: sink shop is not configured: nobody delivers to it\n"
    );
    let mut altered = journal.altered();
    altered.borrow_and_update();
    journal.look_for_changes().await.unwrap();
    assert!(altered.has_changed().unwrap());
    for sink in ["erp", "gone", "shop"] {
        let open = journal.open_deliveries(sink, 0, 10_000).await.unwrap();
        let places: Vec<i64> = open.iter().map(|(heading, _)| heading.seq).collect();
        assert_eq!(places, (1..=400).collect::<Vec<i64>>());
        let is_fresh = |state: &DeliveryState| {
            matches!(state, DeliveryState::Pending(Tries { attempts: 0, failures: 0, last: Some(_) }))
        };
        assert!(open.iter().all(|(_, state)| is_fresh(state)));
    }
    assert_eq!(told(&place, &["dead-letters", "retry", "--all"]).await, "no dead letters\n");
}

#[tokio::test]
async fn an_id_means_the_event_in_all_sinks_and_what_cannot_be_done_stops_nothing() {
    let place = Workplace::new("http://127.0.0.1:9", "");
    let journal = journal(&place, 3, &["erp", "file"]).await;
    let list = json(&place, &["dead-letters", "list", "--json", "--sink", "file"]).await;
    let id = |n: usize| list[n]["id"].as_str().unwrap();

    let output = tool(&place, &["dead-letters", "discard", "00000000", id(0)]).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "2 dead letters discarded\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "error: 00000000 is no dead letter\n");
    assert!(
        told(&place, &["dead-letters", "retry", id(1), "--sink", "erp"])
            .await
            .starts_with("1 dead letter pending")
    );
    let again = tool(&place, &["dead-letters", "retry", id(1), "--sink", "erp"]).await;
    let stderr = String::from_utf8(again.stderr).unwrap();
    assert_eq!(
        (again.status.code(), stderr),
        (Some(1), format!("error: {} is no dead letter of sink erp\n", id(1)))
    );

    let event = json(&place, &["events", "show", id(0), "--delivery", "--json"]).await;
    let states = |event: &Value| -> Vec<String> {
        event["deliveries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["state"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(states(&event), ["discarded", "discarded"]);
    let event = json(&place, &["events", "show", id(1), "--delivery", "--json"]).await;
    assert_eq!(states(&event), ["pending", "dead"]);

    let before = ["dead-letters", "discard", "--all", "--before", "2026-03-03T09:00:00Z"];
    assert_eq!(told(&place, &before).await, "no dead letters\n");
    let before = ["dead-letters", "discard", "--all", "--before", "2026-03-03T09:00:01Z", "--sink", "file"];
    assert_eq!(told(&place, &before).await, "2 dead letters discarded\n");
    for arguments in [
        &["dead-letters", "list", "--sink", "nobody"][..],
        &["dead-letters", "retry", "--all", "--sink", "nobody"],
    ] {
        let output = tool(&place, arguments).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), stderr.as_str()),
            (Some(1), "error: no sink is called nobody; there are: erp, file\n")
        );
    }
    drop(journal);
    assert!(told(&place, &["dead-letters", "list"]).await.contains("erp"), "without an agent, too");
}

#[tokio::test]
async fn a_retried_quarantined_item_is_journaled_or_stays_with_its_reason() {
    let place = Workplace::new("http://127.0.0.1:9", "");
    let journal = SqliteJournal::open(&place.journal()).unwrap();
    let good = r#"{"orderId":"9-01","state":"handling","currentChange":"2026-03-02T20:54:23Z"}"#;
    let items = vec![quarantined("store", good), quarantined("store", r#"{"kind":"text","bytes":7}"#)];
    journal.append(batch("2026-03-02T22:00:00Z", items)).await.unwrap();

    let output = tool(&place, &["dead-letters", "retry", "--all"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "1 quarantined item journaled as new events\na running agent takes them up within 2 s, a stopped one when it starts\n"
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.ends_with(" still cannot be decoded: the item is not an object\n"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1);
    let entries = journal.entries_after(0, 10, 10_000).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].source.as_str(), entries[0].item.as_str()),
        ("http://127.0.0.1:9/api/orders/feed", good)
    );
    let left = json(&place, &["dead-letters", "list", "--json"]).await;
    assert_eq!(left.as_array().unwrap().len(), 1);
    assert_eq!(told(&place, &["dead-letters", "discard", "--all"]).await, "1 dead letter discarded\n");
}
