//! How long VTEX hides an item, learnt from the feed's configuration.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Account;
use super::attempt::Attempts;
use super::gate::Permit;
use crate::journal::Journal;
use crate::observe::metrics::GivenUp;
use crate::policy::classify::Operation;
use crate::policy::schedule;
use crate::vtex::feed::{Feed, FeedError, Reply};

/// How often the configuration is asked for.
const EVERY: Duration = Duration::from_secs(5 * 60);

impl<F: Feed, J: Journal> Account<'_, F, J> {
    /// Asks at the start and every five minutes, one attempt each: what is known stays good enough. Until `shutdown`:
    /// asking leases nothing and is dropped at any moment, but what was heard is settled, so that its pause is stored.
    pub(super) async fn keep_learning(&self, shutdown: &CancellationToken) {
        let n_requests = AtomicU64::new(0);
        // Not before the feed's first poll: many feeds spread theirs over the interval.
        let mut next = self.memory.state().next_poll;
        self.memory.learning.due_within(next.saturating_duration_since(Instant::now()));
        while let Some((permit, answer)) = shutdown.run_until_cancelled(self.ask_visibility(next)).await {
            let mut attempts = Attempts::new(Operation::Config, true, &n_requests);
            match self.settle(&mut attempts, permit, answer).await {
                Ok(visibility) => {
                    debug!(
                        event = "lease.known",
                        account = self.name,
                        visibility_s = visibility.as_secs(),
                        "lease length"
                    );
                    self.memory.state().visibility = Some(visibility);
                }
                Err((_, error)) => {
                    self.gate.metrics().gave_up(Operation::Config, GivenUp::Failed(error.class()));
                }
            }
            self.memory.learning.due_within(EVERY);
            next = Instant::now() + EVERY;
        }
    }

    async fn ask_visibility(&self, at: Instant) -> (Permit, Result<Reply<Duration>, FeedError>) {
        sleep_until(at).await;
        let permit = self.gate.pass(Operation::Config, &self.memory.learning).await;
        self.memory.learning.due_within(self.request_timeout);
        (permit, self.feed.visibility().await)
    }

    /// When the leases of a batch end that was asked for at `sent_at`.
    pub(super) fn leases_end(&self, sent_at: Instant) -> Instant {
        schedule::lease_ends(sent_at.into_std(), self.memory.state().visibility).into()
    }
}
