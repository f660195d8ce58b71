//! Webhooks by the binary: order, outages, kills.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use order_feed_agent::sandbox::Options;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::support::agent::{BINARY, PATIENCE, Workplace};
use crate::support::receiver::{Came, Receiver};
use crate::support::sandbox;

const ANYWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// What an agent needs to deliver quickly to a receiver; `more` are further keys of the sink.
fn webhook(receiver: SocketAddr, more: &str) -> String {
    format!(
        "[poll]\ninterval = \"5s\"\n[requests]\nper_second = 300\n[sinks.erp]\ntype = \"webhook\"\n\
         url = \"http://{receiver}/orders\"\nsigning_secret = \"whsec_MfKQ9r8GKYqUwTjUPD8ILPZIo2LaLsWw\"\n{more}"
    )
}

/// Waits for a state, not for a time.
async fn until(is_it: impl Fn() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_it() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The deliveries that were taken, by order.
fn by_order(came: &[Came]) -> BTreeMap<&str, Vec<&Came>> {
    let mut orders: BTreeMap<&str, Vec<&Came>> = BTreeMap::new();
    for came in came.iter().filter(|came| came.status < 300) {
        orders.entry(&came.order).or_default().push(came);
    }
    orders
}

/// 1,000 events flow to a webhook while the agent is killed; the seed is printed by the failing assertion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_twenty_moments_it_delivers_everything_and_repeats_only_what_was_in_hand() {
    let seed: u64 = rand::random();
    let mut rng = StdRng::seed_from_u64(seed);
    let options = Options { count: 1_000, visibility: Duration::from_secs(1), ..Options::default() };
    let (sandbox, address) = sandbox(options).await;
    let receiver = Receiver::serve(ANYWHERE.into(), |_| 204).await;
    let place = Workplace::new(&format!("http://{address}"), &webhook(receiver.address, "concurrency = 3\n"));
    let n_kills = 20;
    for _ in 0..n_kills {
        let mut agent = place.start();
        agent.wait_for("agent.ready", |_| true).await;
        sleep(Duration::from_millis(rng.random_range(0..200))).await;
        agent.signal(Signal::KILL);
        agent.end().await;
    }
    let mut agent = place.start();
    agent.wait_for("agent.ready", |_| true).await;
    let deadline = Instant::now() + PATIENCE;
    while 0 < sandbox.ledger().waiting {
        assert!(Instant::now() < deadline, "seed {seed}: {} wait", sandbox.ledger().waiting);
        agent.wait_for("poll.completed", |_| true).await;
    }
    let n_distinct = || {
        receiver.came().iter().map(|came| came.id.clone()).collect::<std::collections::BTreeSet<_>>().len()
    };
    until(|| n_distinct() == 1_000, "all arrive").await;
    agent.signal(Signal::TERM);
    let (status, _, _) = agent.end().await;
    assert_eq!(status.code(), Some(0), "seed {seed}");

    let came = receiver.came();
    let mut sequences: HashMap<&str, &str> = HashMap::new();
    for came in &came {
        let first = sequences.entry(&came.id).or_insert(&came.sequence);
        assert_eq!(*first, came.sequence, "seed {seed}: one id is one event");
    }
    let n_again = came.len() - sequences.len();
    assert!(n_again <= n_kills * 3, "seed {seed}: {n_again} came again");
    for (order, came) in by_order(&came) {
        // What came again may come after what it was in hand with, never after what came later.
        assert!(came.is_sorted_by_key(|came| &came.sequence), "seed {seed}: order {order}");
    }
}

#[tokio::test]
async fn a_receiver_that_comes_late_gets_everything_and_the_feed_did_not_wait_for_it() {
    let (sandbox, address) = sandbox(Options { count: 60, ..Options::default() }).await;
    // An address that nobody listens at.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = "max_attempts = 1\n[circuit_breaker]\nrecovery = \"1s\"\n";
    let place = Workplace::new(&format!("http://{address}"), &webhook(free, settings));
    let mut agent = place.start();
    agent.wait_for("circuit.opened", |record| record["sink"] == "erp").await;
    until(|| sandbox.ledger().committed == 60, "the feed is read and committed").await;
    let receiver = Receiver::serve(free, |_| 204).await;
    until(|| receiver.n_taken() == 60, "all arrive").await;
    agent.wait_for("circuit.closed", |record| record["sink"] == "erp").await;
    agent.signal(Signal::TERM);
    let (status, lines, _) = agent.end().await;
    assert_eq!(status.code(), Some(0));
    assert!(!lines.iter().any(|line| line.contains("delivery.dead_lettered")));
    assert!(by_order(&receiver.came()).values().all(|came| came.is_sorted_by_key(|came| &came.sequence)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenth_of_refusals_costs_neither_an_event_nor_the_order() {
    let (_sandbox, address) = sandbox(Options { count: 500, ..Options::default() }).await;
    let chance = std::sync::Mutex::new(StdRng::seed_from_u64(3));
    let receiver =
        Receiver::serve(
            ANYWHERE.into(),
            move |_| if chance.lock().unwrap().random_bool(0.1) { 500 } else { 200 },
        )
        .await;
    let place = Workplace::new(&format!("http://{address}"), &webhook(receiver.address, ""));
    let agent = place.start();
    until(|| receiver.n_taken() == 500, "all arrive").await;
    agent.signal(Signal::TERM);
    assert_eq!(agent.end().await.0.code(), Some(0));
    let came = receiver.came();
    assert!(500 < came.len(), "refusals were met");
    let orders = by_order(&came);
    assert_eq!(orders.values().map(Vec::len).sum::<usize>(), 500, "nothing comes again after a 2xx");
    assert!(orders.values().all(|came| came.is_sorted_by_key(|came| &came.sequence)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_listed_and_retried_beside_the_running_agent() {
    let (_sandbox, address) = sandbox(Options { count: 5, rate: 20.0, ..Options::default() }).await;
    let (refused, is_mended) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let journal: Arc<OnceLock<PathBuf>> = Arc::default();
    let minds = {
        let (refused, is_mended, journal) =
            (Arc::clone(&refused), Arc::clone(&is_mended), Arc::clone(&journal));
        move |came: &Came| {
            // The first event ever is one that the receiver cannot take.
            let is_it = *refused.lock().unwrap().get_or_insert_with(|| came.id.clone()) == came.id;
            if is_it && !is_mended.load(Ordering::Relaxed) {
                // What is said of it before it is recorded would be wrong for a while.
                keep_from_writing(journal.wait().clone(), Duration::from_millis(300));
                422
            } else {
                204
            }
        }
    };
    let receiver = Receiver::serve(ANYWHERE.into(), minds).await;
    let place =
        Workplace::new(&format!("http://{address}"), &webhook(receiver.address, "max_attempts = 2\n"));
    journal.set(place.journal()).unwrap();
    let mut agent = place.start();
    let record = agent.wait_for("delivery.dead_lettered", |_| true).await;
    let id = refused.lock().unwrap().clone().unwrap();
    assert_eq!((record["id"].as_str(), record["status"].as_u64()), (Some(id.as_str()), Some(422)));

    let listed = command(&place, &["dead-letters", "list", "--json"]).await;
    let letters: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(letters.len(), 1, "{listed}");
    assert_eq!((letters[0]["id"].as_str(), letters[0]["sink"].as_str()), (Some(id.as_str()), Some("erp")));
    assert_eq!(letters[0]["attempts"].as_u64(), Some(2));

    is_mended.store(true, Ordering::Relaxed);
    command(&place, &["dead-letters", "retry", &id]).await;
    until(|| receiver.came().iter().any(|came| came.id == id && came.status == 204), "it is delivered").await;
    agent.signal(Signal::TERM);
    assert_eq!(agent.end().await.0.code(), Some(0));
    assert_eq!(command(&place, &["dead-letters", "list", "--json"]).await.trim(), "[]");
}

/// Runs a command of the binary on the configuration of `place`; returns what it printed.
async fn command(place: &Workplace, arguments: &[&str]) -> String {
    let output = Command::new(BINARY).arg("-c").arg(place.config()).args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Nobody else writes into the journal for so long.
fn keep_from_writing(journal: PathBuf, length: Duration) {
    let connection = rusqlite::Connection::open(journal).unwrap();
    connection.execute_batch("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE").unwrap();
    std::thread::spawn(move || {
        #[expect(clippy::disallowed_methods, reason = "a thread of its own, which no task waits for")]
        std::thread::sleep(length);
        connection.execute_batch("ROLLBACK").unwrap();
    });
}
