//! The gate in paused time.

use super::*;
use crate::http::Hints;
use crate::observe::liveness::Liveness;
use crate::policy::classify::Class;
use crate::policy::retry_after::Hint;

const MINUTE: Duration = Duration::from_secs(60);

pub(in crate::account) fn settings() -> Settings {
    Settings {
        per_second: 10.0,
        burst: 1,
        concurrency: 2,
        rate_limit: pause::Settings { pause: MINUTE, max_pause: 15 * MINUTE },
        circuit_breaker: breaker::Settings { failures: 5, recovery: Duration::from_secs(30), successes: 3 },
    }
}

fn hint(seconds: u64) -> Hint {
    Hint { wait: Duration::from_secs(seconds), capped: false }
}

struct Rig {
    gate: Arc<Gate>,
    liveness: Liveness,
    heartbeat: Heartbeat,
    start: Instant,
}

impl Rig {
    fn new() -> Self {
        let liveness = Liveness::default();
        let gate = Arc::new(Gate::new("store".into(), settings(), 7));
        Self { gate, heartbeat: liveness.register("test"), liveness, start: Instant::now() }
    }

    async fn pass(&self, operation: Operation) -> Permit {
        self.gate.pass(operation, &self.heartbeat).await
    }

    async fn attempt(&self, failure: Option<Class>, wait_s: Option<u64>) -> Option<Duration> {
        let hints = Hints { wait: wait_s.map(hint), slow_down: None };
        self.pass(Operation::Receive).await.settle(Attempt { account: "store", failure, hints, counts: true })
    }

    fn elapsed_s(&self) -> u64 {
        self.start.elapsed().as_secs()
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_spaced() {
    let rig = Rig::new();
    for _ in 0..11 {
        drop(rig.pass(Operation::Receive).await);
    }
    assert!(
        Duration::from_secs(1) <= rig.start.elapsed() && rig.start.elapsed() < Duration::from_millis(1050)
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_passes_within_a_pause_whatever_becomes_of_the_settings() {
    let rig = Rig::new();
    let length = rig.attempt(Some(Class::Throttled), None).await.unwrap();
    assert!(MINUTE <= length && length <= MINUTE * 11 / 10);
    rig.gate.set(Settings { per_second: 1_000.0, ..settings() });
    drop(rig.pass(Operation::Commit).await);
    assert!(60 <= rig.elapsed_s() && rig.elapsed_s() < 67);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_closes_the_gate_whatever_the_failure() {
    let rig = Rig::new();
    assert_eq!(rig.attempt(Some(Class::Transient), Some(300)).await, Some(Duration::from_secs(300)));
    drop(rig.pass(Operation::Commit).await);
    assert_eq!(rig.elapsed_s(), 300);
    assert_eq!(rig.attempt(None, Some(300)).await, None, "a success asks for nothing");
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_stored_is_the_pause_in_force_and_not_a_shorter_one_that_came_later() {
    let rig = Rig::new();
    let (first, second) = (rig.pass(Operation::Receive).await, rig.pass(Operation::Commit).await);
    let settle = |permit: Permit, failure, wait_s| {
        let hints = Hints { wait: Some(hint(wait_s)), slow_down: None };
        permit.settle(Attempt { account: "store", failure: Some(failure), hints, counts: true })
    };
    assert_eq!(settle(first, Class::Transient, 300), Some(Duration::from_secs(300)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(settle(second, Class::Transient, 5), Some(Duration::from_secs(299)));
}

#[tokio::test(start_paused = true)]
async fn a_restored_pause_holds() {
    let rig = Rig::new();
    rig.gate.restore_pause(Duration::from_secs(42));
    drop(rig.pass(Operation::Receive).await);
    assert_eq!(rig.elapsed_s(), 42);
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_commits_go_first() {
    let rig = Rig::new();
    rig.gate.restore_pause(MINUTE);
    let order = Mutex::new(Vec::new());
    let go = async |operation| {
        drop(rig.pass(operation).await);
        order.lock().unwrap().push(operation);
    };
    tokio::join!(go(Operation::Config), go(Operation::Receive), go(Operation::Commit));
    assert_eq!(*order.lock().unwrap(), [Operation::Commit, Operation::Receive, Operation::Config]);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_run_at_a_time_than_there_are_lanes() {
    let rig = Rig::new();
    let first = rig.pass(Operation::Receive).await;
    let _second = rig.pass(Operation::Receive).await;
    let third = tokio::time::timeout(MINUTE, rig.pass(Operation::Commit)).await;
    assert!(third.is_err());
    drop(first);
    drop(rig.pass(Operation::Commit).await);
    assert_eq!(rig.elapsed_s(), 60);
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_lets_one_trial_through() {
    let rig = Rig::new();
    for _ in 0..5 {
        rig.attempt(Some(Class::Transient), None).await;
    }
    let trial = rig.pass(Operation::Receive).await;
    assert_eq!(rig.elapsed_s(), 30);
    assert!(tokio::time::timeout(MINUTE, rig.pass(Operation::Commit)).await.is_err());
    drop(trial);
    for _ in 0..3 {
        rig.attempt(None, None).await;
    }
    let (_one, _two) = (rig.pass(Operation::Receive).await, rig.pass(Operation::Receive).await);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_waits_out_a_pause_is_not_overdue() {
    let rig = Rig::new();
    rig.gate.restore_pause(Duration::from_secs(7200));
    let waited = tokio::time::timeout(Duration::from_secs(7000), rig.pass(Operation::Receive)).await;
    assert!(waited.is_err());
    assert_eq!(rig.liveness.overdue(Instant::now()), []);
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_waiting_does_not_hold_up_the_others() {
    let rig = Rig::new();
    drop(rig.pass(Operation::Receive).await);
    let impatient = tokio::time::timeout(Duration::from_millis(1), rig.pass(Operation::Commit)).await;
    assert!(impatient.is_err());
    tokio::time::timeout(MINUTE, rig.pass(Operation::Config)).await.map(drop).unwrap();
}
