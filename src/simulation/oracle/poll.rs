//! The receives of a feed: when the next may be sent, and how many items it may ask for.

use std::time::Duration;

use super::Heard;
use crate::config;
use crate::policy::classify::{Class, is_retryable};
use crate::policy::retry::Retry;
use crate::simulation::plan::Plan;

/// Polls of a feed that only a person can heal.
const SLOW: Duration = Duration::from_secs(300);

/// Between two questions for a feed's configuration.
const CONFIG_EVERY: Duration = Duration::from_secs(300);

/// After a batch that could not be stored.
const PROBES_WITHIN: Duration = Duration::from_secs(10);

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
    /// When a batch could not be stored, and nothing was probed since.
    append_failed_at: Option<Duration>,
    probe_failed_at: Option<Duration>,
    config_sent_at: Option<Duration>,
    /// The last commit's handles.
    committing: Vec<String>,
    /// The same handles may be sent again no earlier.
    commit_again_at: Duration,
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
            append_failed_at: None,
            probe_failed_at: None,
            config_sent_at: None,
            committing: Vec::new(),
            commit_again_at: Duration::ZERO,
        }
    }

    pub(super) fn receive_sent(&mut self, now: Duration, max: u8) -> Result<(), String> {
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

    /// Asked for once in a while, whatever the answer was.
    pub(super) fn config_sent(&mut self, now: Duration) -> Result<(), String> {
        match self.config_sent_at.replace(now).filter(|last| now < *last + CONFIG_EVERY) {
            Some(last) => Err(format!("asks for its configuration again after {:?}", now - last)),
            None => Ok(()),
        }
    }

    /// A part of a refused commit is another one, and may be sent at once.
    pub(super) fn commit_sent(&mut self, now: Duration, handles: &[&str]) -> Result<(), String> {
        if self.committing == handles && now < self.commit_again_at {
            return Err(format!("commits again {:?} too early", self.commit_again_at - now));
        }
        self.committing = handles.iter().map(|handle| (*handle).to_owned()).collect();
        Ok(())
    }

    pub(super) fn commit_heard(&mut self, now: Duration, heard: &Heard) {
        if heard.class.is_some() {
            self.commit_again_at = now + self.retry.backoff.delay(1, 0.0);
        }
    }

    pub(in crate::simulation) fn append_failed(&mut self, now: Duration) {
        self.append_failed_at = Some(now);
    }

    /// A journal that nobody probes stays blocked.
    pub(in crate::simulation) fn has_not_probed(&self, now: Duration) -> bool {
        self.append_failed_at.is_some_and(|at| at + PROBES_WITHIN < now)
    }

    /// Every loop that can fail waits before it goes round.
    pub(in crate::simulation) fn probe_begun(&mut self, now: Duration) -> Result<(), String> {
        self.append_failed_at = None;
        match self.probe_failed_at.filter(|at| now < *at + SHORTEST_WAIT) {
            Some(_) => Err("probes the journal again at once".to_owned()),
            None => Ok(()),
        }
    }

    pub(in crate::simulation) fn probe_ended(&mut self, now: Duration, went_well: bool) {
        self.probe_failed_at = (!went_well).then_some(now);
    }

    /// What the last agent did binds the new one only through what is stored.
    pub(super) fn started(&mut self) {
        self.not_before = None;
        self.last_heard = None;
        (self.n_failed, self.n_malformed) = (0, 0);
        self.append_failed_at = None;
        self.probe_failed_at = None;
        self.config_sent_at = None;
        self.committing.clear();
    }
}
