//! The receives of a feed: when the next may be sent, and how many items it may ask for.

use std::time::Duration;

use super::Heard;
use crate::config;
use crate::policy::classify::{Class, is_retryable};
use crate::policy::retry::Retry;
use crate::simulation::plan::Plan;

/// Polls of a feed that only a person can heal.
const SLOW: Duration = Duration::from_secs(300);

/// Between a failure and the next attempt of the same loop at the least.
pub(in crate::simulation) const SHORTEST_WAIT: Duration = Duration::from_millis(500);

pub(in crate::simulation) struct PollBook {
    poll: config::Poll,
    retry: Retry,
    /// The next receive is sent no earlier, and why.
    not_before: Option<(Duration, &'static str)>,
    last_heard: Option<Duration>,
    /// Failures in a row that were retried.
    n_failed: u32,
    n_malformed: u32,
    /// A batch could not be stored, and no probe has succeeded since.
    pub(in crate::simulation) is_blocked: bool,
    probe_failed_at: Option<Duration>,
}

impl PollBook {
    pub(super) fn new(poll: &config::Poll, plan: &Plan) -> Self {
        Self {
            poll: poll.clone(),
            retry: plan.retry,
            not_before: None,
            last_heard: None,
            n_failed: 0,
            n_malformed: 0,
            is_blocked: false,
            probe_failed_at: None,
        }
    }

    pub(super) fn receive_sent(&mut self, now: Duration, max: u8) -> Result<(), String> {
        if self.is_blocked {
            return Err("receives although the journal failed and was not probed".to_owned());
        }
        if let Some((at, why)) = self.not_before.filter(|(at, _)| now < *at) {
            return Err(format!("receives {:?} too early {why}", at - now));
        }
        let most = if self.n_malformed < 3 { self.poll.batch_size } else { 1 };
        if max != most {
            return Err(format!("asks for {max} items, not {most}"));
        }
        if self.last_heard.is_some_and(|last| last + self.poll.interval <= now) {
            // Another poll, or just as good as one.
            self.n_failed = 0;
        }
        Ok(())
    }

    pub(super) fn receive_heard(&mut self, now: Duration, heard: &Heard) {
        self.last_heard = Some(now);
        let interval = self.poll.interval;
        self.not_before = match heard.class {
            None => {
                (self.n_failed, self.n_malformed) = (0, 0);
                let is_over = heard.events.is_empty() || !self.poll.drain;
                is_over.then_some((now + interval, "after the end of a poll"))
            }
            Some(Class::Unauthorized | Class::Unconfigured) => {
                Some((now + interval.max(SLOW), "after a refusal that only a person can heal"))
            }
            Some(Class::Throttled | Class::Permanent) => Some((now + interval, "after a refusal")),
            Some(Class::Transient) if !is_retryable(heard.status) => {
                Some((now + interval, "after a failure"))
            }
            Some(class @ (Class::Transient | Class::Malformed)) => {
                self.n_malformed += u32::from(class == Class::Malformed);
                self.n_failed += 1;
                if self.retry.max_retries < self.n_failed {
                    self.n_failed = 0;
                    Some((now + interval, "after the last retry"))
                } else {
                    // A Retry-After is the gate's, and the account's book.
                    Some((now + self.retry.backoff.delay(1, 0.0), "after a failure"))
                }
            }
        };
    }

    /// Every loop that can fail waits before it goes round.
    pub(in crate::simulation) fn probe_begun(&mut self, now: Duration) -> Result<(), String> {
        match self.probe_failed_at.filter(|at| now < *at + SHORTEST_WAIT) {
            Some(_) => Err("probes the journal again at once".to_owned()),
            None => Ok(()),
        }
    }

    pub(in crate::simulation) fn probe_ended(&mut self, now: Duration, went_well: bool) {
        self.probe_failed_at = (!went_well).then_some(now);
        self.is_blocked &= !went_well;
    }

    /// What the last agent did binds the new one only through what is stored.
    pub(super) fn started(&mut self) {
        self.not_before = None;
        self.last_heard = None;
        (self.n_failed, self.n_malformed) = (0, 0);
        self.is_blocked = false;
        self.probe_failed_at = None;
    }
}
