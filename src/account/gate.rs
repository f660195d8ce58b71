//! The one door of a VTEX account: every request passes it (invariant 2).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::config;
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

impl Gate {
    pub fn new(requests: &config::Requests) -> Self {
        let pace = Pace::new(requests.per_second, requests.burst);
        Self { state: Mutex::new(State { pace, paused_until: None }) }
    }

    /// Waits until a request may leave, and takes its place. Cancel safe: no place is taken before it returns.
    pub async fn pass(&self) {
        while let Err(until) = self.try_pass(Instant::now()) {
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

    fn gate(per_second: f64) -> Gate {
        Gate::new(&config::Requests {
            per_second,
            burst: 1,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            max_body: 1024,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_spaced() {
        let (gate, start) = (gate(10.0), Instant::now());
        for _ in 0..11 {
            gate.pass().await;
        }
        assert!(Duration::from_secs(1) <= start.elapsed() && start.elapsed() < Duration::from_millis(1050));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_passes_within_a_pause() {
        let (gate, start) = (gate(10.0), Instant::now());
        gate.pause(start, PAUSE);
        gate.pause(start, Duration::from_secs(1));
        gate.pass().await;
        assert_eq!(start.elapsed(), PAUSE);
    }
}
