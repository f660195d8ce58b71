//! The loop of a feed, in paused time, on an in-memory feed and a real journal.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::*;
use crate::journal::{Appended, Batch, Entry, JournalError, Progress, Resume, SqliteJournal};
use crate::observe::liveness::Liveness;
use crate::policy::classify::Operation;
use crate::sandbox::items::Item;
use crate::sandbox::memory::{Fault, MemoryFeed};
use crate::sandbox::queue::Rules;

const INTERVAL: Duration = Duration::from_secs(30);
const VISIBILITY: Duration = Duration::from_secs(30);

/// One feed, its journal, and the loop ready to run.
struct Rig {
    _directory: tempfile::TempDir,
    feed: Arc<MemoryFeed>,
    journal: Arc<Fragile>,
    gate: Arc<Gate>,
    drain: bool,
    shutdown: CancellationToken,
}

impl Rig {
    fn new(n_events: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(&directory.path().join("journal.db")).unwrap();
        let rules = Rules { visibility: VISIBILITY, ..Rules::default() };
        let gate = Gate::default();
        gate.set_pace(100.0, 1);
        let rig = Self {
            _directory: directory,
            feed: Arc::new(MemoryFeed::new("store", rules, 7)),
            journal: Arc::new(Fragile { journal, broken: AtomicBool::new(false) }),
            gate: Arc::new(gate),
            drain: true,
            shutdown: CancellationToken::new(),
        };
        rig.enqueue(0..n_events);
        rig
    }

    fn enqueue(&self, numbers: std::ops::Range<u32>) {
        for n in numbers {
            let change = format!("2026-03-02T20:54:23.{n:05}Z");
            let order_id = format!("{n}-01");
            self.feed.enqueue(Item::new(
                &serde_json::json!({ "orderId": order_id, "state": "handling", "currentChange": change }),
            ));
        }
    }

    fn start(&self) -> tokio::task::JoinHandle<()> {
        let (feed, journal, gate) =
            (Arc::clone(&self.feed), Arc::clone(&self.journal), Arc::clone(&self.gate));
        let (shutdown, drain) = (self.shutdown.clone(), self.drain);
        tokio::spawn(async move {
            let mut account = Account {
                name: "store".to_owned(),
                source: "memory:/api/orders/feed".to_owned(),
                poll: config::Poll { interval: INTERVAL, batch_size: 10, drain },
                request_timeout: Duration::from_secs(30),
                feed: &*feed,
                journal,
                gate,
                heartbeat: &Liveness::default().register("store"),
                status: Status::default(),
                last_poll_ended: None,
            };
            account.run(&shutdown).await;
        })
    }

    async fn n_journaled(&self) -> usize {
        self.journal.entries_after(0, 100_000, usize::MAX).await.unwrap().len()
    }

    /// Seconds from the start at which requests of a kind arrived.
    fn arrivals(&self, operation: Operation, start: Instant) -> Vec<u64> {
        let requests = self.feed.requests();
        requests
            .iter()
            .filter(|request| request.operation == operation)
            .map(|request| request.at.duration_since(start).as_secs())
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_drains_the_feed_and_the_next_starts_an_interval_after_its_end() {
    let (rig, start) = (Rig::new(25), Instant::now());
    let _running = rig.start();
    sleep(Duration::from_secs(65)).await;
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed(), rig.feed.n_waiting()), (25, 25, 0));
    // Three batches and the empty one, then an empty one after each interval.
    assert_eq!(rig.arrivals(Operation::Receive, start), [0, 0, 0, 0, 30, 60]);
    assert_eq!(rig.arrivals(Operation::Commit, start), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_poll_and_what_was_leased_is_committed_when_it_comes_again() {
    for fault in [Fault::Status(503), Fault::Status(400), Fault::AnswerLost, Fault::Cut] {
        for n_good in 0..3 {
            let rig = Rig::new(15);
            rig.feed.script(std::iter::repeat_n(Fault::None, n_good).chain([fault]));
            let _running = rig.start();
            sleep(Duration::from_secs(100)).await;
            let found = (rig.n_journaled().await, rig.feed.n_committed(), rig.feed.n_waiting());
            assert_eq!(found, (15, 15, 0), "{fault:?} after {n_good} requests");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_429_silences_the_account_for_a_minute() {
    for n_good in 0..4 {
        let (rig, start) = (Rig::new(15), Instant::now());
        rig.feed.script(std::iter::repeat_n(Fault::None, n_good).chain([Fault::Status(429)]));
        let _running = rig.start();
        sleep(Duration::from_secs(59)).await;
        assert_eq!(rig.feed.requests().len(), n_good + 1);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(rig.feed.n_committed(), 15);
        assert!(start.elapsed() < Duration::from_secs(120));
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_while_waiting_ends_at_once() {
    let rig = Rig::new(0);
    let running = rig.start();
    sleep(Duration::from_secs(3)).await;
    let asked = Instant::now();
    rig.shutdown.cancel();
    running.await.unwrap();
    assert_eq!(asked.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn shutdown_during_a_drain_journals_and_commits_the_batch_in_hand() {
    let rig = Rig::new(50);
    rig.feed.script([Fault::None, Fault::None, Fault::Late(Duration::from_secs(4))]);
    let running = rig.start();
    sleep(Duration::from_secs(1)).await;
    rig.shutdown.cancel();
    running.await.unwrap();
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed(), rig.feed.requests().len()), (20, 20, 4));
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_out_a_pause_to_commit() {
    let rig = Rig::new(5);
    rig.feed.script([Fault::Late(Duration::from_secs(2))]);
    let running = rig.start();
    sleep(Duration::from_secs(1)).await;
    rig.gate.pause(Instant::now(), Duration::from_secs(600));
    rig.shutdown.cancel();
    let asked = Instant::now();
    running.await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10));
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed()), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_committed_that_was_not_stored_and_nothing_received_that_cannot_be() {
    let (rig, start) = (Rig::new(15), Instant::now());
    rig.journal.broken.store(true, Ordering::Relaxed);
    let running = rig.start();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.arrivals(Operation::Receive, start), [0]);
    assert!(rig.arrivals(Operation::Commit, start).is_empty());

    rig.journal.broken.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(40)).await;
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed()), (15, 15));
    rig.shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_draining_a_poll_takes_one_batch() {
    let mut rig = Rig::new(25);
    rig.drain = false;
    let start = Instant::now();
    let _running = rig.start();
    sleep(Duration::from_secs(65)).await;
    assert_eq!(rig.arrivals(Operation::Receive, start), [0, 30, 60]);
    assert_eq!(rig.feed.n_committed(), 25);
}

#[tokio::test(start_paused = true)]
async fn a_poll_ends_when_the_feed_only_repeats_itself() {
    let mut rig = Rig::new(5);
    // Commits that delete nothing, and items that come back at once.
    let rules = Rules { visibility: Duration::ZERO, ..Rules::default() };
    rig.feed = Arc::new(MemoryFeed::new("store", rules, 7));
    rig.enqueue(0..5);
    rig.feed.script([Fault::None, Fault::Hollow].repeat(10));
    let _running = rig.start();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.feed.requests().len(), 4);
}

/// A journal that can be broken: the real one, or an error.
struct Fragile {
    journal: SqliteJournal,
    broken: AtomicBool,
}

impl Fragile {
    fn check(&self) -> Result<(), JournalError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(JournalError::Task { path: "journal.db".into() });
        }
        Ok(())
    }
}

impl Journal for Fragile {
    async fn append(&self, batch: Batch) -> Result<Appended, JournalError> {
        self.check()?;
        self.journal.append(batch).await
    }

    async fn probe(&self) -> Result<(), JournalError> {
        self.check()?;
        self.journal.probe().await
    }

    async fn entries_after(
        &self,
        seq: i64,
        max_events: usize,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, JournalError> {
        self.journal.entries_after(seq, max_events, max_bytes).await
    }

    async fn resume(&self, sink: &str) -> Result<Resume, JournalError> {
        self.journal.resume(sink).await
    }

    async fn record_progress(&self, sink: &str, progress: Progress) -> Result<(), JournalError> {
        self.journal.record_progress(sink, progress).await
    }

    fn appended(&self) -> watch::Receiver<()> {
        self.journal.appended()
    }
}
