//! What the service manager is told (`sd_notify(3)`). Without `NOTIFY_SOCKET` each of these does nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

use super::logging::{ErrorChain, prefix};

/// Bytes of a status text.
const MAX_STATUS: usize = 512;

/// The agent works: configuration, journal and sinks are open. Also ends a reload.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The agent has begun to stop.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// The configuration is being read anew; [`ready`] ends it, whether the new one was taken or refused.
pub fn reloading() {
    // systemd 253 and later want to know when; older ones ignore it.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// The line that `systemctl status` shows.
pub fn status(text: &str) {
    notify(&[NotifyState::Status(&one_line(text))]);
}

/// The agent is alive; to be repeated at least every [`watchdog_timeout`].
pub fn watchdog() {
    notify(&[NotifyState::Watchdog]);
}

/// How long the service manager waits for a sign of life before it kills the agent; `None` when it does not watch.
pub fn watchdog_timeout() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Says once that the service manager cannot be reached, until it can be again.
fn notify(states: &[NotifyState<'_>]) {
    static UNREACHABLE: AtomicBool = AtomicBool::new(false);
    let result = sd_notify::notify(states);
    let was_unreachable = UNREACHABLE.swap(result.is_err(), Ordering::Relaxed);
    if let Err(error) = result
        && !was_unreachable
    {
        warn!(event = "systemd.unreachable", error = %ErrorChain(&error), "systemd cannot be notified");
    }
}

/// A newline would begin another assignment of the protocol.
fn one_line(text: &str) -> String {
    prefix(text, MAX_STATUS).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_cannot_smuggle_in_another_assignment() {
        assert_eq!(one_line("polling\nSTOPPING=1\0"), "polling STOPPING=1 ");
        assert_eq!(one_line(&"é".repeat(600)).len(), MAX_STATUS);
    }
}
