//! What an account may do, told from its requests and their answers alone.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::http::Hints;
use crate::policy::classify::{Class, Operation};

pub(super) const LEAST_PAUSE: Duration = Duration::from_secs(60);
pub(super) const LONGEST_GROWN_PAUSE: Duration = Duration::from_secs(15 * 60);
/// From the failure that opens the breaker to the trial.
pub(super) const RECOVERY: Duration = Duration::from_secs(30);

/// Between two polls of a feed that is refused or unconfigured.
const SLOW: Duration = Duration::from_secs(5 * 60);
/// The lease until the configuration is known.
const LEAST_LEASE: Duration = Duration::from_secs(30);
/// A commit that may leave leaves within this time, however slow the pace.
const COMMIT_SOON: Duration = Duration::from_secs(12);
/// Between two receives of a feed, whatever happens: a lease and the longest pause on top.
const LONGEST_SILENCE: Duration = Duration::from_secs(3 * 3_600);
/// More requests than any sequence makes unless something spins.
const REQUESTS_MAX: usize = 50_000;

/// What was asked of the account.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) interval: Duration,
    pub(super) per_second: f64,
    pub(super) burst: u32,
    pub(super) visibility: Duration,
}

/// The answer to one request.
pub(super) struct Answer {
    pub(super) feed: usize,
    pub(super) operation: Operation,
    pub(super) sent_at: Instant,
    pub(super) failure: Option<Class>,
    pub(super) hints: Hints,
    /// Of what was received, or was to be committed.
    pub(super) handles: Vec<String>,
}

/// Sees every request and every answer of an account, in order.
pub(super) struct Judge {
    rules: Rules,
    wrong: Option<String>,
    n_requests: usize,
    /// When the last requests left, as many as the burst.
    left_at: VecDeque<Instant>,
    throttled_at: Option<Instant>,
    closed_until: Instant,
    /// No pause in force ends later.
    closed_at_most_until: Instant,
    /// The last failure that counts for the breaker.
    failed_at: Option<Instant>,
    slowed: Vec<Slowed>,
    feeds: HashMap<usize, Feed>,
}

struct Slowed {
    spacing: Duration,
    until: Instant,
}

struct Feed {
    last_receive: Instant,
    /// Set by the answer that ended a poll.
    next_poll: Option<NextPoll>,
    knows_visibility: bool,
    /// Received handles that no commit has decided about, with the ends of their leases.
    undecided: HashMap<String, Instant>,
}

/// The next poll starts no earlier than `wait` after `poll_end`.
struct NextPoll {
    poll_end: Instant,
    wait: Duration,
}

impl Judge {
    pub(super) fn new(rules: Rules, now: Instant) -> Self {
        Self {
            rules,
            wrong: None,
            n_requests: 0,
            left_at: VecDeque::new(),
            throttled_at: None,
            closed_until: now,
            closed_at_most_until: now,
            failed_at: None,
            slowed: Vec::new(),
            feeds: HashMap::new(),
        }
    }

    pub(super) fn sent(&mut self, feed: usize, operation: Operation, now: Instant) {
        self.n_requests += 1;
        assert!(self.n_requests < REQUESTS_MAX, "{} requests", self.n_requests);
        self.expect(self.closed_until <= now, "a request within a pause", now);
        self.expect(self.keeps_the_pace(now), "a request faster than the pace", now);
        self.left_at.push_back(now);
        if self.rules.burst < self.left_at.len() as u32 {
            self.left_at.pop_front();
        }
        self.look_at_leases(now);
        if operation == Operation::Receive {
            let known = self.feed(feed, now);
            let silence = now - std::mem::replace(&mut known.last_receive, now);
            let next_poll = known.next_poll.take();
            self.expect(silence <= LONGEST_SILENCE, "a feed was forgotten", now);
            let is_early = next_poll.is_some_and(|next| now < next.poll_end + next.wait);
            self.expect(!is_early, "a poll too soon after the last", now);
        }
    }

    pub(super) fn answered(&mut self, answer: Answer, now: Instant) {
        self.note_pause(&answer, now);
        if let Some(hint) = answer.hints.slow_down {
            self.slowed.push(Slowed { spacing: hint.level.spacing(), until: now + hint.length });
        }
        if matches!(answer.failure, Some(Class::Transient | Class::Malformed)) {
            self.failed_at = Some(now);
        }
        let Rules { interval, visibility, .. } = self.rules;
        let feed = self.feed(answer.feed, now);
        match (answer.operation, answer.failure) {
            (Operation::Receive, None) if answer.handles.is_empty() => {
                feed.next_poll = Some(NextPoll { poll_end: now, wait: interval });
            }
            (Operation::Receive, None) => {
                let lease = if feed.knows_visibility { visibility } else { LEAST_LEASE };
                let lease_end = answer.sent_at + lease;
                feed.undecided.extend(answer.handles.into_iter().map(|handle| (handle, lease_end)));
            }
            (Operation::Receive, Some(Class::Unauthorized | Class::Unconfigured)) => {
                feed.next_poll = Some(NextPoll { poll_end: now, wait: interval.max(SLOW) });
            }
            (Operation::Receive, Some(Class::Throttled | Class::Permanent)) => {
                feed.next_poll = Some(NextPoll { poll_end: now, wait: interval });
            }
            (Operation::Commit, failure) => {
                if let Some(next_poll) = &mut feed.next_poll {
                    next_poll.poll_end = now;
                }
                // A 429 decides nothing: the commit waits and is sent again.
                if failure != Some(Class::Throttled) {
                    feed.undecided.retain(|handle, _| !answer.handles.contains(handle));
                }
            }
            (Operation::Config, None) => feed.knows_visibility = true,
            (Operation::Receive, Some(Class::Transient | Class::Malformed)) => {}
            (Operation::Config, Some(_)) | (Operation::Order | Operation::NotifyPrice, _) => {}
        }
    }

    /// Says whether all was well, until `now`.
    pub(super) fn close(&mut self, now: Instant) -> Result<(), String> {
        self.look_at_leases(now);
        let is_forgotten = self.feeds.values().any(|feed| LONGEST_SILENCE < now - feed.last_receive);
        self.expect(!is_forgotten, "a feed was forgotten", now);
        self.wrong.take().map_or(Ok(()), Err)
    }

    fn note_pause(&mut self, answer: &Answer, now: Instant) {
        let Some(class) = answer.failure else { return };
        let hint = answer.hints.wait.map(|hint| hint.wait);
        let is_old = self.throttled_at.is_some_and(|at| answer.sent_at <= at);
        let (least, most) = match (class, hint) {
            (Class::Throttled, hint) => {
                let hint = hint.unwrap_or_default();
                (LEAST_PAUSE.max(hint), LONGEST_GROWN_PAUSE.max(hint) + Duration::from_secs(60))
            }
            (_, Some(hint)) => (hint, hint),
            (_, None) => return,
        };
        if is_old {
            return;
        }
        self.closed_until = self.closed_until.max(now + least);
        self.closed_at_most_until = self.closed_at_most_until.max(now + most);
        if class == Class::Throttled {
            self.throttled_at = Some(now);
        }
    }

    /// The request before as many as the burst is a whole spacing ago, and the last one as long as asked for.
    fn keeps_the_pace(&self, now: Instant) -> bool {
        let spacing = Duration::from_secs_f64(1.0 / self.rules.per_second);
        let is_full = self.left_at.len() as u32 == self.rules.burst;
        let burst_ago = self.left_at.front().filter(|_| is_full);
        burst_ago.is_none_or(|at| spacing <= now - *at)
            && self.left_at.back().is_none_or(|last| {
                self.slowed.iter().all(|slowed| slowed.until <= now || slowed.spacing <= now - *last)
            })
    }

    /// What was received is committed while its lease runs, unless the account was closed towards its end.
    fn look_at_leases(&mut self, now: Instant) {
        let (closed, failed_at) = (self.closed_at_most_until, self.failed_at);
        let had_a_chance = |lease_end: Instant| {
            let last_chance = lease_end - COMMIT_SOON;
            closed < last_chance && failed_at.is_none_or(|at| at + RECOVERY < last_chance)
        };
        let mut is_missed = false;
        for feed in self.feeds.values_mut() {
            feed.undecided.retain(|_, lease_end| {
                let is_over = *lease_end < now;
                is_missed |= is_over && had_a_chance(*lease_end);
                !is_over
            });
        }
        self.expect(!is_missed, "a lease ran out although its event could be committed", now);
    }

    fn feed(&mut self, feed: usize, now: Instant) -> &mut Feed {
        self.feeds.entry(feed).or_insert_with(|| Feed {
            last_receive: now,
            next_poll: None,
            knows_visibility: false,
            undecided: HashMap::new(),
        })
    }

    /// The first wrong is told.
    fn expect(&mut self, is_right: bool, otherwise: &str, now: Instant) {
        if !is_right && self.wrong.is_none() {
            let n = self.n_requests;
            let closed_for = self.closed_until.saturating_duration_since(now);
            self.wrong =
                Some(format!("{otherwise} (request {n}, {:?}, closed for {closed_for:?})", self.rules));
        }
    }
}
