//! Sending one notification, and sending many through one gate.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use order_feed_agent::account::Gate;
use order_feed_agent::account::gate::Attempt;
use order_feed_agent::http::Hints;
use order_feed_agent::observe::liveness::{Heartbeat, Liveness};
use order_feed_agent::observe::metrics::{Cause, GivenUp};
use order_feed_agent::policy::classify::{Class, Operation};
use order_feed_agent::policy::replay::{may_replay, replay};
use order_feed_agent::policy::retry::{Decision, Failure, Retry};
use order_feed_agent::vtex::ask::ask;
use order_feed_agent::vtex::feed::{ABANDON_AFTER, FeedError};
use order_feed_agent::vtex::http::{Http, Request};
use order_feed_agent::vtex::path::Segment::Fixed;
use order_feed_agent::vtex::path::{Id, IdError, Segment};
use reqwest::Method;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const OPERATION: Operation = Operation::NotifyPrice;

/// How many results may wait to be looked at.
const RESULTS: usize = 64;

/// What notifications are sent with.
pub(crate) struct Notifier {
    pub(crate) http: Http,
    pub(crate) gate: Arc<Gate>,
    pub(crate) seller: String,
    pub(crate) retry: Retry,
    /// Whether a notification that may have arrived is sent again.
    pub(crate) resend: bool,
}

/// What became of one SKU.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) sku: String,
    /// `Ok` when VTEX took the notification.
    pub(crate) result: Result<(), NotSent>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSent {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("given up")]
    Failed(#[from] FeedError),
    /// The shutdown came before the first attempt.
    #[error("not sent before the end")]
    Shutdown,
}

impl NotSent {
    /// What VTEX said of it, to follow the error; empty where it said nothing.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Failed(FeedError::Refused { excerpt, .. }) if !excerpt.is_empty() => format!(": {excerpt}"),
            Self::Id(_) | Self::Failed(_) | Self::Shutdown => String::new(),
        }
    }
}

/// Sends a notification for each SKU, at most `lanes` at a time; with one lane in their order. The results come in
/// the order in which they are known; the receiver ends after the last one.
///
/// After `shutdown` no SKU is begun, and who waits gives up; what was sent is waited for. A key or token that VTEX
/// refuses cancels `shutdown`, since no other SKU would fare better.
pub(crate) fn send_all(
    notifier: Arc<Notifier>,
    lanes: u32,
    skus: mpsc::Receiver<String>,
    shutdown: CancellationToken,
) -> (JoinSet<()>, mpsc::Receiver<Done>) {
    let (sender, results) = mpsc::channel(RESULTS);
    let skus = Arc::new(Mutex::new(skus));
    let mut workers = JoinSet::new();
    for _ in 0..lanes {
        workers.spawn(work(Arc::clone(&notifier), Arc::clone(&skus), sender.clone(), shutdown.clone()));
    }
    (workers, results)
}

async fn work(
    notifier: Arc<Notifier>,
    skus: Arc<Mutex<mpsc::Receiver<String>>>,
    results: mpsc::Sender<Done>,
    shutdown: CancellationToken,
) {
    // The gate wants somebody to know that its waits are rightful; here nobody looks.
    let heartbeat = Liveness::default().register("notifications");
    loop {
        let next = shutdown.run_until_cancelled(async { skus.lock().await.recv().await }).await;
        let Some(Some(sku)) = next else { return };
        let result = notifier.notify(&sku, &heartbeat, &shutdown).await;
        if matches!(&result, Err(NotSent::Failed(error)) if error.class() == Class::Unauthorized) {
            shutdown.cancel();
        }
        if results.send(Done { sku, result }).await.is_err() {
            return;
        }
    }
}

impl Notifier {
    /// Sends one notification: each attempt passes the gate, and a failed one is repeated while the policy says so.
    async fn notify(
        &self,
        sku: &str,
        heartbeat: &Heartbeat,
        shutdown: &CancellationToken,
    ) -> Result<(), NotSent> {
        let (seller, sku) = (Id::new("seller", &self.seller)?, Id::new("SKU", sku)?);
        let path = [
            Fixed("notificator"),
            Segment::Id(seller),
            Fixed("changenotification"),
            Segment::Id(sku),
            Fixed("price"),
        ];
        let started = Instant::now();
        let mut n_failed = 0;
        let mut last = NotSent::Shutdown;
        loop {
            let passing = self.gate.pass(OPERATION, heartbeat);
            let Some(permit) = shutdown.run_until_cancelled(passing).await else { return Err(last) };
            let sent_at = permit.sent_at;
            let request = Request { method: Method::POST, path: &path, query: None, body: Vec::new() };
            let answer = ask(&self.http, OPERATION, request, iter::empty(), abandoned(shutdown)).await;
            let (hints, failure) = match &answer {
                Ok(answer) => (answer.hints(), None),
                Err(error) => (error.hints(), Some(error.class())),
            };
            let status = match &answer {
                Ok(answer) => Some(answer.status().as_u16()),
                Err(error) => error.status(),
            };
            self.gate.metrics().requested(OPERATION, status, sent_at.elapsed());
            permit.settle(Attempt { account: &self.seller, failure, hints, counts: true });
            let Err(error) = answer else {
                if 0 < n_failed {
                    self.gate.metrics().retried_well(OPERATION);
                }
                return Ok(());
            };
            n_failed += 1;
            let decision = self.decide(&error, hints, n_failed, started.elapsed());
            last = NotSent::Failed(error);
            if !self.waits_to_repeat(decision, n_failed, shutdown).await {
                let class = failure.unwrap_or(Class::Transient);
                self.gate.metrics().gave_up(OPERATION, GivenUp::Failed(class));
                return Err(last);
            }
        }
    }

    fn decide(&self, error: &FeedError, hints: Hints, n_failed: u32, elapsed: Duration) -> Decision {
        let failure = Failure {
            class: error.class(),
            status: error.status(),
            hint: hints.wait.map(|hint| hint.wait),
            may_replay: may_replay(replay(OPERATION), error.reached(), self.resend),
        };
        self.retry.decide(failure, n_failed, elapsed, rand::random())
    }

    /// Returns whether there is to be another attempt, after the wait that comes before it.
    async fn waits_to_repeat(&self, decision: Decision, n_failed: u32, shutdown: &CancellationToken) -> bool {
        match decision {
            Decision::RetryAfter(delay) => {
                let _waiting = self.gate.metrics().waiting_for(Cause::Backoff);
                shutdown.run_until_cancelled(sleep(delay)).await.is_some()
            }
            // Waited out at the gate, but not for ever.
            Decision::AwaitGate => n_failed <= self.retry.max_retries,
            Decision::GiveUp(_) => false,
        }
    }
}

/// Ends when an answer that has not begun is waited for no longer.
async fn abandoned(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    sleep(ABANDON_AFTER).await;
}
