//! Random sequences of answers, in paused time: whatever VTEX answers, an account stays polite, alive and whole.
//!
//! `ACCOUNT_SEED=N` replays the sequence that failed, `ACCOUNT_SEQUENCES=N` runs so many of them.

use rand::seq::IndexedRandom;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;
use crate::config::Secret;
use crate::event;
use crate::journal::Journaled;
use crate::observe::liveness::Liveness;
use crate::policy::backoff::Backoff;
use crate::policy::slow_down::{Level, SlowDown};
use crate::policy::{breaker, pause};
use crate::sandbox::items::Item;
use crate::sandbox::memory::{Fault, MemoryFeed};
use crate::sandbox::queue::{Oddities, Rules};
use crate::vtex::feed::{FeedError, Reply};
use in_turn::InTurn;
use judge::{Answer, Judge, Rules as HouseRules};

mod in_turn;
mod judge;

/// In an everyday run; the long run asks for ten times as many.
const N_SEQUENCES: u64 = 1_000;

/// Once VTEX behaves, everything is committed within this time. The queue stays odd, and each commit that it takes
/// without effect costs a lease, which may be a quarter of an hour.
const HEALED_WITHIN: Duration = Duration::from_secs(24 * 3_600);

#[tokio::test(start_paused = true)]
async fn whatever_vtex_answers_an_account_is_polite_and_alive_and_commits_everything() {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().unwrap());
    let journal = Arc::new(InTurn::new());
    let (first, n) = match number("ACCOUNT_SEED") {
        Some(seed) => (seed, 1),
        None => (rand::random::<u64>() >> 1, number("ACCOUNT_SEQUENCES").unwrap_or(N_SEQUENCES)),
    };
    for seed in first..first + n {
        let outcome = sequence(seed, &journal).await;
        assert!(outcome.is_ok(), "ACCOUNT_SEED={seed} replays this: {}", outcome.unwrap_err());
    }
}

/// Lets one or two feeds of an account meet random answers, then good ones; the error says what went wrong.
async fn sequence(seed: u64, journal: &Arc<InTurn>) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let rules = house_rules(&mut rng);
    let vtex = Arc::new(Vtex {
        good_from: Instant::now() + Duration::from_secs(rng.random_range(60..2_400)),
        faults: rng.random_range(0.05..0.8),
        rng: Mutex::new(StdRng::seed_from_u64(rng.random())),
        judge: Mutex::new(Judge::new(rules, Instant::now())),
    });
    let gate = Arc::new(Gate::new("store".to_owned(), gate_settings(rules), rng.random()));
    let (shutdown, mut running) = (CancellationToken::new(), JoinSet::new());
    let mut memories = Vec::new();
    for index in 0..rng.random_range(1..=2) {
        let name = format!("{seed}-{index}");
        let memory = Arc::new(MemoryFeed::new(&name, queue_rules(rules, &mut rng), rng.random()));
        memories.push(Arc::clone(&memory));
        let feed = Witness { index, memory, vtex: Arc::clone(&vtex) };
        let first_poll = Instant::now() + rules.interval * index as u32 / 2;
        let (journal, gate, shutdown) = (Arc::clone(journal), Arc::clone(&gate), shutdown.clone());
        let seed = rng.random();
        running.spawn(async move {
            let liveness = Liveness::default();
            let heartbeats = (liveness.register("polling"), liveness.register("learning"));
            let memory = Memory::new(heartbeats.0, heartbeats.1, first_poll, seed);
            account(name, rules, feed, journal, gate, &memory).run(&shutdown).await;
        });
    }
    let before = journal.n_events();
    let n_events = enqueue_meanwhile(&memories, vtex.good_from, &mut rng).await;
    let deadline = vtex.good_from + HEALED_WITHIN;
    while memories.iter().any(|memory| 0 < memory.n_waiting())
        && Instant::now() < deadline
        && running.len() == memories.len()
    {
        sleep(Duration::from_secs(60)).await;
    }
    shutdown.cancel();
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| error.to_string())?;
    }
    let n_waiting: usize = memories.iter().map(|memory| memory.n_waiting()).sum();
    let n_journaled = journal.n_events() - before;
    if (n_waiting, n_journaled) != (0, n_events) {
        return Err(format!("of {n_events} events {n_journaled} are journaled, {n_waiting} not committed"));
    }
    vtex.judge.lock().unwrap().close(Instant::now())
}

/// Events come at any time before VTEX behaves; returns how many.
async fn enqueue_meanwhile(feeds: &[Arc<MemoryFeed>], until: Instant, rng: &mut StdRng) -> usize {
    let mut n_events = 0;
    loop {
        for _ in 0..rng.random_range(0..25) {
            let item = serde_json::json!({
                "orderId": format!("{n_events}-01"), "state": "handling", "currentChange": "2026-03-02T20:54:23Z",
            });
            feeds.choose(rng).unwrap().enqueue(Item::new(&item));
            n_events += 1;
        }
        if until <= Instant::now() {
            return n_events;
        }
        sleep(Duration::from_secs(rng.random_range(1..900))).await;
    }
}

fn house_rules(rng: &mut StdRng) -> HouseRules {
    HouseRules {
        interval: Duration::from_secs(*[10, 30, 30, 60, 600].choose(rng).unwrap()),
        per_second: *[2.0, 10.0, 100.0].choose(rng).unwrap(),
        burst: rng.random_range(1..4),
        visibility: Duration::from_secs(*[30, 240, 900].choose(rng).unwrap()),
    }
}

fn gate_settings(rules: HouseRules) -> gate::Settings {
    gate::Settings {
        per_second: rules.per_second,
        burst: rules.burst,
        concurrency: 2,
        rate_limit: pause::Settings { pause: judge::LEAST_PAUSE, max_pause: judge::LONGEST_GROWN_PAUSE },
        circuit_breaker: breaker::Settings { failures: 5, recovery: judge::RECOVERY, successes: 3 },
    }
}

fn queue_rules(rules: HouseRules, rng: &mut StdRng) -> Rules {
    let mut sometimes = |probability| if rng.random_bool(0.3) { probability } else { 0.0 };
    let oddities = Oddities {
        short_read: sometimes(0.3),
        empty_read: sometimes(0.1),
        delivered_twice: sometimes(0.1),
        back_after_commit: sometimes(0.1),
        kept_despite_commit: sometimes(0.1),
    };
    Rules { visibility: rules.visibility, oddities, ..Rules::default() }
}

fn account(
    name: String,
    rules: HouseRules,
    feed: Witness,
    journal: Arc<InTurn>,
    gate: Arc<Gate>,
    memory: &Memory,
) -> Account<'_, Witness, InTurn> {
    let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };
    Account {
        name,
        source: "memory:/api/orders/feed".to_owned(),
        poll: config::Poll { interval: rules.interval, batch_size: 10, drain: true },
        retry: Retry { backoff, max_retries: 5, budget: Duration::from_secs(120) },
        request_timeout: Duration::from_secs(30),
        app_token_source: SecretSource::Literal,
        feed,
        journal,
        gate,
        status: Status::default(),
        wall: Wall::System,
        memory,
    }
}

/// The account's VTEX: what goes wrong, and the judge who sees every request.
struct Vtex {
    good_from: Instant,
    /// How likely one request meets a fault until then.
    faults: f64,
    rng: Mutex<StdRng>,
    judge: Mutex<Judge>,
}

impl Vtex {
    fn draw(&self) -> Fault {
        let rng = &mut *self.rng.lock().unwrap();
        if self.good_from <= Instant::now() || !rng.random_bool(self.faults) {
            return Fault::None;
        }
        let mut seconds = |most| Duration::from_secs(rng.random_range(1..=most));
        let (short, long) = (seconds(600), seconds(3_600));
        let status = |code| Fault::Status(code);
        *[
            status(429),
            Fault::StatusAfter(429, short),
            Fault::StatusAfter(429, long),
            Fault::StatusAfter(503, short),
            status(*[500, 502, 503, 504, 408, 501].choose(rng).unwrap()),
            status(*[400, 404, 409, 413, 422].choose(rng).unwrap()),
            status(*[401, 403].choose(rng).unwrap()),
            status(*[302, 418].choose(rng).unwrap()),
            Fault::Late(short / 200),
            Fault::AnswerLost,
            Fault::Cut,
            Fault::Hollow,
        ]
        .choose(rng)
        .unwrap()
    }

    fn draw_slow_down(&self) -> Option<SlowDown> {
        let rng = &mut *self.rng.lock().unwrap();
        let level = *[Level::Low, Level::Critical].choose(rng).unwrap();
        let slows = Instant::now() < self.good_from && rng.random_bool(self.faults / 20.0);
        slows.then(|| SlowDown { level, length: Duration::from_secs(rng.random_range(1..=300)) })
    }
}

/// One feed, under the eyes of the judge.
struct Witness {
    index: usize,
    memory: Arc<MemoryFeed>,
    vtex: Arc<Vtex>,
}

impl Witness {
    async fn watch<T>(
        &self,
        operation: Operation,
        committing: &[Journaled],
        asking: impl Future<Output = Result<Reply<T>, FeedError>>,
        received: impl Fn(&T) -> Vec<String>,
    ) -> Result<Reply<T>, FeedError> {
        let handles: Vec<_> = committing.iter().map(|event| event.handle().expose().to_owned()).collect();
        self.memory.script_for(operation, [self.vtex.draw()]);
        let sent_at = Instant::now();
        let judge = || self.vtex.judge.lock().unwrap();
        judge().sent(self.index, operation, sent_at);
        let mut answer = asking.await;
        if let Ok(reply) = &mut answer {
            reply.hints.slow_down = self.vtex.draw_slow_down();
        }
        let (failure, hints, handles) = match &answer {
            Ok(Reply { body, hints, .. }) if operation == Operation::Receive => {
                (None, *hints, received(body))
            }
            Ok(Reply { hints, .. }) => (None, *hints, handles),
            Err(error) => (Some(error.class()), error.hints(), handles),
        };
        judge().answered(
            Answer { feed: self.index, operation, sent_at, failure, hints, handles },
            Instant::now(),
        );
        answer
    }
}

impl Feed for Witness {
    async fn receive(
        &self,
        max: u8,
        shutdown: &CancellationToken,
    ) -> Result<Reply<Vec<event::Item>>, FeedError> {
        let handles = |items: &Vec<event::Item>| {
            items
                .iter()
                .filter_map(|item| match item {
                    event::Item::Leased(leased) => Some(leased.handle.expose().to_owned()),
                    event::Item::Unusable(_) => None,
                })
                .collect()
        };
        self.watch(Operation::Receive, &[], self.memory.receive(max, shutdown), handles).await
    }

    async fn commit(&self, events: &[Journaled]) -> Result<Reply<()>, FeedError> {
        self.watch(Operation::Commit, events, self.memory.commit(events), |()| Vec::new()).await
    }

    async fn visibility(&self) -> Result<Reply<Duration>, FeedError> {
        self.watch(Operation::Config, &[], self.memory.visibility(), |_| Vec::new()).await
    }

    fn set_app_token(&self, token: Secret) -> bool {
        self.memory.set_app_token(token)
    }
}
