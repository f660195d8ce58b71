//! A pause that was stored before a restart.

use std::time::Duration;

use tracing::warn;

use super::Gate;
use crate::journal::{Journal, JournalError};
use crate::policy::pause;
use crate::wall::Wall;

impl Gate {
    /// Goes on with what is left of the pause that was stored for the account, if one was. Called before the gate is
    /// used.
    ///
    /// # Errors
    /// It could not be read; nothing may be sent then.
    pub async fn restore<J: Journal>(&self, journal: &J, wall: &Wall) -> Result<(), JournalError> {
        let Some(stored) = journal.pause(self.vtex_account()).await? else { return Ok(()) };
        let left = pause::remaining(wall.now(), stored.ends_at, stored.length);
        self.restore_pause(left);
        if Duration::ZERO < left {
            warn!(
                event = "rate_limit.paused",
                account = self.vtex_account(),
                vtex_account = self.vtex_account(),
                wait_ms = left.as_millis() as u64,
                reason = "stored",
                "a pause from before the start goes on"
            );
        }
        Ok(())
    }
}
