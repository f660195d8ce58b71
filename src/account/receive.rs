//! Receiving a batch, with retries.

use std::sync::atomic::AtomicU64;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Account;
use super::attempt::Attempts;
use crate::event::Item;
use crate::journal::Journal;
use crate::observe::metrics::{Cause, GivenUp};
use crate::policy::classify::{Class, Operation};
use crate::policy::retry::Decision;
use crate::vtex::feed::{Feed, FeedError};
use crate::vtex::http::AttemptError;

/// After so many malformed batches in a row items are asked for one by one, until one comes whole.
const ONE_BY_ONE_AFTER: u32 = 3;

/// A batch that is leased to us.
pub(super) struct Received {
    pub(super) items: Vec<Item>,
    /// The leases run from here.
    pub(super) sent_at: Instant,
}

/// Why nothing was received.
pub(super) enum NotReceived {
    Shutdown,
    /// A write failed since: what cannot be stored is not leased.
    JournalBlocked,
    GivenUp(Class),
}

impl<F: Feed, J: Journal> Account<'_, F, J> {
    pub(super) async fn receive(
        &self,
        n_requests: &AtomicU64,
        shutdown: &CancellationToken,
    ) -> Result<Received, NotReceived> {
        let mut attempts = Attempts::new(Operation::Receive, true, n_requests);
        loop {
            let passing = self.gate.pass(Operation::Receive, &self.memory.polling);
            let permit = shutdown.run_until_cancelled(passing).await.ok_or(NotReceived::Shutdown)?;
            // Looked at behind the gate, where the wait may have been long.
            if self.journal.is_blocked() {
                return Err(NotReceived::JournalBlocked);
            }
            let sent_at = permit.sent_at;
            self.memory.polling.due_within(self.request_timeout);
            let answer = self.feed.receive(self.batch_size(), shutdown).await;
            match self.settle(&mut attempts, permit, answer).await {
                Ok(items) => {
                    self.memory.state().n_malformed = 0;
                    return Ok(Received { items, sent_at });
                }
                Err((decision, error)) => self.after_failure(decision, &error, shutdown).await?,
            }
        }
    }

    /// Waits before the next attempt, if there is to be one.
    async fn after_failure(
        &self,
        decision: Decision,
        error: &FeedError,
        shutdown: &CancellationToken,
    ) -> Result<(), NotReceived> {
        let class = error.class();
        if class == Class::Malformed {
            self.memory.state().n_malformed += 1;
        }
        match (decision, error) {
            (_, FeedError::Attempt(AttemptError::Abandoned)) => Err(NotReceived::Shutdown),
            (Decision::RetryAfter(delay), _) => {
                self.memory.polling.due_within(delay);
                let _waiting = self.gate.metrics().waiting_for(Cause::Backoff);
                shutdown.run_until_cancelled(sleep(delay)).await.ok_or(NotReceived::Shutdown)
            }
            // The next poll comes after the pause.
            (Decision::AwaitGate | Decision::GiveUp(_), _) => {
                self.gate.metrics().gave_up(Operation::Receive, GivenUp::Failed(class));
                Err(NotReceived::GivenUp(class))
            }
        }
    }

    fn batch_size(&self) -> u8 {
        if self.memory.state().n_malformed < ONE_BY_ONE_AFTER { self.poll.batch_size } else { 1 }
    }
}
