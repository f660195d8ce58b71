//! The one door of a VTEX account: every request passes it (invariant 2).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::observe::liveness::Heartbeat;
use crate::policy::pace::Pace;

/// How long an account is silent after a 429, as VTEX asks ("wait about a minute").
pub const PAUSE: Duration = Duration::from_secs(60);

/// Paces the requests of an account and holds its pause.
pub struct Gate {
    state: Mutex<State>,
}

struct State {
    pace: Pace,
    paused_until: Option<Instant>,
}

impl Default for Gate {
    /// A gate of one request a second, until its pace is set.
    fn default() -> Self {
        Self { state: Mutex::new(State { pace: Pace::new(1.0, 1), paused_until: None }) }
    }
}

impl Gate {
    /// Puts another pace in force; a pause goes on.
    pub fn set_pace(&self, per_second: f64, burst: u32) {
        self.lock().pace = Pace::new(per_second, burst);
    }

    /// Waits until a request may leave, and takes its place; the heart beats as long as the wait is a known one.
    /// Cancel safe: no place is taken before it returns.
    pub async fn pass(&self, heartbeat: &Heartbeat) {
        while let Err(until) = self.try_pass(Instant::now()) {
            heartbeat.due_within(until.saturating_duration_since(Instant::now()));
            sleep_until(until).await;
        }
    }

    /// Lets nothing pass for `length` from `now`; an earlier pause that lasts longer is kept.
    pub fn pause(&self, now: Instant, length: Duration) {
        let mut state = self.lock();
        state.paused_until = state.paused_until.max(Some(now + length));
    }

    /// # Errors
    /// When to ask again.
    fn try_pass(&self, now: Instant) -> Result<(), Instant> {
        let mut state = self.lock();
        if let Some(until) = state.paused_until.filter(|until| now < *until) {
            return Err(until);
        }
        state.pace.try_acquire(now.into_std()).map_err(|wait| now + wait)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::liveness::Liveness;

    #[tokio::test(start_paused = true)]
    async fn requests_are_spaced() {
        let (gate, heartbeat, start) =
            (Gate::default(), Liveness::default().register("test"), Instant::now());
        gate.set_pace(10.0, 1);
        for _ in 0..11 {
            gate.pass(&heartbeat).await;
        }
        assert!(Duration::from_secs(1) <= start.elapsed() && start.elapsed() < Duration::from_millis(1050));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_passes_within_a_pause_whatever_becomes_of_the_pace() {
        let (gate, heartbeat, start) =
            (Gate::default(), Liveness::default().register("test"), Instant::now());
        gate.pause(start, PAUSE);
        gate.pause(start, Duration::from_secs(1));
        gate.set_pace(10.0, 1);
        gate.pass(&heartbeat).await;
        assert_eq!(start.elapsed(), PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_out_a_pause_is_not_overdue() {
        let (gate, liveness) = (Gate::default(), Liveness::default());
        let heartbeat = liveness.register("test");
        gate.pause(Instant::now(), Duration::from_secs(7200));
        tokio::select! {
            () = gate.pass(&heartbeat) => {}
            () = tokio::time::sleep(Duration::from_secs(7000)) => {}
        }
        assert_eq!(liveness.overdue(Instant::now()), []);
    }
}
