//! A program and what it started, as long as that stays together.

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::Child;
use tokio::time::sleep;

/// A process group whose leader was not waited for yet: until then no other process can get its number. Dropping it
/// kills the group.
pub(super) struct Group {
    leader: Pid,
}

/// Where no signal tells that a child has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Group {
    /// `child` was started as the leader of a new group; it must be waited for only after this is dropped.
    pub(super) fn led_by(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        #[expect(clippy::expect_used, reason = "it has just been started and nobody has waited for it")]
        let leader = id.expect("a child has a process id");
        Self { leader }
    }

    /// Sends a signal to all of the group.
    pub(super) fn signal(&self, signal: Signal) {
        // It fails only where nobody is left, or where nobody may be signalled any more.
        kill_process_group(self.leader, signal).ok();
    }

    /// Whether the leader has ended; it stays to be waited for.
    pub(super) fn leader_has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error: there is no such child any more.
        !matches!(waitid(WaitId::Pid(self.leader), options), Ok(None))
    }

    /// Waits until the leader has ended. `children` tells when any child has; it was made before this one was started.
    pub(super) async fn leader_ended(&self, mut children: tokio::signal::unix::Signal) {
        while !self.leader_has_ended() {
            if children.recv().await.is_none() {
                sleep(LOOK_AGAIN).await;
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
