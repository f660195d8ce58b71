//! A feed that cannot work before somebody helps: said once, polled slowly, healed without a restart where possible.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::Account;
use super::poll::Report;
use crate::config::{Secret, SecretSource};
use crate::journal::Journal;
use crate::policy::classify::Class;
use crate::vtex::feed::Feed;

impl<F: Feed, J: Journal> Account<'_, F, J> {
    /// Takes note of how a poll ended, and says so where that changes something.
    pub(super) fn degrade_or_recover(&self, report: &Report) {
        let before = self.memory.state().degraded;
        match report.failure {
            Some(class @ (Class::Unauthorized | Class::Unconfigured)) => {
                self.memory.state().degraded = Some(class);
                if before != Some(class) {
                    self.tell_degraded(class);
                }
            }
            Some(Class::Throttled | Class::Transient | Class::Malformed | Class::Permanent) => {}
            None => {
                if let Some(class) = self.memory.state().degraded.take_if(|_| report.has_received) {
                    info!(
                        event = "account.recovered",
                        account = self.name,
                        class = class.name(),
                        "feed works again"
                    );
                }
            }
        }
    }

    /// Whether only another token can help, and one may come without a restart.
    pub(super) fn may_get_another_token(&self) -> bool {
        self.memory.state().degraded == Some(Class::Unauthorized)
            && matches!(self.app_token_source, SecretSource::File(_))
    }

    /// Waits until `latest`, or until the token's file holds another one; it is looked at once an interval. `None`
    /// when the shutdown came first.
    pub(super) async fn wait_for_another_token(
        &self,
        latest: Instant,
        shutdown: &CancellationToken,
    ) -> Option<()> {
        loop {
            let next_look = (Instant::now() + self.poll.interval).min(latest);
            self.wait_until(next_look, shutdown).await?;
            if self.read_token_again().await || latest <= Instant::now() {
                return Some(());
            }
        }
    }

    /// Returns whether the token's file holds another token than the one in use; it is used from now on then.
    async fn read_token_again(&self) -> bool {
        let SecretSource::File(path) = self.app_token_source.clone() else { return false };
        let reading = tokio::task::spawn_blocking(move || Secret::from_file(&path)).await;
        match reading {
            Ok(Ok(token)) => self.feed.set_app_token(token),
            Ok(Err(error)) => {
                warn!(event = "secret.unreadable", account = self.name, error = %error, "the app token cannot be read again");
                false
            }
            Err(_) => false,
        }
    }

    fn tell_degraded(&self, class: Class) {
        let what_to_do = match (class, &self.app_token_source) {
            (Class::Unauthorized, SecretSource::File(path)) => {
                format!(
                    "check key, token and permissions; another token in {} is taken by itself",
                    path.display()
                )
            }
            (
                Class::Unauthorized,
                SecretSource::Literal | SecretSource::Credential(_) | SecretSource::Env(_),
            ) => "check key, token and permissions; restart to take the new token".to_owned(),
            (Class::Unconfigured, _) => {
                "VTEX has no feed configuration for this app key: POST one to /api/orders/feed/config"
                    .to_owned()
            }
            (Class::Throttled | Class::Transient | Class::Malformed | Class::Permanent, _) => return,
        };
        error!(
            event = "account.degraded",
            account = self.name,
            class = class.name(),
            what_to_do,
            "feed is polled slowly"
        );
    }
}
