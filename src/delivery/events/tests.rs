//! The loop with the real journal and a receiver that misbehaves, in paused time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

use super::*;
use crate::event::{self, Event, Handle, Identity, Item, Leased};
use crate::journal::{Batch, DeliveryState, Journal, SqliteJournal};
use crate::observe::liveness::Liveness;
use crate::sink::Envelope;

const BREAKER: breaker::Settings =
    breaker::Settings { failures: 5, recovery: Duration::from_secs(30), successes: 3 };

const LIMITS: Limits = Limits { max_attempts: 20, timeout: Duration::from_secs(30), concurrency: 4 };

/// What the receiver does with one attempt.
#[derive(Clone, Copy)]
enum Does {
    Takes,
    Refuses(u16, Option<u64>),
    /// Takes it after so many seconds.
    Late(u64),
    Hangs,
}

/// One attempt as the receiver saw it.
#[derive(Clone)]
struct Seen {
    order: String,
    n: u64,
    sequence: String,
    at: Instant,
    taken: bool,
}

struct Receiver {
    does: Box<dyn Fn(&Seen) -> Does + Send + Sync>,
    seen: Mutex<Vec<Seen>>,
    in_hand: Mutex<HashSet<String>>,
    most_in_hand: Mutex<usize>,
}

impl Receiver {
    fn new(does: impl Fn(&Seen) -> Does + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            does: Box::new(does),
            seen: Mutex::default(),
            in_hand: Mutex::default(),
            most_in_hand: Mutex::default(),
        })
    }

    fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }

    fn n_taken(&self) -> usize {
        lock(&self.seen).iter().filter(|seen| seen.taken).count()
    }

    async fn has_taken(&self, n: usize) {
        while self.n_taken() < n {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Each order's events came once, in the order of their journaling.
    fn assert_in_order(&self, n_events: usize) {
        let mut orders: HashMap<String, u64> = HashMap::new();
        for seen in self.seen().iter().filter(|seen| seen.taken) {
            let before = orders.insert(seen.order.clone(), seen.n);
            assert_eq!(before.map_or(0, |before| before + 1), seen.n, "of order {}", seen.order);
        }
        assert_eq!(self.n_taken(), n_events);
    }
}

impl EventSink for Receiver {
    async fn deliver(&self, envelope: &Envelope) -> Result<(), Refusal> {
        let line: Value = serde_json::from_str(&envelope.line).unwrap();
        let order = line["subject"].as_str().unwrap().to_owned();
        let mut seen = Seen {
            n: line["data"]["event"]["n"].as_u64().unwrap(),
            sequence: line["sequence"].as_str().unwrap().to_owned(),
            at: Instant::now(),
            taken: false,
            order,
        };
        {
            let mut in_hand = lock(&self.in_hand);
            assert!(in_hand.insert(seen.order.clone()), "two events of order {} at a time", seen.order);
            let mut most = lock(&self.most_in_hand);
            *most = in_hand.len().max(*most);
        }
        let result = match (self.does)(&seen) {
            Does::Takes => Ok(()),
            Does::Refuses(status, hint) => Err(Refusal {
                cause: RefusalCause::Status(status),
                retry_after: hint.map(Duration::from_secs),
                answer: Some("no".into()),
            }),
            Does::Late(seconds) => {
                sleep(Duration::from_secs(seconds)).await;
                Ok(())
            }
            Does::Hangs => std::future::pending().await,
        };
        lock(&self.in_hand).remove(&seen.order);
        seen.taken = result.is_ok();
        lock(&self.seen).push(seen);
        result
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Journals the n-th events of these orders.
async fn journal_events(journal: &SqliteJournal, n: u64, orders: &[u64]) {
    let items = orders.iter().map(|order| {
        let (order_id, state) = (format!("o-{order}"), format!("state-{n}"));
        let date = format!("2026-03-02T20:00:{:02}Z", n % 60);
        let identity = Identity {
            account: "store",
            domain: None,
            order_id: &order_id,
            state: Some(&state),
            last_state: None,
            last_change: None,
            current_change: Some(&date),
            event_id: None,
        };
        let key = identity.key();
        let event = Event {
            key,
            state,
            current_change: event::date(&date),
            item: format!(r#"{{"orderId":"{order_id}","n":{n}}}"#),
            order_id,
        };
        Item::Leased(Leased { handle: Handle::new("h".into()), event })
    });
    let batch = Batch {
        account: "store".into(),
        source: "http://127.0.0.1/api/orders/feed".into(),
        items: items.collect(),
        received_at: Timestamp::UNIX_EPOCH,
        lease: Duration::from_secs(30),
    };
    journal.append(batch).await.unwrap();
}

/// A journal with `n_orders` orders of `n_events` events each.
async fn journal(n_orders: u64, n_events: u64) -> Arc<SqliteJournal> {
    let journal = Arc::new(SqliteJournal::in_memory().unwrap());
    let orders: Vec<u64> = (0..n_orders).collect();
    for n in 0..n_events {
        journal_events(&journal, n, &orders).await;
    }
    journal
}

/// Delivers until `end` is over.
async fn deliver(
    journal: &Arc<SqliteJournal>,
    receiver: &Arc<Receiver>,
    limits: Limits,
    end: impl Future<Output = ()>,
) {
    deliver_wanted(journal, receiver, limits, Wanted::default(), end).await;
}

async fn deliver_wanted(
    journal: &Arc<SqliteJournal>,
    receiver: &Arc<Receiver>,
    limits: Limits,
    wanted: Wanted,
    end: impl Future<Output = ()>,
) {
    let (liveness, shutdown) = (Liveness::default(), CancellationToken::new());
    let heartbeat = liveness.register("sink");
    let worker = EventWorker {
        name: "erp",
        wanted,
        limits,
        breaker: BREAKER,
        sink: Arc::clone(receiver),
        journal: Arc::clone(journal),
        wall: Wall::System,
        heartbeat: &heartbeat,
        keeps_wait: true,
    };
    let ending = async {
        end.await;
        assert_eq!(liveness.overdue(Instant::now()), [], "the loop goes round");
        shutdown.cancel();
    };
    tokio::join!(worker.run(1, &shutdown), ending);
}

async fn open(journal: &SqliteJournal) -> Vec<(i64, DeliveryState)> {
    let open = journal.open_deliveries("erp", 0, 10_000).await.unwrap();
    open.into_iter().map(|(heading, state)| (heading.seq, state)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_orders_arrive_in_their_order_and_once_though_a_tenth_of_the_attempts_fails() {
    let journal = journal(1_000, 5).await;
    let chance = Mutex::new(StdRng::seed_from_u64(7));
    let receiver = Receiver::new(move |_| match lock(&chance).random_bool(0.1) {
        true => Does::Refuses(500, None),
        false => Does::Takes,
    });
    deliver(&journal, &receiver, LIMITS, receiver.has_taken(5_000)).await;
    receiver.assert_in_order(5_000);
    assert!(400 < receiver.seen().len() - 5_000, "failures were met");
    assert_eq!(open(&journal).await, []);
    assert_eq!(journal.resume("erp").await.unwrap().progress.seq, 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_down_for_ten_minutes_costs_no_attempt_and_gets_everything() {
    let journal = journal(30, 2).await;
    let up_at = Instant::now() + Duration::from_secs(600);
    let receiver = Receiver::new(move |seen| match up_at <= seen.at {
        true => Does::Takes,
        false => Does::Refuses(503, None),
    });
    let limits = Limits { max_attempts: 1, ..LIMITS };
    deliver(&journal, &receiver, limits, receiver.has_taken(60)).await;
    receiver.assert_in_order(60);
    let n_in_vain = receiver.seen().len() - 60;
    assert!(n_in_vain < 40, "{n_in_vain} attempts in ten minutes");
    assert_eq!(open(&journal).await, []);
}

#[tokio::test(start_paused = true)]
async fn what_is_always_refused_becomes_a_dead_letter_and_a_retry_delivers_it() {
    let journal = journal(1, 3).await;
    let heals_at = Instant::now() + Duration::from_secs(3_600);
    let receiver =
        Receiver::new(move |seen| match seen.order == "o-0" && seen.n == 0 && seen.at < heals_at {
            true => Does::Refuses(400, None),
            false => Does::Takes,
        });
    let limits = Limits { max_attempts: 3, ..LIMITS };
    let life = async {
        // Other orders go on all the time, which shows that the receiver works.
        for n in 0..60 {
            sleep(Duration::from_secs(1)).await;
            journal_events(&journal, 0, &[1_000 + n]).await;
        }
        receiver.has_taken(62).await;
        let refused: Vec<Seen> = receiver.seen().into_iter().filter(|seen| !seen.taken).collect();
        // The first ones do not count: nobody else has shown yet that the receiver works.
        assert!((3..=5).contains(&refused.len()), "{} attempts", refused.len());
        let first = &refused[0].sequence;
        assert_eq!(journal.open_deliveries("erp", 0, 10).await.unwrap(), []);
        sleep(Duration::from_secs(3_600)).await;
        // As `dead-letters retry` does it.
        let seq: i64 = first.parse().unwrap();
        let again = DeliveryState::Pending(Default::default());
        let place = journal.resume("erp").await.unwrap().progress.seq;
        let settlement = crate::journal::Settlement { seq: place, states: vec![(seq, again)] };
        journal.settle("erp", settlement).await.unwrap();
        journal.tell_altered();
        receiver.has_taken(63).await;
    };
    deliver(&journal, &receiver, limits, life).await;
    assert_eq!(receiver.seen().last().map(|seen| seen.n), Some(0));
    assert_eq!(open(&journal).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_slow_order_holds_up_nobody_else() {
    let journal = journal(20, 2).await;
    let receiver = Receiver::new(|seen| match seen.order.as_str() {
        "o-3" => Does::Late(25),
        _ => Does::Takes,
    });
    let started = Instant::now();
    deliver(&journal, &receiver, LIMITS, receiver.has_taken(40)).await;
    receiver.assert_in_order(40);
    let others: Vec<Seen> = receiver.seen().into_iter().filter(|seen| seen.order != "o-3").collect();
    assert!(others.iter().all(|seen| seen.at < started + Duration::from_secs(1)));
    assert!((2..=4).contains(&*lock(&receiver.most_in_hand)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_the_receiver_wants_to_be_left_alone() {
    let journal = journal(10, 1).await;
    let started = Instant::now();
    let until = started + Duration::from_secs(120);
    let receiver = Receiver::new(move |seen| match seen.at {
        at if at == started => Does::Refuses(429, Some(120)),
        at if at < until => panic!("{:?} after a wait of 120 s was asked for", at - started),
        _ => Does::Takes,
    });
    deliver(&journal, &receiver, LIMITS, receiver.has_taken(10)).await;
    assert!(receiver.seen().len() - 10 <= 4, "those that were in hand");
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_the_wait_that_the_receiver_asked_for() {
    let journal = journal(2, 1).await;
    let started = Instant::now();
    let receiver = Receiver::new(|_| Does::Refuses(503, Some(3_600)));
    deliver(&journal, &receiver, LIMITS, sleep(Duration::from_secs(10))).await;
    let mended = Receiver::new(|_| Does::Takes);
    deliver(&journal, &mended, LIMITS, mended.has_taken(2)).await;
    // The wall of these tests does not go with their time: the whole wait is begun again.
    assert!(started + Duration::from_secs(3_600) <= mended.seen()[0].at);
}

#[tokio::test(start_paused = true)]
async fn what_a_sink_does_not_want_is_passed_over() {
    let journal = journal(700, 2).await;
    let receiver = Receiver::new(|_| Does::Takes);
    let wanted = Wanted { states: Some(["state-1".to_owned()].into()), accounts: None };
    let end = async {
        receiver.has_taken(700).await;
        while journal.resume("erp").await.unwrap().progress.seq < 1_400 {
            sleep(Duration::from_millis(100)).await;
        }
    };
    deliver_wanted(&journal, &receiver, LIMITS, wanted, end).await;
    assert!(receiver.seen().iter().all(|seen| seen.n == 1));
    assert_eq!(open(&journal).await, []);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_sent_within_50_ms_of_being_journaled() {
    let journal = journal(0, 0).await;
    let receiver = Receiver::new(|_| Does::Takes);
    let life = async {
        for n in 0..20 {
            sleep(Duration::from_secs(90)).await;
            let journaled = Instant::now();
            journal_events(&journal, 0, &[n]).await;
            while receiver.n_taken() <= n as usize {
                sleep(Duration::from_millis(1)).await;
            }
            assert!(journaled.elapsed() < Duration::from_millis(50));
        }
    };
    deliver(&journal, &receiver, LIMITS, life).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_what_is_in_hand_and_leaves_a_receiver_that_does_not_answer() {
    let journal = journal(9, 1).await;
    let receiver = Receiver::new(|seen| match seen.order.as_str() {
        "o-0" => Does::Hangs,
        "o-1" => Does::Late(8),
        _ => Does::Late(1),
    });
    let started = Instant::now();
    deliver(&journal, &receiver, LIMITS, sleep(Duration::from_millis(1_500))).await;
    assert!(started.elapsed() < Duration::from_secs(13));
    let n_taken = receiver.n_taken();
    assert!(receiver.seen().iter().any(|seen| seen.order == "o-1"), "it was waited for");
    assert!(n_taken < 8, "nothing new was begun");

    let healed = Receiver::new(|_| Does::Takes);
    deliver(&journal, &healed, LIMITS, healed.has_taken(9 - n_taken)).await;
    let orders: BTreeMap<String, u64> =
        [receiver.seen(), healed.seen()].concat().into_iter().fold(BTreeMap::new(), |mut orders, seen| {
            *orders.entry(seen.order).or_default() += 1;
            orders
        });
    assert!(orders.len() == 9 && orders.values().all(|times| *times == 1), "{orders:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_repeats_at_most_what_was_in_hand() {
    for seed in 0..30 {
        let journal = journal(40, 3).await;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut times: HashMap<(String, u64), u32> = HashMap::new();
        for _ in 0..6 {
            let receiver = Receiver::new(|_| Does::Late(1));
            let n = rng.random_range(0..25);
            // Dropped in the middle, as a crash would end it.
            tokio::select! {
                () = deliver(&journal, &receiver, LIMITS, std::future::pending()) => {}
                () = sleep(Duration::from_millis(n * 330)) => {}
            }
            count(&mut times, &receiver);
        }
        let receiver = Receiver::new(|_| Does::Takes);
        let end = async {
            while journal.resume("erp").await.unwrap().progress.seq < 120 {
                sleep(Duration::from_millis(100)).await;
            }
        };
        deliver(&journal, &receiver, LIMITS, end).await;
        count(&mut times, &receiver);
        assert_eq!(times.len(), 120, "seed {seed}");
        let n_again: u32 = times.values().map(|times| times - 1).sum();
        assert!(n_again <= 6 * LIMITS.concurrency, "seed {seed}: {n_again} came again");
    }
}

fn count(times: &mut HashMap<(String, u64), u32>, receiver: &Receiver) {
    for seen in receiver.seen().into_iter().filter(|seen| seen.taken) {
        *times.entry((seen.order, seen.n)).or_default() += 1;
    }
}
