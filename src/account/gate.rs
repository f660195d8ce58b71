//! The one door of a VTEX account: every request passes it (invariant 2).
//!
//! It paces, holds pauses and the breaker, limits how many requests run at a time, and says whose turn it is. It
//! decides nothing of that itself: see [`crate::policy`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::config;
use crate::observe::liveness::Heartbeat;
use crate::observe::metrics::{Cause, Metrics};
use crate::policy::breaker::{self, Breaker, Verdict};
use crate::policy::classify::Operation;
use crate::policy::pace::Pace;
use crate::policy::pause::{self, Pauses};
use crate::policy::priority::{self, Waiter};

pub use permit::{Attempt, Permit};

mod permit;

mod restore;

/// What a gate goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Above 0.
    pub per_second: f64,
    pub burst: u32,
    /// Requests at a time.
    pub concurrency: u32,
    pub rate_limit: pause::Settings,
    pub circuit_breaker: breaker::Settings,
}

/// See the module's description. Shared by all feeds of the account.
pub struct Gate {
    vtex_account: String,
    metrics: Metrics,
    state: Mutex<State>,
    /// Told whenever somebody who waits may have a better chance.
    changed: Notify,
}

struct State {
    settings: Settings,
    pace: Pace,
    pauses: Pauses,
    breaker: Breaker,
    rng: StdRng,
    n_running: u32,
    /// In the order of arrival.
    waiting: Vec<Waiter>,
    n_arrived: u64,
    n_slots: u64,
}

impl Settings {
    /// The settings of an account that feeds with these settings share: the most careful ones.
    pub fn shared<'a>(
        requests: impl IntoIterator<Item = &'a config::Requests>,
        rate_limit: pause::Settings,
        circuit_breaker: breaker::Settings,
    ) -> Option<Self> {
        requests
            .into_iter()
            .map(|requests| (requests.per_second, requests.burst, requests.concurrency))
            .reduce(|a, b| (a.0.min(b.0), a.1.min(b.1), a.2.min(b.2)))
            .map(|(per_second, burst, concurrency)| Self {
                per_second,
                burst,
                concurrency,
                rate_limit,
                circuit_breaker,
            })
    }
}

impl Gate {
    /// A gate whose jitter follows from `seed`.
    pub fn new(vtex_account: String, settings: Settings, seed: u64) -> Self {
        let state = State {
            pace: Pace::new(settings.per_second, settings.burst),
            pauses: Pauses::new(settings.rate_limit),
            breaker: Breaker::new(settings.circuit_breaker),
            settings,
            rng: StdRng::seed_from_u64(seed),
            n_running: 0,
            waiting: Vec::new(),
            n_arrived: 0,
            n_slots: 0,
        };
        let metrics = Metrics::default();
        Self { vtex_account, metrics, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Counts into these from now on, and into numbers of its own without.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Where whoever passes counts, too.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn vtex_account(&self) -> &str {
        &self.vtex_account
    }

    /// Puts other settings in force; a pause goes on, and the breaker stays as open as it is.
    pub fn set(&self, settings: Settings) {
        let mut state = self.lock();
        state.pace.set(settings.per_second, settings.burst);
        state.pauses.set(settings.rate_limit);
        state.breaker.set(settings.circuit_breaker);
        state.settings = settings;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Goes on with what is left of a pause that was stored.
    pub fn restore_pause(&self, left: Duration) {
        self.lock().pauses.restore(Instant::now().into_std(), left);
    }

    /// How long nothing may be sent; `None` when the account is not paused.
    pub fn pause_left(&self) -> Option<Duration> {
        self.lock().pauses.wait(Instant::now().into_std())
    }

    /// Notes that a poll of the account is over; one without a 429 ends the growth of pauses.
    pub fn poll_ended(&self) {
        self.lock().pauses.poll_ended();
    }

    /// Waits until a request may leave, and takes its place; the heart beats as long as the wait is a known one.
    /// Cancel safe: no place is taken before it returns.
    pub async fn pass(self: &Arc<Self>, operation: Operation, heartbeat: &Heartbeat) -> Permit {
        let turn = Turn { gate: self, arrival: self.lock().arrive(operation) };
        let mut waiting = self.metrics.waiting();
        loop {
            // Registered before the look, so that no change after it is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = Instant::now();
            let tried = self.lock().try_pass(turn.arrival, now);
            match tried {
                Ok(breaker) => {
                    self.tell_trial(&breaker);
                    return Permit { gate: Arc::clone(self), breaker: Some(breaker), sent_at: now };
                }
                Err(Blocked { cause, wait }) => {
                    waiting.because(cause);
                    // Without a time of its own it waits for somebody's end, who has a heart of his own.
                    heartbeat.due_within(wait.unwrap_or(config::LONGEST_TIMEOUT));
                    match wait {
                        Some(wait) => tokio::select! {
                            () = sleep(wait) => {}
                            () = changed => {}
                        },
                        None => changed.await,
                    }
                }
            }
        }
    }

    fn tell_trial(&self, permit: &breaker::Permit) {
        if permit.half_opened() {
            info!(event = "circuit.half_open", account = self.vtex_account, "one request is tried");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn arrive(&mut self, operation: Operation) -> u64 {
        self.n_arrived += 1;
        self.waiting.push(Waiter { operation, arrival: self.n_arrived });
        self.n_arrived
    }

    /// # Errors
    /// What to wait for before asking again.
    fn try_pass(&mut self, arrival: u64, now: Instant) -> Result<breaker::Permit, Blocked> {
        let now = now.into_std();
        if let Some(wait) = self.pauses.wait(now) {
            return Err(Blocked { cause: Cause::Pause, wait: Some(wait) });
        }
        let next = priority::next(self.n_slots + 1, &self.waiting);
        let is_next =
            next.and_then(|next| self.waiting.get(next)).is_some_and(|next| next.arrival == arrival);
        if self.settings.concurrency <= self.n_running {
            return Err(Blocked { cause: Cause::Lanes, wait: None });
        }
        if !is_next {
            return Err(Blocked { cause: Cause::Turn, wait: None });
        }
        let blocked = |cause| move |wait| Blocked { cause, wait: Some(wait) };
        let permit = self.breaker.try_acquire(now).map_err(blocked(Cause::Breaker))?;
        if let Err(wait) = self.pace.try_acquire(now) {
            self.breaker.settle(permit, now, Verdict::Neutral);
            return Err(blocked(Cause::Pace)(wait));
        }
        self.n_slots += 1;
        self.n_running += 1;
        Ok(permit)
    }
}

/// Why a request may not leave yet.
struct Blocked {
    cause: Cause,
    /// `None` to wait for a change.
    wait: Option<Duration>,
}

/// A place among those who wait, given up when dropped.
struct Turn<'a> {
    gate: &'a Gate,
    arrival: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.lock().waiting.retain(|waiter| waiter.arrival != self.arrival);
        self.gate.changed.notify_waiters();
    }
}

#[cfg(test)]
pub(super) mod tests;
