//! How long VTEX hides an item, learnt from the feed's configuration.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;

use super::Account;
use super::attempt::Attempts;
use crate::journal::Journal;
use crate::observe::metrics::GivenUp;
use crate::policy::classify::Operation;
use crate::policy::schedule;
use crate::vtex::feed::Feed;

/// How often the configuration is asked for.
const EVERY: Duration = Duration::from_secs(5 * 60);

impl<F: Feed, J: Journal> Account<'_, F, J> {
    /// Asks at the start and every five minutes, one attempt each: what is known stays good enough. Runs until
    /// dropped; cancel safe.
    pub(super) async fn keep_learning(&self) {
        let n_requests = AtomicU64::new(0);
        // Not before the feed's first poll: many feeds spread theirs over the interval.
        let first_poll = self.memory.state().next_poll;
        self.memory.learning.due_within(first_poll.saturating_duration_since(Instant::now()));
        sleep_until(first_poll).await;
        loop {
            let permit = self.gate.pass(Operation::Config, &self.memory.learning).await;
            self.memory.learning.due_within(self.request_timeout);
            let answer = self.feed.visibility().await;
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
            sleep(EVERY).await;
        }
    }

    /// When the leases of a batch end that was asked for at `sent_at`.
    pub(super) fn leases_end(&self, sent_at: Instant) -> Instant {
        schedule::lease_ends(sent_at.into_std(), self.memory.state().visibility).into()
    }
}
