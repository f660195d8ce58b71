//! The journal against redelivery, damage and other owners.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;
use crate::event::{self, Event, Handle, Identity, Item, Leased, Unusable, UnusableReason};
use crate::journal::{DeliveryState, FailedAttempt, Journaled, Mark, Settlement, Tries};

const LEASE: Duration = Duration::from_secs(30);

fn event(order_id: &str, state: &str, current_change: Option<&str>) -> Event {
    let identity = Identity {
        account: "store",
        domain: None,
        order_id,
        state: Some(state),
        last_state: None,
        last_change: None,
        current_change,
        event_id: None,
    };
    Event {
        key: identity.key(),
        order_id: order_id.into(),
        state: state.into(),
        current_change: current_change.and_then(event::date),
        item: format!(r#"{{"orderId":"{order_id}"}}"#),
    }
}

fn leased(handle: &str, event: Event) -> Item {
    Item::Leased(Leased { handle: Handle::new(handle.into()), event })
}

fn batch(at_s: i64, items: Vec<Item>) -> Batch {
    Batch {
        account: "store".into(),
        source: "http://127.0.0.1/api/orders/feed".into(),
        items,
        received_at: jiff::Timestamp::from_second(at_s).unwrap(),
        lease: LEASE,
    }
}

fn journal() -> (tempfile::TempDir, SqliteJournal) {
    let directory = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(&directory.path().join("journal.db")).unwrap();
    (directory, journal)
}

fn handles(appended: &Appended) -> Vec<&str> {
    appended.journaled.iter().map(|journaled| Journaled::handle(journaled).expose()).collect()
}

#[tokio::test]
async fn a_redelivered_event_is_committed_by_its_new_handle_and_stored_once() {
    let (_directory, journal) = journal();
    let event = event("1-01", "handling", Some("2026-03-02T20:54:23Z"));
    journal.append(batch(0, vec![leased("a", event.clone())])).await.unwrap();
    let again = journal.append(batch(1_000_000, vec![leased("b", event)])).await.unwrap();
    assert_eq!((again.n_new, again.n_duplicates, handles(&again)), (0, 1, vec!["b"]));
    assert_eq!(journal.entries_after(0, 10, 10_000).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_event_that_nothing_identifies_is_a_duplicate_only_while_a_lease_may_run() {
    let (_directory, journal) = journal();
    let event = event("1-01", "handling", None);
    for (at_s, n_new) in [(1000, 1), (1029, 0), (1030, 1), (1031, 0), (900, 1)] {
        let appended = journal.append(batch(at_s, vec![leased("h", event.clone())])).await.unwrap();
        assert_eq!(appended.n_new, n_new, "at {at_s} s");
    }
    let entries = journal.entries_after(0, 10, 10_000).await.unwrap();
    let ids: std::collections::BTreeSet<_> = entries.iter().map(|entry| entry.id).collect();
    assert_eq!((entries.len(), ids.len()), (3, 3));
}

#[tokio::test]
async fn a_batch_is_stored_in_the_order_of_the_changes() {
    let (_directory, journal) = journal();
    let items = ["20:54:23.5Z", "20:54:22Z", "20:54:23.45Z"]
        .map(|time| leased(time, event("1-01", time, Some(&format!("2026-03-02T{time}")))));
    journal.append(batch(0, items.into())).await.unwrap();
    let entries = journal.entries_after(0, 10, 10_000).await.unwrap();
    let told: Vec<_> = entries.iter().map(|entry| (entry.state.as_str(), entry.superseded)).collect();
    assert_eq!(told, [("20:54:22Z", true), ("20:54:23.45Z", true), ("20:54:23.5Z", false)]);
}

#[tokio::test]
async fn a_late_older_change_is_the_superseded_one() {
    let (_directory, journal) = journal();
    journal
        .append(batch(0, vec![leased("a", event("1-01", "new", Some("2026-03-02T21:00:00Z")))]))
        .await
        .unwrap();
    journal
        .append(batch(0, vec![leased("b", event("1-01", "old", Some("2026-03-02T20:00:00Z")))]))
        .await
        .unwrap();
    journal
        .append(batch(0, vec![leased("c", event("2-01", "other", Some("2026-03-02T22:00:00Z")))]))
        .await
        .unwrap();
    let entries = journal.entries_after(0, 10, 10_000).await.unwrap();
    let superseded: Vec<_> =
        entries.iter().filter(|entry| entry.superseded).map(|entry| entry.state.as_str()).collect();
    assert_eq!(superseded, ["old"]);
}

#[tokio::test]
async fn an_unusable_item_is_kept_counted_and_committed() {
    let (_directory, journal) = journal();
    let unusable = |handle: Option<&str>| {
        Item::Unusable(Unusable {
            handle: handle.map(|handle| Handle::new(handle.into())),
            hash: [7; 16],
            rest: "{}".into(),
            reason: UnusableReason::NoOrderId,
        })
    };
    let first = journal.append(batch(0, vec![unusable(Some("a"))])).await.unwrap();
    assert_eq!((first.quarantined.len(), handles(&first)), (1, vec!["a"]));
    let again = journal.append(batch(0, vec![unusable(Some("b")), unusable(None)])).await.unwrap();
    assert_eq!((again.quarantined.len(), handles(&again)), (0, vec!["b"]));
    let times = |connection: &mut Connection| {
        connection.query_row("SELECT times FROM quarantine", [], |row| row.get::<_, i64>(0))
    };
    assert_eq!(journal.read("cannot count", times).await.unwrap(), 3);
}

#[tokio::test]
async fn the_first_sink_starts_at_the_beginning_and_a_later_one_at_the_end() {
    let (_directory, journal) = journal();
    journal
        .append(batch(0, vec![leased("a", event("1-01", "x", None)), leased("b", event("2-01", "x", None))]))
        .await
        .unwrap();
    assert_eq!(
        journal.resume("first").await.unwrap(),
        Resume { progress: Progress::default(), n_skipped: 0 }
    );
    let late = journal.resume("late").await.unwrap();
    assert_eq!(late, Resume { progress: Progress { seq: 2, mark: None }, n_skipped: 2 });

    let progress = Progress { seq: 1, mark: Some(Mark { inode: u64::MAX, length: 77 }) };
    journal.record_progress("first", progress.clone()).await.unwrap();
    assert_eq!(journal.resume("first").await.unwrap(), Resume { progress, n_skipped: 0 });
    assert_eq!(journal.resume("late").await.unwrap().n_skipped, 0);
}

#[tokio::test]
async fn a_page_ends_where_it_holds_enough() {
    let (_directory, journal) = journal();
    let items = (0..5).map(|n| leased("h", event(&format!("{n}-01"), "x", None))).collect();
    journal.append(batch(0, items)).await.unwrap();
    assert_eq!(journal.entries_after(0, 3, 10_000).await.unwrap().len(), 3);
    assert_eq!(journal.entries_after(0, 10, 1).await.unwrap().len(), 1);
    assert_eq!(journal.entries_after(5, 10, 10_000).await.unwrap(), []);
}

#[tokio::test]
async fn events_and_places_outlive_the_process() {
    let (directory, journal) = journal();
    let path = directory.path().join("journal.db");
    journal
        .append(batch(0, vec![leased("a", event("1-01", "x", Some("2026-03-02T20:54:23.7153839Z")))]))
        .await
        .unwrap();
    let before = journal.entries_after(0, 10, 10_000).await.unwrap();
    drop(journal);
    let journal = SqliteJournal::open(&path).unwrap();
    journal.probe().await.unwrap();
    assert_eq!(journal.entries_after(0, 10, 10_000).await.unwrap(), before);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_pause_outlives_the_process_and_the_last_one_counts() {
    let (directory, journal) = journal();
    assert_eq!(journal.pause("store").await.unwrap(), None);
    let at = |second| StoredPause {
        ends_at: jiff::Timestamp::from_second(second).unwrap(),
        length: Duration::from_millis(61_500),
    };
    for second in [9_000, 5_000] {
        journal.store_pause("store", at(second)).await.unwrap();
    }
    drop(journal);
    let journal = SqliteJournal::open(&directory.path().join("journal.db")).unwrap();
    assert_eq!(journal.pause("store").await.unwrap(), Some(at(5_000)));
    assert_eq!(journal.pause("other").await.unwrap(), None);
}

#[tokio::test]
async fn after_a_failed_write_nothing_is_stored_until_a_probe_has_succeeded() {
    let (_directory, journal) = journal();
    let one = |handle: &str, order_id: &str| batch(0, vec![leased(handle, event(order_id, "x", None))]);
    journal.append(one("a", "1-01")).await.unwrap();
    // A row that no transaction can get past, until it is taken away.
    let sabotage = "CREATE TRIGGER sabotage BEFORE INSERT ON events BEGIN SELECT raise(ABORT, 'no'); END";
    journal.read("cannot", |connection| connection.execute_batch(sabotage)).await.unwrap();
    assert!(matches!(journal.append(one("b", "2-01")).await, Err(JournalError::Sqlite { .. })));
    journal.read("cannot", |connection| connection.execute_batch("DROP TRIGGER sabotage")).await.unwrap();
    assert!(matches!(journal.append(one("b", "2-01")).await, Err(JournalError::Suspect { .. })));
    assert!(journal.record_progress("s", Progress::default()).await.is_err());
    assert_eq!(journal.entries_after(0, 10, 10_000).await.unwrap().len(), 1, "reading goes on");

    journal.probe().await.unwrap();
    assert_eq!(journal.append(one("b", "2-01")).await.unwrap().n_new, 1);
}

#[tokio::test]
async fn handles_are_not_stored() {
    let (directory, journal) = journal();
    journal.append(batch(0, vec![leased("canary-handle", event("1-01", "x", None))])).await.unwrap();
    for file in fs::read_dir(directory.path()).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(13).any(|window| window == b"canary-handle"));
    }
}

#[test]
fn a_second_agent_refuses_and_names_the_first() {
    let (directory, _journal) = journal();
    let error = SqliteJournal::open(&directory.path().join("journal.db")).err().unwrap().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
}

#[test]
fn what_is_not_our_journal_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let refused = |expected: &str| {
        let before = fs::read(&path).unwrap();
        let error = SqliteJournal::open(&path).err().unwrap();
        let text = crate::observe::logging::ErrorChain(&error).to_string();
        assert!(text.contains(expected) && text.contains("journal.db"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), before);
    };

    fs::write(&path, "not a database, but somebody's notes\n".repeat(100)).unwrap();
    refused("is not a readable journal");

    fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    refused("database of another program");

    fs::remove_file(&path).unwrap();
    drop(SqliteJournal::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    refused("written by a newer version (schema 99");

    fs::remove_file(&path).unwrap();
    drop(SqliteJournal::open(&path).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    for byte in bytes.iter_mut().skip(4096).step_by(3) {
        *byte ^= 0x5a;
    }
    fs::write(&path, &bytes).unwrap();
    refused("journal.db");
}

#[test]
fn a_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = SqliteJournal::open(directory.path()).err().unwrap().to_string();
    assert!(error.contains("is a directory"), "{error}");
}

/// Three events of one batch, and the sink that begins with them.
async fn with_three_events() -> (tempfile::TempDir, SqliteJournal) {
    let (directory, journal) = journal();
    let items =
        ["1-01", "2-01", "3-01"].map(|id| leased("h", event(id, "handling", Some("2026-03-02T20:54:23Z"))));
    journal.append(batch(0, items.into())).await.unwrap();
    journal.resume("erp").await.unwrap();
    (directory, journal)
}

#[tokio::test]
async fn the_state_of_a_delivery_is_kept_until_the_progress_says_it_too() {
    use DeliveryState::{Dead, Delivered, Pending};
    let (directory, journal) = with_three_events().await;
    let last = FailedAttempt {
        at: jiff::Timestamp::from_second(7).unwrap(),
        reason: "the receiver answered 400".into(),
        answer: Some("no such order".into()),
    };
    let tries = Tries { attempts: 2, failures: 5, last: Some(last) };
    let states = vec![(1, Pending(tries.clone())), (3, Delivered)];
    journal.settle("erp", Settlement { seq: 1, states }).await.unwrap();
    drop(journal);

    let journal = SqliteJournal::open(&directory.path().join("journal.db")).unwrap();
    assert_eq!(journal.resume("erp").await.unwrap().progress.seq, 1);
    let open = journal.open_deliveries("erp", 0, 10).await.unwrap();
    let states: Vec<_> = open.iter().map(|(heading, state)| (heading.seq, state.clone())).collect();
    assert_eq!(states, [(1, Pending(tries.clone())), (3, Delivered)]);
    assert_eq!((open[0].0.order_id.as_str(), open[0].0.state.as_str()), ("1-01", "handling"));
    assert_eq!(journal.open_deliveries("erp", 1, 10).await.unwrap().len(), 1);
    assert_eq!(journal.open_deliveries("crm", 0, 10).await.unwrap(), []);

    let states = vec![(1, Dead(tries)), (2, Delivered)];
    journal.settle("erp", Settlement { seq: 3, states }).await.unwrap();
    assert_eq!(journal.open_deliveries("erp", 0, 10).await.unwrap(), []);
    let kept: Vec<(i64, String)> = journal
        .read("test", |connection| {
            let mut statement = connection.prepare("SELECT seq, state FROM deliveries")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .await
        .unwrap();
    assert_eq!(kept, [(1, "dead".to_owned())], "the progress says the rest");
}

#[tokio::test]
async fn events_are_read_one_by_one_and_by_their_headings() {
    let (_directory, journal) = with_three_events().await;
    let headings = journal.headings_after(1, 1).await.unwrap();
    assert_eq!((headings.len(), headings[0].seq, headings[0].order_id.as_str()), (1, 2, "2-01"));
    let entry = journal.entry(2).await.unwrap().unwrap();
    assert_eq!(entry, journal.entries_after(1, 1, 1).await.unwrap()[0]);
    assert_eq!(journal.entry(4).await.unwrap(), None);
}

#[tokio::test]
async fn what_another_process_writes_is_noticed_and_what_we_write_is_not() {
    let (directory, journal) = with_three_events().await;
    let mut altered = journal.altered();
    journal.look_for_changes().await.unwrap();
    journal.settle("erp", Settlement { seq: 1, states: vec![] }).await.unwrap();
    journal.look_for_changes().await.unwrap();
    assert!(!altered.has_changed().unwrap());

    let other = Connection::open(directory.path().join("journal.db")).unwrap();
    other.execute("UPDATE sinks SET seq = 0", []).unwrap();
    journal.look_for_changes().await.unwrap();
    assert!(altered.has_changed().unwrap());
    altered.mark_unchanged();
    journal.look_for_changes().await.unwrap();
    assert!(!altered.has_changed().unwrap());
}

#[test]
fn every_older_version_is_brought_up_to_date_with_what_it_holds() {
    for version in 1..schema::VERSION {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate_to(&mut connection, 0, version).unwrap();
        connection
            .execute_batch(
                "INSERT INTO sources (url) VALUES ('http://127.0.0.1/api/orders/feed');
                 INSERT INTO events (id, account, source, order_id, state, received_at_ms, item)
                     VALUES (x'ab', 'store', 1, '1-01', 'handling', 0, '{}');
                 INSERT INTO sinks (name, seq) VALUES ('orders', 1);",
            )
            .unwrap();
        schema::migrate(&mut connection, version).unwrap();
        let (n_events, seq): (i64, i64) = connection
            .query_row("SELECT (SELECT count(*) FROM events), (SELECT seq FROM sinks)", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!((n_events, seq), (1, 1), "from version {version}");
        assert!(matches!(schema::owner(&connection), Ok(schema::Owner::Ours { version: schema::VERSION })));
    }
}

#[tokio::test]
async fn a_dead_letter_ahead_of_the_progress_is_known_after_a_restart() {
    let (_directory, journal) = journal();
    let items = (1..=4).map(|n| leased("h", event(&format!("o-{n}"), "handling", None))).collect();
    journal.append(batch(0, items)).await.unwrap();
    journal.resume("erp").await.unwrap();
    let dead = DeliveryState::Dead(Tries { attempts: 2, failures: 2, last: None });
    let ahead = Settlement { seq: 1, states: vec![(1, dead.clone()), (3, dead.clone()), (4, dead.clone())] };
    journal.settle("erp", ahead).await.unwrap();
    // As an operator does it.
    journal
        .read("discards", |connection| {
            connection.execute("UPDATE deliveries SET state = 'discarded' WHERE seq = 4", [])
        })
        .await
        .unwrap();
    let open = journal.open_deliveries("erp", 0, 10).await.unwrap();
    let open: Vec<_> = open.into_iter().map(|(heading, state)| (heading.seq, state)).collect();
    assert_eq!(open, [(3, dead.clone()), (4, dead)]);
    journal.settle("erp", Settlement { seq: 4, states: Vec::new() }).await.unwrap();
    assert_eq!(journal.open_deliveries("erp", 0, 10).await.unwrap(), []);
}

#[tokio::test]
async fn the_first_sinks_begin_together_at_the_oldest_event_and_a_later_one_at_the_next() {
    let (_directory, journal) = journal();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    journal.append(batch(0, vec![leased("a", event("1-01", "x", None))])).await.unwrap();
    let now = jiff::Timestamp::UNIX_EPOCH;
    assert_eq!(journal.know_sinks(names(&["a", "b"]), now).await.unwrap(), [].into());
    journal.append(batch(0, vec![leased("b", event("2-01", "x", None))])).await.unwrap();
    let late = journal.know_sinks(names(&["a", "b", "c"]), now).await.unwrap();
    assert_eq!(late, [("c".to_owned(), 2)].into());
    for (sink, seq) in [("a", 0), ("b", 0), ("c", 2)] {
        let resume = Resume { progress: Progress { seq, mark: None }, n_skipped: 0 };
        assert_eq!(journal.resume(sink).await.unwrap(), resume, "{sink}");
    }
}
