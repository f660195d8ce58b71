//! The desk beside a journal that is open: what it finds, what it changes, what it never reads.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::config::Wanted;
use crate::event;
use crate::journal::{
    Batch, DeliveryState, FailedAttempt, Journal, Outbox, Settlement, SqliteJournal, Tries,
};
use crate::vtex::wire::read_batch;

const HOUR_S: i64 = 3_600;

struct Bench {
    directory: tempfile::TempDir,
    journal: SqliteJournal,
}

fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(&directory.path().join("journal.db")).unwrap();
    Bench { directory, journal }
}

impl Bench {
    fn desk(&self) -> Desk {
        Desk::open(&self.directory.path().join("journal.db")).unwrap()
    }

    async fn append(&self, account: &str, at_s: i64, body: &str) {
        let batch = Batch {
            account: account.to_owned(),
            source: "https://a.example/api/orders/feed".to_owned(),
            items: read_batch(account, body.as_bytes()).unwrap(),
            received_at: at(at_s),
            lease: Duration::from_secs(30),
        };
        self.journal.append(batch).await.unwrap();
    }

    /// One event, identified by the number.
    async fn event(&self, account: &str, at_s: i64, order_id: &str, n: i64) {
        let body = format!(r#"[{{"handle":"h","orderId":"{order_id}","state":"handling","eventId":"{n}"}}]"#);
        self.append(account, at_s, &body).await;
    }

    async fn settle(&self, sink: &str, seq: i64, states: Vec<(i64, DeliveryState)>) {
        self.journal.resume(sink).await.unwrap();
        self.journal.settle(sink, Settlement { seq, states }).await.unwrap();
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn dead(at_s: i64) -> DeliveryState {
    let last = FailedAttempt { at: at(at_s), reason: "no".into(), answer: Some("gone".into()) };
    DeliveryState::Dead(Tries { attempts: 3, failures: 5, last: Some(last) })
}

/// All that is asked for, in places.
fn listed(desk: &Desk, filter: EventFilter) -> Vec<i64> {
    let mut pages = EventPages::new(filter);
    let mut places = Vec::new();
    while !pages.is_done() {
        places.extend(desk.next_events(&mut pages).unwrap().iter().map(|row| row.seq));
    }
    places
}

fn all_dead(desk: &Desk, selection: Selection, direction: Direction) -> Vec<DeadLetter> {
    let mut pages = DeadLetterPages::new(selection, direction);
    let mut letters = Vec::new();
    while !pages.is_done() {
        letters.extend(desk.next_dead_letters(&mut pages).unwrap());
    }
    letters
}

#[test]
fn nothing_that_is_asked_reads_a_whole_table() {
    let bench = bench();
    let desk = bench.desk();
    for (sql, by) in [
        (events::BY_PLACE, &["events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"][..]),
        (
            events::BY_ORDER,
            &[
                "events USING COVERING INDEX events_by_order (account>?)",
                "events_by_order (account=? AND order_id=? AND seq<?)",
            ],
        ),
        (events::LAST_HOUR, &["events USING COVERING INDEX events_by_hour (<expr><?)"]),
        (events::SPAN_OF_HOUR, &["events USING COVERING INDEX events_by_hour (<expr>=?)"]),
        (events::BY_ID, &["events_by_hour (<expr><?)", "events_by_hour (<expr>=? AND id>? AND id<?)"]),
        (
            dead_letters::NEWEST_FIRST,
            &["d USING INDEX dead_letters ((seq,sink)<(?,?))", "e USING INTEGER PRIMARY KEY"],
        ),
        (
            dead_letters::OLDEST_FIRST,
            &["d USING INDEX dead_letters ((seq,sink)>(?,?))", "e USING INTEGER PRIMARY KEY"],
        ),
        (dead_letters::OF_EVENT, &["d USING INDEX dead_letters (seq=?)", "e USING INTEGER PRIMARY KEY"]),
        (dead_letters::RETRY, &["deliveries USING PRIMARY KEY (sink=? AND seq=?)"]),
        (dead_letters::DISCARD, &["deliveries USING PRIMARY KEY (sink=? AND seq=?)"]),
        (deliveries::OF_EVENT, &["deliveries USING PRIMARY KEY (sink=? AND seq=?)"]),
        (quarantine::BEHIND, &["quarantine USING INDEX sqlite_autoindex_quarantine_1 (hash>?)"]),
        (quarantine::ALIKE, &["quarantine USING INDEX sqlite_autoindex_quarantine_1 (hash>? AND hash<?)"]),
        (quarantine::ITEM, &["quarantine USING INDEX sqlite_autoindex_quarantine_1 (hash=?)"]),
        (quarantine::DELETE, &["quarantine USING INDEX sqlite_autoindex_quarantine_1 (hash=?)"]),
    ] {
        let mut statement = desk.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        for parameter in 1..=statement.parameter_count() {
            statement.raw_bind_parameter(parameter, 1).unwrap();
        }
        let mut rows = statement.raw_query();
        let mut plan = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            plan.push(row.get::<_, String>(3).unwrap());
        }
        // The first of an index is read by a scan that ends at once.
        let scans: Vec<&String> = plan
            .iter()
            .filter(|step| step.starts_with("SCAN"))
            .filter(|step| !matches!(&step[5..], "accounts" | "hours" | "CONSTANT ROW"))
            .filter(|step| !step.contains("USING COVERING INDEX"))
            .collect();
        assert!(scans.is_empty(), "{sql}\n{plan:#?}");
        for step in by {
            assert!(plan.iter().any(|told| told.contains(step)), "{step} in {sql}\n{plan:#?}");
        }
    }
}

#[tokio::test]
async fn an_order_is_found_in_every_account_and_the_newest_comes_first() {
    let bench = bench();
    for (n, account) in ["a", "b", "a", "c"].into_iter().enumerate() {
        bench.event(account, 1_000, if n == 2 { "2-01" } else { "1-01" }, n as i64).await;
    }
    let desk = bench.desk();
    let order = |order_id: &str| EventFilter { order_id: Some(order_id.into()), ..EventFilter::default() };
    assert_eq!(listed(&desk, order("1-01")), [4, 2, 1]);
    assert_eq!(listed(&desk, EventFilter { account: Some("b".into()), ..order("1-01") }), [2]);
    assert!(listed(&desk, order("3-01")).is_empty());
    assert!(listed(&desk, EventFilter { state: Some("x".into()), ..EventFilter::default() }).is_empty());
    assert_eq!(listed(&desk, EventFilter::default()), [4, 3, 2, 1]);
}

#[tokio::test]
async fn times_are_kept_to_the_millisecond_also_where_the_clock_was_set_back() {
    let bench = bench();
    // Two hours with a gap between them, then back into the first.
    for (n, at_s) in [10, 3_599, 50 * HOUR_S, 50 * HOUR_S + 1, 20].into_iter().enumerate() {
        bench.event("a", at_s, "1-01", n as i64).await;
    }
    let desk = bench.desk();
    let between = |since: Option<i64>, until: Option<i64>| {
        listed(&desk, EventFilter { since: since.map(at), until: until.map(at), ..EventFilter::default() })
    };
    assert_eq!(between(Some(0), None), [4, 3, 5, 2, 1]);
    assert_eq!(between(Some(20), Some(50 * HOUR_S)), [5, 2]);
    assert_eq!(between(Some(50 * HOUR_S), None), [4, 3]);
    assert_eq!(between(None, Some(50 * HOUR_S + 1)), [3, 5, 2, 1]);
    assert!(between(Some(51 * HOUR_S), None).is_empty());
    assert!(between(None, Some(10)).is_empty());
}

#[tokio::test]
async fn more_than_a_page_is_listed_whole_and_in_order_by_every_way() {
    let bench = bench();
    let items: Vec<String> = (0..1_000)
        .map(|n| format!(r#"{{"handle":"h","orderId":"1-01","state":"x","eventId":"{n}"}}"#))
        .collect();
    bench.append("a", 5, &format!("[{}]", items.join(","))).await;
    bench.append("b", 6, &format!("[{}]", items[..200].join(","))).await;
    let desk = bench.desk();
    let expected: Vec<i64> = (1..=1_200).rev().collect();
    let order = EventFilter { order_id: Some("1-01".into()), ..EventFilter::default() };
    let since = EventFilter { since: Some(at(0)), ..EventFilter::default() };
    for filter in [EventFilter::default(), order, since] {
        assert!(listed(&desk, filter.clone()) == expected, "{filter:?}");
    }
}

#[tokio::test]
async fn an_event_is_found_by_its_id_or_the_beginning_of_it_in_any_hour() {
    let bench = bench();
    for n in 0..5 {
        bench.event("a", n * 30 * HOUR_S, "1-01", n).await;
    }
    let desk = bench.desk();
    for entry in bench.journal.entries_after(0, 10, 10_000).await.unwrap() {
        let id = event::hex(&entry.id);
        for text in [&id[..], &id[..8], &id[..11], &id.to_ascii_uppercase()[..]] {
            assert_eq!(desk.event(&text.parse().unwrap()).unwrap(), entry, "{text}");
        }
    }
    let unknown = desk.event(&"00000000".parse().unwrap()).unwrap_err();
    assert!(matches!(unknown, DeskError::NoEvent { .. }), "{unknown}");
    for wrong in ["", "1234567", "1234567g", &"0".repeat(33), "+1234567"] {
        assert!(wrong.parse::<IdPrefix>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn the_beginning_of_several_ids_names_them_all() {
    let bench = bench();
    bench.event("a", 0, "1-01", 1).await;
    bench.event("a", 40 * HOUR_S, "1-01", 2).await;
    let desk = bench.desk();
    for (seq, last) in [(1, 1), (2, 2)] {
        let mut id = [0xab; 16];
        id[15] = last;
        desk.connection.execute("UPDATE events SET id = ?2 WHERE seq = ?1", (seq, id)).unwrap();
    }
    let error = desk.event(&"abababab".parse().unwrap()).unwrap_err().to_string();
    let all = "ab".repeat(15);
    assert_eq!(error, format!("abababab is the beginning of several ids: {all}01, {all}02"));
    assert_eq!(desk.event(&format!("{all}02").parse().unwrap()).unwrap().seq, 2);
}

#[tokio::test]
async fn a_delivery_stands_as_its_row_says_else_as_the_progress_says() {
    let bench = bench();
    let only_new = Wanted { states: Some(["new".to_owned()].into()), accounts: None };
    bench.journal.know_sinks(vec!["erp".to_owned(), "picky".to_owned()], at(0)).await.unwrap();
    bench.journal.note_wanted("picky", &only_new).await.unwrap();
    for n in 1..=5 {
        bench.event("a", 0, &format!("{n}-01"), n).await;
    }
    let states = vec![(1, dead(7)), (4, DeliveryState::Delivered)];
    bench.settle("erp", 3, states).await;
    let desk = bench.desk();
    let passed = |name: &str, from, to| (name.to_owned(), Passed { from, to });
    let sinks = BTreeMap::from([passed("erp", 0, 3), passed("late", 2, 4), passed("picky", 0, 9)]);
    let stands = |seq| -> Vec<&str> {
        let deliveries = desk.deliveries((seq, "a", "handling"), &sinks).unwrap();
        deliveries.iter().map(|delivery| delivery.standing.as_str()).collect()
    };
    assert_eq!(desk.sinks().unwrap()["erp"], Passed { from: 0, to: 3 });
    let told: Vec<_> = (1..=5).map(stands).collect();
    assert_eq!(
        told,
        [
            ["dead", "skipped", "skipped"],
            ["delivered", "skipped", "skipped"],
            ["delivered", "delivered", "skipped"],
            ["delivered", "delivered", "skipped"],
            ["pending", "pending", "skipped"]
        ]
    );
}

#[tokio::test]
async fn a_retried_dead_letter_is_pending_from_the_start_and_a_discarded_one_stays_known() {
    let bench = bench();
    for n in 1..=3 {
        bench.event("a", 0, &format!("{n}-01"), n).await;
    }
    bench.settle("erp", 3, (1..=3).map(|seq| (seq, dead(seq * 10))).collect()).await;
    bench.settle("shop", 3, vec![(2, dead(5))]).await;
    let mut desk = bench.desk();
    bench.journal.look_for_changes().await.unwrap();

    let letters = all_dead(&desk, Selection::default(), Direction::NewestFirst);
    let told = |letters: &[DeadLetter]| -> Vec<(String, String)> {
        let tell =
            |letter: &DeadLetter| (letter.sink().unwrap().to_owned(), letter.order_id.clone().unwrap());
        letters.iter().map(tell).collect()
    };
    let pair = |sink: &str, order_id: &str| (sink.to_owned(), order_id.to_owned());
    assert_eq!(
        told(&letters),
        [pair("erp", "3-01"), pair("shop", "2-01"), pair("erp", "2-01"), pair("erp", "1-01")]
    );
    let before = Selection { before: Some(at(20)), sink: Some("erp".into()) };
    assert_eq!(told(&all_dead(&desk, before, Direction::OldestFirst)), [pair("erp", "1-01")]);

    let id: IdPrefix = event::hex(&letters[1].id).parse().unwrap();
    let both = desk.dead_letters(&id, &Selection::default()).unwrap();
    assert_eq!(told(&both), [pair("erp", "2-01"), pair("shop", "2-01")]);
    assert_eq!(desk.retry(&both).unwrap(), 2);
    assert_eq!(desk.retry(&both).unwrap(), 0, "it is not dead any more");
    assert_eq!(desk.discard(&letters[3..]).unwrap(), 1);

    let mut altered = bench.journal.altered();
    altered.borrow_and_update();
    bench.journal.look_for_changes().await.unwrap();
    assert!(altered.has_changed().unwrap());
    let open = bench.journal.open_deliveries("erp", 0, 10).await.unwrap();
    let DeliveryState::Dead(Tries { last, .. }) = dead(20) else { unreachable!() };
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].1, DeliveryState::Pending(Tries { attempts: 0, failures: 0, last }));
    let sinks = desk.sinks().unwrap();
    let gone = desk.deliveries((1, "a", "handling"), &sinks).unwrap();
    assert_eq!((gone[0].standing, gone[0].tries.attempts), (Standing::Discarded, 3));
    let error = desk.dead_letters(&id, &Selection::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("{id} is no dead letter"));
}

#[tokio::test]
async fn a_quarantined_item_becomes_the_event_that_it_would_have_been() {
    let bench = bench();
    let item = r#""orderId":"1-01","state":"handling","currentChange":"2026-03-02T20:54:23Z""#;
    bench.append("a", 0, &format!("[{{{item}}}]")).await;
    let mut desk = bench.desk();
    let sources = BTreeMap::from([("a".to_owned(), "https://new.example/api/orders/feed".to_owned())]);
    let letters = all_dead(&desk, Selection::default(), Direction::NewestFirst);
    assert_eq!((letters.len(), letters[0].order_id.as_deref(), letters[0].sink()), (1, Some("1-01"), None));
    let error = desk.decode(&letters[0], &BTreeMap::new(), at(9)).unwrap_err();
    assert!(error.to_string().contains("the account a, which is not configured"), "{error}");
    assert!(desk.decode(&letters[0], &sources, at(9)).unwrap());
    assert_eq!(all_dead(&desk, Selection::default(), Direction::NewestFirst), []);

    // The feed gives it again, now with a handle: the journal knows it.
    bench.append("a", 100_000, &format!(r#"[{{"handle":"h",{item}}}]"#)).await;
    let entries = bench.journal.entries_after(0, 10, 10_000).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].source.as_str(), entries[0].received_at), (sources["a"].as_str(), at(9)));
    assert_eq!(entries[0].item, format!("{{{item}}}"));

    // And the other way round.
    bench.append("a", 200_000, &format!("[{{{item}}}]")).await;
    let letters = all_dead(&desk, Selection::default(), Direction::OldestFirst);
    assert!(!desk.decode(&letters[0], &sources, at(9)).unwrap());
    assert_eq!(bench.journal.entries_after(0, 10, 10_000).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_item_that_still_names_no_order_stays_until_it_is_discarded() {
    let bench = bench();
    bench.append("a", 0, r#"["a bare handle", {"handle":"h"}]"#).await;
    let mut desk = bench.desk();
    let sources = BTreeMap::from([("a".to_owned(), "https://a.example".to_owned())]);
    let letters = all_dead(&desk, Selection::default(), Direction::OldestFirst);
    let mut reasons: Vec<String> = letters
        .iter()
        .map(|letter| desk.decode(letter, &sources, at(9)).unwrap_err().to_string().split_off(33))
        .collect();
    reasons.sort();
    assert_eq!(
        reasons,
        [
            "still cannot be decoded: the item has no orderId",
            "still cannot be decoded: the item is not an object"
        ]
    );
    assert_eq!(all_dead(&desk, Selection::default(), Direction::OldestFirst), letters);
    let erp = Selection { sink: Some("erp".into()), ..Selection::default() };
    assert_eq!(all_dead(&desk, erp, Direction::OldestFirst), []);
    assert_eq!(desk.discard(&letters).unwrap(), 2);
    assert_eq!(all_dead(&desk, Selection::default(), Direction::OldestFirst), []);
}

#[test]
fn a_journal_that_is_not_there_or_not_of_this_version_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let refused = |expected: &str| {
        let error = Desk::open(&path).err().unwrap();
        let text = crate::observe::logging::ErrorChain(&error).to_string();
        assert!(text.contains(expected) && text.contains("journal.db"), "{text}");
    };
    refused("there is none yet");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    std::fs::write(&path, "").unwrap();
    refused("there is none yet");
    std::fs::write(&path, "somebody's notes\n".repeat(100)).unwrap();
    refused("is not a readable journal");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    refused("is a directory");
    std::fs::remove_dir(&path).unwrap();

    drop(SqliteJournal::open(&path).unwrap());
    for (version, expected) in [(2, "an older version (schema 2"), (99, "a newer version (schema 99")] {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        let before = std::fs::read(&path).unwrap();
        refused(expected);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
