//! What goes and what stays.

use std::time::Duration;

use jiff::Timestamp;

use crate::event::{self, Event, Handle, Identity, Item, Leased};
use crate::journal::{
    Batch, DeliveryState, Journal, Outbox, Progress, Pruned, Settlement, SqliteJournal, Tries,
};

const DAY: i64 = 86_400;
const RETENTION: Duration = Duration::from_secs(30 * DAY as u64);

fn day(day: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + day * DAY).unwrap()
}

fn item(n: u32, received_at: Timestamp) -> Item {
    let (order_id, date) = (format!("o-{n}"), received_at.to_string());
    let identity = Identity {
        account: "store",
        domain: None,
        order_id: &order_id,
        state: Some("handling"),
        last_state: None,
        last_change: None,
        current_change: Some(&date),
        event_id: None,
    };
    let (key, current_change) = (identity.key(), event::date(&date));
    let item = format!(r#"{{"orderId":"{order_id}","filler":"{}"}}"#, "x".repeat(500));
    let event = Event { key, state: "handling".into(), current_change, item, order_id };
    Item::Leased(Leased { handle: Handle::new("h".into()), event })
}

/// Journals `n` events that came on that day; returns how many were new.
async fn append(journal: &SqliteJournal, on: i64, n: u32) -> usize {
    let batch = Batch {
        account: "store".into(),
        source: "http://127.0.0.1/api/orders/feed".into(),
        items: (0..n).map(|n| item(n, day(on))).collect(),
        received_at: day(on),
        lease: Duration::from_secs(30),
    };
    journal.append(batch).await.unwrap().n_new
}

async fn places(journal: &SqliteJournal) -> Vec<i64> {
    journal.headings_after(0, 10_000).await.unwrap().into_iter().map(|heading| heading.seq).collect()
}

async fn delivered_up_to(journal: &SqliteJournal, sink: &str, seq: i64) {
    journal.resume(sink).await.unwrap();
    journal.record_progress(sink, Progress { seq, mark: None }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn delivered_events_go_when_they_are_old_and_what_is_pending_or_dead_never() {
    let journal = SqliteJournal::in_memory().unwrap();
    append(&journal, 0, 5).await;
    append(&journal, 20, 2).await;
    journal.resume("erp").await.unwrap();
    let tries = Tries { attempts: 20, failures: 20, last: None };
    let states = vec![(2, DeliveryState::Pending(tries.clone())), (4, DeliveryState::Dead(tries))];
    journal.settle("erp", Settlement { seq: 7, states }).await.unwrap();

    assert_eq!(journal.prune(RETENTION, day(29)).await.unwrap(), Pruned::default());
    let pruned = journal.prune(RETENTION, day(31)).await.unwrap();
    assert_eq!((pruned.n_events, places(&journal).await), (3, vec![2, 4, 6, 7]));
    journal.prune(RETENTION, day(400)).await.unwrap();
    assert_eq!(places(&journal).await, [2, 4]);

    let states = vec![(2, DeliveryState::Delivered)];
    journal.settle("erp", Settlement { seq: 7, states }).await.unwrap();
    journal.prune(RETENTION, day(400)).await.unwrap();
    assert_eq!(places(&journal).await, [4]);
    append(&journal, 401, 1).await;
    assert_eq!(places(&journal).await, [4, 8], "no place is used again");
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_behind_keeps_its_events() {
    let journal = SqliteJournal::in_memory().unwrap();
    append(&journal, 0, 5).await;
    delivered_up_to(&journal, "file", 5).await;
    delivered_up_to(&journal, "erp", 2).await;
    journal.prune(RETENTION, day(100)).await.unwrap();
    assert_eq!(places(&journal).await, [3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn without_a_sink_events_go_by_age() {
    let journal = SqliteJournal::in_memory().unwrap();
    append(&journal, 0, 3).await;
    append(&journal, 50, 1).await;
    journal.prune(RETENTION, day(60)).await.unwrap();
    assert_eq!(places(&journal).await, [4]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_was_removed_keeps_its_events_for_the_retention_and_is_then_forgotten() {
    let journal = SqliteJournal::in_memory().unwrap();
    append(&journal, 0, 1_200).await;
    delivered_up_to(&journal, "file", 1_200).await;
    delivered_up_to(&journal, "erp", 0).await;
    let waiting = (1..=1_200).map(|seq| (seq, DeliveryState::Pending(Tries::default()))).collect();
    journal.settle("erp", Settlement { seq: 1_200, states: waiting }).await.unwrap();

    journal.know_sinks(vec!["file".into()], day(40)).await.unwrap();
    journal.prune(RETENTION, day(69)).await.unwrap();
    assert_eq!(places(&journal).await.len(), 1_200);
    // It comes back in time.
    journal.know_sinks(vec!["erp".into(), "file".into()], day(69)).await.unwrap();
    journal.know_sinks(vec!["file".into()], day(70)).await.unwrap();
    journal.know_sinks(vec!["file".into()], day(90)).await.unwrap();
    assert_eq!(journal.prune(RETENTION, day(99)).await.unwrap().n_events, 0);
    let pruned = journal.prune(RETENTION, day(101)).await.unwrap();
    assert_eq!(pruned.sinks, [("erp".to_owned(), 1_200)].into());
    assert_eq!((pruned.n_events, places(&journal).await), (1_200, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_recognised_for_as_long_as_vtex_may_hand_it_out() {
    let journal = SqliteJournal::in_memory().unwrap();
    append(&journal, 0, 700).await;
    let short = Duration::from_secs(DAY as u64);
    let pruned = journal.prune(short, day(14)).await.unwrap();
    assert_eq!((pruned.n_events, pruned.n_keys), (700, 0));
    assert_eq!(append(&journal, 0, 700).await, 0, "not journaled again");
    assert_eq!(journal.prune(short, day(16)).await.unwrap().n_keys, 700);
}

#[tokio::test(start_paused = true)]
async fn the_file_becomes_small_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = SqliteJournal::open(&path).unwrap();
    for _ in 0..4 {
        append(&journal, 0, 3_000).await;
    }
    append(&journal, 1, 3_000).await;
    let free = || async {
        journal
            .read("test", |connection| {
                let pages = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
                Ok((pages("freelist_count")?, pages("page_count")?))
            })
            .await
            .unwrap()
    };
    let (_, before) = free().await;
    journal.prune(RETENTION, day(400)).await.unwrap();
    let (n_free, after) = free().await;
    assert!(
        after < before / 3 && n_free <= super::PAGES,
        "{before} pages, then {after}, {n_free} of them free"
    );
}
