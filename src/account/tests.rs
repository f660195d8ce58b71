//! The loop of a feed, in paused time, on an in-memory feed and a real journal.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::time::{Instant, sleep};

use super::*;
use crate::journal::{Appended, Batch, JournalError, Outbox, SqliteJournal, StoredPause};
use crate::observe::liveness::Liveness;
use crate::policy::backoff::Backoff;
use crate::policy::classify::Operation;
use crate::policy::pause;
use crate::sandbox::items::Item;
use crate::sandbox::memory::{Fault, MemoryFeed};
use crate::sandbox::queue::Rules;

const INTERVAL: Duration = Duration::from_secs(30);
const VISIBILITY: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);
const RETRY: Retry = Retry {
    backoff: Backoff { base: Duration::from_secs(1), max: MINUTE },
    max_retries: 5,
    budget: Duration::from_secs(120),
};

/// One feed, its journal, and the loop ready to run.
struct Rig {
    _directory: tempfile::TempDir,
    name: &'static str,
    feed: Arc<MemoryFeed>,
    journal: Arc<Fragile>,
    gate: Arc<Gate>,
    drain: bool,
    shutdown: CancellationToken,
}

impl Rig {
    fn new(n_events: u32) -> Self {
        Self::with_visibility(n_events, VISIBILITY)
    }

    fn with_visibility(n_events: u32, visibility: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(&directory.path().join("journal.db")).unwrap();
        let rules = Rules { visibility, ..Rules::default() };
        let rig = Self {
            _directory: directory,
            name: "store",
            feed: Arc::new(MemoryFeed::new("store", rules, 7)),
            journal: Arc::new(Fragile {
                journal,
                broken: AtomicBool::new(false),
                breaks_after: AtomicU32::new(u32::MAX),
                slow: AtomicBool::new(false),
            }),
            gate: Arc::new(Gate::new(
                "store".to_owned(),
                gate::Settings { per_second: 100.0, ..gate::tests::settings() },
                7,
            )),
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
        let (name, shutdown, drain) = (self.name.to_owned(), self.shutdown.clone(), self.drain);
        tokio::spawn(async move {
            let liveness = Liveness::default();
            let (polling, learning) = (liveness.register("polling"), liveness.register("learning"));
            let account = Account {
                name,
                source: "memory:/api/orders/feed".to_owned(),
                poll: config::Poll { interval: INTERVAL, batch_size: 10, drain },
                retry: RETRY,
                request_timeout: Duration::from_secs(30),
                app_token_source: SecretSource::Literal,
                feed: &*feed,
                journal,
                gate,
                status: Status::default(),
                wall: Wall::System,
                memory: &Memory::new(polling, learning, Instant::now(), 7),
            };
            account.run(&shutdown).await;
        })
    }

    async fn n_journaled(&self) -> usize {
        self.journal.journal.entries_after(0, 100_000, usize::MAX).await.unwrap().len()
    }

    /// How many receives and commits there were.
    fn n_requests(&self) -> usize {
        self.feed.requests().iter().filter(|request| request.operation != Operation::Config).count()
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
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed(), rig.n_requests()), (20, 20, 4));
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_out_a_pause_to_commit() {
    let rig = Rig::new(5);
    rig.feed.script([Fault::Late(Duration::from_secs(2))]);
    let running = rig.start();
    sleep(Duration::from_secs(1)).await;
    rig.gate.restore_pause(Duration::from_secs(600));
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
    assert!(rig.arrivals(Operation::Receive, start).is_empty(), "never lease what cannot be stored");
    assert!(rig.arrivals(Operation::Commit, start).is_empty());

    rig.journal.broken.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(40)).await;
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed()), (15, 15));
    rig.shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_could_not_be_stored_is_not_committed_and_comes_back() {
    let (rig, start) = (Rig::new(25), Instant::now());
    rig.journal.breaks_after.store(1, Ordering::Relaxed);
    let _running = rig.start();
    sleep(Duration::from_secs(300)).await;
    // The second batch was leased when the journal broke; the first was stored, but the journal is in doubt now.
    assert_eq!(rig.arrivals(Operation::Receive, start), [0, 0]);
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed()), (10, 10));

    rig.journal.broken.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(100)).await;
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed(), rig.feed.n_waiting()), (25, 25, 0));
}

#[tokio::test(start_paused = true)]
async fn what_waits_its_turn_while_the_journal_fails_is_not_sent_before_it_works_again() {
    for operation in [Operation::Receive, Operation::Commit] {
        let rig = Rig::with_visibility(0, 10 * MINUTE);
        let _running = rig.start();
        sleep(INTERVAL * 2 - Duration::from_secs(5)).await;
        rig.enqueue(0..15);
        rig.feed.script_for(operation, [Fault::StatusAfter(503, Duration::from_secs(12))]);
        sleep(Duration::from_secs(10)).await;
        rig.journal.broken.store(true, Ordering::Relaxed);
        let n_before = rig.n_requests();
        sleep(MINUTE).await;
        assert_eq!(rig.n_requests(), n_before, "{operation:?}");
        rig.journal.broken.store(false, Ordering::Relaxed);
        sleep(11 * MINUTE).await;
        assert_eq!(rig.feed.n_committed(), 15, "{operation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_pause_of_the_configuration_to_be_stored() {
    let (rig, start) = (Rig::new(0), Instant::now());
    rig.feed.script_for(Operation::Config, [Fault::Status(429)]);
    rig.journal.slow.store(true, Ordering::Relaxed);
    let running = rig.start();
    while rig.arrivals(Operation::Config, start).is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    rig.shutdown.cancel();
    running.await.unwrap();
    assert!(rig.journal.pause("store").await.unwrap().is_some());
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
    assert_eq!(rig.n_requests(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_lasts_a_quarter_of_an_hour_ends_though_there_is_more() {
    let (rig, start) = (Rig::with_visibility(300, 10 * MINUTE), Instant::now());
    rig.feed.script_for(Operation::Receive, [Fault::Late(MINUTE)].repeat(30));
    let _running = rig.start();
    sleep(20 * MINUTE).await;
    let receives = rig.arrivals(Operation::Receive, start);
    let gaps: Vec<_> = receives.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[13..16], [60, 90, 60], "{receives:?}");
}

/// Seconds between the request that met the first 429 and the next of any kind.
async fn silence_after(fault: Fault) -> Duration {
    let rig = Rig::new(15);
    // The configuration is asked for in the shadow of the first requests.
    rig.feed.script([Fault::None, Fault::None, Fault::None, Fault::None, Fault::None, fault]);
    let _running = rig.start();
    sleep(Duration::from_secs(100_000)).await;
    let requests = rig.feed.requests();
    let silences = requests.windows(2).map(|pair| pair[1].at - pair[0].at);
    silences.max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_429_silences_the_account_for_a_minute_or_as_long_as_it_asks() {
    for (fault, least_s, most_s) in [
        (Fault::Status(429), 60, 67),
        (Fault::StatusAfter(429, Duration::from_secs(7)), 60, 67),
        (Fault::StatusAfter(429, Duration::from_secs(90)), 90, 100),
        (Fault::StatusAfter(429, Duration::from_secs(7_200)), 7_200, 7_261),
        (Fault::StatusAfter(503, Duration::from_secs(300)), 300, 301),
    ] {
        let silence = silence_after(fault).await.as_secs_f64();
        assert!(f64::from(least_s) <= silence && silence < f64::from(most_s), "{fault:?}: {silence} s");
    }
}

#[tokio::test(start_paused = true)]
async fn each_pause_in_a_row_is_longer_and_a_good_poll_ends_that() {
    let (rig, start) = (Rig::new(0), Instant::now());
    let throttled = [Fault::Status(429)].repeat(3);
    rig.feed.script(throttled.into_iter().chain([Fault::None, Fault::Status(429)]));
    let _running = rig.start();
    sleep(Duration::from_secs(1_000)).await;
    let receives = rig.arrivals(Operation::Receive, start);
    let gaps: Vec<_> = receives.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (gap, least) in gaps.iter().zip([60, 120, 240, 30, 60, 30]) {
        assert!(least <= *gap && *gap <= least * 11 / 10 + 1, "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_stored_and_a_restart_keeps_it() {
    let rig = Rig::new(15);
    rig.feed.script([Fault::None, Fault::Status(429)]);
    let running = rig.start();
    sleep(Duration::from_secs(10)).await;
    running.abort();
    let stored = rig.journal.pause("store").await.unwrap().unwrap();
    assert!(MINUTE <= stored.length && stored.length < Duration::from_secs(67), "{stored:?}");
    assert!(pause::remaining(Wall::System.now(), stored.ends_at, stored.length) <= stored.length);
}

#[tokio::test(start_paused = true)]
async fn a_429_on_the_commit_holds_back_receives_and_the_commit_then_goes_first() {
    // Some polls find nothing; meanwhile the length of the leases is learnt. Every fifth slot goes to whoever has
    // waited longest, so the commit goes first in the others.
    let mut n_commits_first = 0;
    for n_empty_polls in 1..6 {
        let rig = Rig::with_visibility(0, 10 * MINUTE);
        let _running = rig.start();
        sleep(INTERVAL * n_empty_polls - Duration::from_secs(5)).await;
        rig.enqueue(0..15);
        rig.feed.script_for(Operation::Commit, [Fault::Status(429)]);
        sleep(3 * MINUTE).await;
        let requests = rig.feed.requests();
        let throttled = requests.iter().position(|request| request.operation == Operation::Commit).unwrap();
        let after = requests.iter().find(|request| MINUTE <= request.at - requests[throttled].at).unwrap();
        let between =
            requests.iter().filter(|request| requests[throttled].at < request.at && request.at < after.at);
        assert!(between.count() <= 1, "only what had left before the answer: {requests:?}");
        n_commits_first += usize::from(after.operation == Operation::Commit);
        assert_eq!(rig.feed.n_committed(), 15);
    }
    assert_eq!(n_commits_first, 4);
}

#[tokio::test(start_paused = true)]
async fn after_a_503_with_retry_after_the_commit_goes_before_the_next_receive() {
    let rig = Rig::with_visibility(0, 10 * MINUTE);
    let _running = rig.start();
    // So that the slot after the gate's opening is no fifth one, which goes to whoever has waited longest.
    sleep(INTERVAL * 2 - Duration::from_secs(5)).await;
    rig.enqueue(0..25);
    rig.feed.script_for(Operation::Commit, [Fault::StatusAfter(503, Duration::from_secs(12))]);
    sleep(MINUTE).await;
    let requests = rig.feed.requests();
    let refused = requests.iter().position(|request| request.operation == Operation::Commit).unwrap();
    let closed = Duration::from_secs(12);
    let after = requests.iter().find(|request| closed <= request.at - requests[refused].at).unwrap();
    assert_eq!(after.operation, Operation::Commit, "{requests:?}");
    assert_eq!(rig.feed.n_committed(), 25);
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_given_up_when_its_lease_ends_within_the_pause() {
    let rig = Rig::with_visibility(5, Duration::from_secs(45));
    rig.feed.script([Fault::None, Fault::Status(429)]);
    let _running = rig.start();
    sleep(Duration::from_secs(59)).await;
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed()), (5, 0));
    sleep(Duration::from_secs(300)).await;
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed()), (5, 5), "by its new handles");
}

#[tokio::test(start_paused = true)]
async fn two_feeds_of_one_account_wait_together_and_another_account_does_not() {
    let (rig, mut sibling, other) = (Rig::new(0), Rig::new(0), Rig::new(0));
    sibling.name = "sibling";
    sibling.gate = Arc::clone(&rig.gate);
    sibling.enqueue(0..200);
    other.enqueue(0..200);
    rig.feed.script([Fault::Status(429)]);
    let started = Instant::now();
    let _running = (rig.start(), sibling.start(), other.start());
    sleep(Duration::from_secs(59)).await;
    let late = |rig: &Rig| {
        rig.feed.requests().iter().filter(|request| Duration::from_secs(1) < request.at - started).count()
    };
    assert_eq!((late(&rig), late(&sibling)), (0, 0));
    assert_eq!(other.feed.n_committed(), 200);
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_within_the_bounds_of_the_backoff() {
    let rig = Rig::new(5);
    rig.feed.script([Fault::Status(503), Fault::Status(503), Fault::Status(503)]);
    let _running = rig.start();
    sleep(Duration::from_secs(20)).await;
    let receives: Vec<_> =
        rig.feed.requests().into_iter().filter(|request| request.operation == Operation::Receive).collect();
    for (n, pair) in receives[..4].windows(2).enumerate() {
        let (gap, full) = ((pair[1].at - pair[0].at).as_secs_f64(), f64::from(1 << n));
        assert!(full / 2.0 <= gap && gap <= full + 0.02, "retry {n} after {gap} s");
    }
    assert_eq!(rig.feed.n_committed(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_failures_in_a_row_stay_polite_and_alive() {
    for fault in [Fault::Status(503), Fault::Cut, Fault::Status(500), Fault::AnswerLost, Fault::Status(400)] {
        let rig = Rig::new(5);
        rig.feed.script([fault; 1_000]);
        let _running = rig.start();
        let start = Instant::now();
        let hours = async {
            while rig.feed.n_committed() < 5 {
                sleep(MINUTE).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(1_000 * 3_600), hours).await.expect("it always polls again");
        let requests = rig.feed.requests();
        let per_hour = requests.len() as f64 / (start.elapsed().as_secs_f64() / 3_600.0);
        assert!(per_hour < 200.0, "{fault:?}: {per_hour} requests an hour");
    }
}

#[tokio::test(start_paused = true)]
async fn one_poisoned_handle_of_ten_costs_only_itself() {
    for status in [400, 504] {
        let rig = Rig::with_visibility(10, 10 * MINUTE);
        rig.feed.poison("3-01", status);
        let _running = rig.start();
        sleep(Duration::from_secs(29)).await;
        assert_eq!((rig.n_journaled().await, rig.feed.n_committed()), (10, 9), "status {status}, one poll");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_commit_costs_nothing() {
    let rig = Rig::new(10);
    rig.feed.script([Fault::None, Fault::AnswerLost]);
    let _running = rig.start();
    sleep(Duration::from_secs(100)).await;
    assert_eq!((rig.n_journaled().await, rig.feed.n_committed(), rig.feed.n_waiting()), (10, 10, 0));
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_refused_or_unconfigured_is_polled_slowly_until_it_works() {
    for status in [401, 403, 404] {
        let rig = Rig::new(5);
        rig.feed.script([Fault::Status(status); 4]);
        let (_running, start) = (rig.start(), Instant::now());
        sleep(Duration::from_secs(3_000)).await;
        let receives = rig.arrivals(Operation::Receive, start);
        let gaps: Vec<_> = receives.windows(2).take(4).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, [300, 300, 300, 300], "status {status}: {receives:?}");
        assert_eq!(rig.feed.n_committed(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn after_three_malformed_batches_items_come_one_by_one_until_one_is_whole() {
    let rig = Rig::new(30);
    rig.feed.script([Fault::Cut, Fault::Cut, Fault::Cut]);
    let _running = rig.start();
    sleep(Duration::from_secs(29)).await;
    let asked: Vec<u8> = rig.feed.requests().iter().filter_map(|request| request.max).collect();
    assert_eq!(asked[..5], [10, 10, 10, 1, 10], "{asked:?}");
    assert_eq!(rig.feed.n_committed(), 30);
}

#[tokio::test(start_paused = true)]
async fn the_breaker_opens_after_five_failures_and_lets_single_trials_through() {
    let rig = Rig::new(5);
    rig.feed.script([Fault::Status(503); 40]);
    let _running = rig.start();
    sleep(Duration::from_secs(300)).await;
    let requests = rig.feed.requests();
    let gaps: Vec<_> = requests.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs()).collect();
    // Without it each poll would try six times within half a minute.
    assert!(gaps[6..].iter().all(|gap| 30 <= *gap), "{gaps:?}");
}

/// A journal that can be broken: the real one, or an error.
struct Fragile {
    journal: SqliteJournal,
    broken: AtomicBool,
    /// Breaks by itself after so many batches.
    breaks_after: AtomicU32,
    /// Pauses take a second to be stored.
    slow: AtomicBool,
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
        if self.breaks_after.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.broken.store(true, Ordering::Relaxed);
        }
        self.check()?;
        self.journal.append(batch).await
    }

    async fn probe(&self) -> Result<(), JournalError> {
        self.check()?;
        self.journal.probe().await
    }

    fn is_blocked(&self) -> bool {
        self.broken.load(Ordering::Relaxed) || self.journal.is_blocked()
    }

    async fn store_pause(&self, vtex_account: &str, pause: StoredPause) -> Result<(), JournalError> {
        if self.slow.load(Ordering::Relaxed) {
            sleep(Duration::from_secs(1)).await;
        }
        self.journal.store_pause(vtex_account, pause).await
    }

    async fn pause(&self, vtex_account: &str) -> Result<Option<StoredPause>, JournalError> {
        self.journal.pause(vtex_account).await
    }
}
