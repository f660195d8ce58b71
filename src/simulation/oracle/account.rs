//! The gate of an account: pauses, pace, lanes, the breaker.

use std::time::Duration;

use jiff::Timestamp;

use super::Heard;
use crate::policy::breaker::Verdict;
use crate::policy::classify::{Class, Operation, verdict};
use crate::policy::pause;
use crate::simulation::coverage::Met;
use crate::simulation::plan::Plan;

/// The journal keeps milliseconds.
const STORED_TO: Duration = Duration::from_millis(2);

pub(in crate::simulation) struct AccountBook {
    settings: crate::account::gate::Settings,
    /// Nothing may be sent before.
    closed_until: Duration,
    throttled_at: Option<Duration>,
    stored: Option<Stored>,
    /// The journal did not take a pause; nothing can be asked of the next agent.
    store_failed: bool,
    /// Pauses that the journal is storing; until it has answered, what a restart would find is not known.
    n_storing: u32,
    last_sent: Option<Duration>,
    n_running: u32,
    n_failed: u32,
    broken_until: Duration,
}

/// The pause that a new agent can know of.
pub(in crate::simulation) struct Stored {
    ends_at: Timestamp,
    length: Duration,
    until: Duration,
}

impl AccountBook {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            settings: plan.gate.clone(),
            closed_until: Duration::ZERO,
            throttled_at: None,
            stored: None,
            store_failed: false,
            n_storing: 0,
            last_sent: None,
            n_running: 0,
            n_failed: 0,
            broken_until: Duration::ZERO,
        }
    }

    pub(super) fn sent(&mut self, now: Duration) -> Result<(), String> {
        let spacing = Duration::from_secs_f64(1.0 / self.settings.per_second);
        self.n_running += 1;
        if now < self.closed_until {
            return Err(format!("a request {:?} before the end of a pause", self.closed_until - now));
        }
        if self.settings.concurrency < self.n_running {
            return Err(format!("{} requests at a time", self.n_running));
        }
        if self.settings.burst == 1 && self.last_sent.is_some_and(|last| now < last + spacing) {
            return Err(format!("two requests closer than {spacing:?}"));
        }
        if now < self.broken_until {
            return Err(format!("a request {:?} before the breaker's trial", self.broken_until - now));
        }
        self.last_sent = Some(now);
        Ok(())
    }

    pub(super) fn heard(
        &mut self,
        now: Duration,
        operation: Operation,
        sent_at: Duration,
        heard: &Heard,
    ) -> Option<Met> {
        self.judge_health(now, operation, heard);
        let predates = self.throttled_at.is_some_and(|at| sent_at <= at);
        let class = heard.class?;
        let met = match (class, heard.hint) {
            (Class::Throttled, _) if predates => Met::ThrottledTwice,
            (Class::Throttled, None) => Met::Throttled,
            (Class::Throttled, Some(hint)) if Duration::from_secs(86_400) <= hint => Met::HintOfDays,
            (Class::Throttled, Some(_)) => Met::ThrottledWithHint,
            (_, Some(_)) => Met::OtherHint,
            (Class::Unauthorized, None) => Met::Unauthorized,
            (Class::Unconfigured, None) => Met::Unconfigured,
            (Class::Permanent, None) => Met::RefusedPermanent,
            (Class::Transient, None) => {
                heard.status?;
                Met::RefusedTransient
            }
            (Class::Malformed, None) => return None,
        };
        if !predates {
            let length = match class {
                Class::Throttled => {
                    self.throttled_at = Some(now);
                    self.settings.rate_limit.pause.max(heard.hint.unwrap_or_default())
                }
                Class::Transient
                | Class::Malformed
                | Class::Unauthorized
                | Class::Unconfigured
                | Class::Permanent => heard.hint.unwrap_or_default(),
            };
            self.closed_until = self.closed_until.max(now + length);
        }
        Some(met)
    }

    /// Only where requests do not overlap is it known from outside which failure opened the breaker. A failed commit
    /// may have been a part of a split one, which does not count.
    fn judge_health(&mut self, now: Duration, operation: Operation, heard: &Heard) {
        if self.settings.concurrency != 1 || heard.is_abandoned {
            return;
        }
        match verdict(heard.class) {
            Verdict::Success => self.n_failed = 0,
            Verdict::Failure if operation != Operation::Commit => {
                self.n_failed += 1;
                if self.settings.circuit_breaker.failures <= self.n_failed {
                    self.broken_until = now + self.settings.circuit_breaker.recovery;
                }
            }
            Verdict::Failure | Verdict::Neutral => {}
        }
    }

    pub(super) fn request_ended(&mut self) {
        self.n_running -= 1;
    }

    /// Since the newest request that is under way left.
    pub(super) fn busy_for(&self, now: Duration) -> Option<Duration> {
        self.last_sent.filter(|_| 0 < self.n_running).map(|last| now.saturating_sub(last))
    }

    pub(in crate::simulation) fn is_closed(&self, now: Duration) -> bool {
        now < self.closed_until.max(self.broken_until)
    }

    /// How long nothing may be sent.
    pub(in crate::simulation) fn closed_for(&self, now: Duration) -> Duration {
        self.closed_until.saturating_sub(now)
    }

    /// The agent asks for a pause to be stored: all that is in force must be.
    pub(in crate::simulation) fn pause_being_stored(&mut self, now: Duration, wall: Timestamp) -> Stored {
        self.n_storing += 1;
        let length = self.closed_for(now);
        Stored { ends_at: pause::ends_at(wall, length), length, until: self.closed_until }
    }

    /// The journal has answered; what it did not take may be stored or not, so nothing is known then.
    pub(in crate::simulation) fn pause_answered(&mut self, pause: Stored, is_stored: bool) {
        self.n_storing -= 1;
        self.store_failed |= !is_stored;
        self.stored = is_stored.then_some(pause);
    }

    /// What is in force was not stored.
    pub(in crate::simulation) fn is_forgetful(&self, now: Duration) -> bool {
        now < self.closed_until
            && !self.store_failed
            && self.stored.as_ref().is_none_or(|stored| stored.until < self.closed_until)
    }

    /// A new agent is about to read what is stored. Returns how long it must wait.
    pub(in crate::simulation) fn started(&mut self, now: Duration, wall: Timestamp) -> Duration {
        self.stored.take_if(|_| 0 < self.n_storing);
        let left = self.stored.as_ref().map(|stored| pause::remaining(wall, stored.ends_at, stored.length));
        let left = left.unwrap_or_default().saturating_sub(STORED_TO);
        let settings = self.settings.clone();
        let stored = self.stored.take();
        *self = Self {
            settings,
            closed_until: now + left,
            throttled_at: None,
            stored,
            store_failed: false,
            n_storing: 0,
            last_sent: None,
            n_running: 0,
            n_failed: 0,
            broken_until: Duration::ZERO,
        };
        if let Some(stored) = &mut self.stored {
            stored.until = self.closed_until;
        }
        left
    }
}
