//! One operation's attempts: through the gate, told when they fail, tried again while it makes sense.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, info, warn};

use super::gate::{self, Permit};
use super::{Account, JOURNAL_PATIENCE};
use crate::journal::{Journal, StoredPause};
use crate::observe::logging::ErrorChain;
use crate::policy::classify::{Class, Operation};
use crate::policy::pause;
use crate::policy::replay::{may_replay, replay};
use crate::policy::retry::{Decision, Failure, GiveUp};
use crate::vtex::feed::{Feed, FeedError, Reply};
use crate::vtex::http::AttemptError;

/// The attempts at one operation so far.
pub(super) struct Attempts<'a> {
    operation: Operation,
    n_failed: u32,
    started: Instant,
    /// Whether a failure counts for the breaker; the parts of a split commit count once.
    counts: bool,
    n_requests: &'a AtomicU64,
}

impl<'a> Attempts<'a> {
    /// `n_requests` is increased with each attempt.
    pub(super) fn new(operation: Operation, counts: bool, n_requests: &'a AtomicU64) -> Self {
        Self { operation, n_failed: 0, started: Instant::now(), counts, n_requests }
    }

    pub(super) fn n_failed(&self) -> u32 {
        self.n_failed
    }
}

impl<F: Feed, J: Journal> Account<'_, F, J> {
    /// Takes the answer of an attempt: its success, or what to do about its failure.
    pub(super) async fn settle<T>(
        &self,
        attempts: &mut Attempts<'_>,
        permit: Permit,
        answer: Result<Reply<T>, FeedError>,
    ) -> Result<T, (Decision, FeedError)> {
        attempts.n_requests.fetch_add(1, Ordering::Relaxed);
        let metrics = self.gate.metrics();
        let status = match &answer {
            Ok(reply) => Some(reply.status.as_u16()),
            Err(error) => error.status(),
        };
        metrics.requested(attempts.operation, status, permit.sent_at.elapsed());
        match answer {
            Ok(Reply { status: _, body, hints }) => {
                if 0 < attempts.n_failed {
                    metrics.retried_well(attempts.operation);
                }
                permit.settle(gate::Attempt { account: &self.name, failure: None, hints, counts: true });
                self.tell_recovery(attempts.operation);
                Ok(body)
            }
            // Nobody waited for an answer: it says nothing about VTEX.
            Err(error @ FeedError::Attempt(AttemptError::Abandoned)) => {
                Err((Decision::GiveUp(GiveUp::NotRetryable), error))
            }
            Err(error) => {
                attempts.n_failed += 1;
                let decision = self.decide(attempts, &error);
                self.tell_failure(attempts, permit.sent_at, &error, decision);
                let attempt = gate::Attempt {
                    account: &self.name,
                    failure: Some(error.class()),
                    hints: error.hints(),
                    counts: attempts.counts,
                };
                if let Some(length) = permit.settle(attempt) {
                    self.keep_pause(attempts.operation, length).await;
                }
                Err((decision, error))
            }
        }
    }

    fn decide(&self, attempts: &Attempts<'_>, error: &FeedError) -> Decision {
        let failure = Failure {
            class: error.class(),
            status: error.status(),
            hint: error.hints().wait.map(|hint| hint.wait),
            may_replay: may_replay(replay(attempts.operation), error.reached(), false),
        };
        self.retry.decide(failure, attempts.n_failed, attempts.started.elapsed(), self.memory.jitter())
    }

    /// Stored before anything else is asked, so that a restart does not break it.
    async fn keep_pause(&self, operation: Operation, length: Duration) {
        let ends_at = pause::ends_at(self.wall.now(), length);
        self.status.account(&self.name, |facts| facts.paused_until = Some(ends_at));
        // Not that of another loop, which may be in the middle of a longer wait.
        self.memory.heartbeat(operation).due_within(JOURNAL_PATIENCE);
        let stored =
            self.journal.store_pause(self.gate.vtex_account(), StoredPause { ends_at, length }).await;
        if let Err(error) = stored {
            warn!(
                event = "journal.blocked", account = self.name, error = %ErrorChain(&error),
                "the pause is not stored: a restart would not know of it"
            );
        }
    }

    fn tell_failure(&self, attempts: &Attempts<'_>, sent_at: Instant, error: &FeedError, decision: Decision) {
        let (operation, class) = (attempts.operation, error.class());
        let Some(times) = self.memory.state().failures.note((operation, class), Instant::now()) else {
            return;
        };
        let (outcome, wait) = match decision {
            Decision::RetryAfter(delay) => ("retry", Some(delay)),
            // A commit waits out the pause at the gate; a receive leaves it to the next poll.
            Decision::AwaitGate if operation == Operation::Commit => ("retry", None),
            Decision::AwaitGate | Decision::GiveUp(_) => ("give_up", None),
        };
        let answer = match error {
            FeedError::Refused { excerpt, .. } if !excerpt.is_empty() => Some(excerpt.as_str()),
            FeedError::Refused { .. } | FeedError::Malformed { .. } | FeedError::Attempt(_) => None,
        };
        macro_rules! tell {
            ($level:ident) => {
                $level!(
                    event = "request.failed", account = self.name, operation = operation.name(), status = error.status(),
                    class = class.name(), attempt = attempts.n_failed, wait_ms = wait.map(|wait| wait.as_millis() as u64),
                    retry_after_s = error.hints().wait.map(|hint| hint.wait.as_secs()),
                    elapsed_ms = sent_at.elapsed().as_millis() as u64, outcome, times, answer,
                    error = %ErrorChain(error), "request failed"
                )
            };
        }
        match class {
            Class::Unauthorized | Class::Unconfigured | Class::Permanent => tell!(error),
            Class::Throttled | Class::Transient | Class::Malformed => tell!(warn),
        }
    }

    fn tell_recovery(&self, operation: Operation) {
        let ended = self.memory.state().failures.end(|(failed, _)| *failed == operation, Instant::now());
        if let Some(ended) = ended {
            info!(
                event = "request.recovered",
                account = self.name,
                operation = operation.name(),
                failures = ended.times,
                lasted_ms = ended.lasted.as_millis() as u64,
                "request works again"
            );
        }
    }
}
