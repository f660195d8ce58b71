//! What must never happen, judged from outside: from the requests and their answers, from what the journal and the
//! sinks were told, and from nothing that the agent says about itself.

use std::time::Duration;

use super::coverage::Met;
use super::plan::Plan;
use super::vtex::Call;
use crate::policy::classify::{Class, Operation};
use crate::vtex::feed::{COMMIT_MAX, FeedError, Reply};

use account::AccountBook;
use deliveries::ReceiverBook;
pub(super) use events::{Events, Kind};
use poll::PollBook;
pub(super) use poll::SHORTEST_WAIT;

mod account;
mod breaker;
pub(super) mod deliveries;
mod events;
mod poll;

/// What the agent heard.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) status: Option<u16>,
    /// `None` for a success.
    pub(super) class: Option<Class>,
    pub(super) hint: Option<Duration>,
    pub(super) is_abandoned: bool,
    /// Of a receive.
    pub(super) events: Vec<u32>,
}

impl Heard {
    pub(super) fn of<T>(result: &Result<Reply<T>, FeedError>, events: Vec<u32>) -> Self {
        match result {
            Ok(_) => Self { status: Some(200), class: None, hint: None, is_abandoned: false, events },
            Err(error) => Self {
                status: error.status(),
                class: Some(error.class()),
                hint: error.hints().wait.map(|hint| hint.wait),
                is_abandoned: matches!(error, FeedError::Attempt(crate::vtex::http::AttemptError::Abandoned)),
                events: Vec::new(),
            },
        }
    }
}

pub(super) struct Oracle {
    pub(super) accounts: Vec<AccountBook>,
    pub(super) polls: Vec<PollBook>,
    pub(super) receivers: Vec<ReceiverBook>,
    pub(super) events: Events,
    account_of: Vec<usize>,
    /// When the agent was asked to stop.
    stop_asked: Option<Duration>,
    /// A write failed, and no probe has succeeded since.
    pub(super) journal_is_suspect: bool,
}

impl Oracle {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            accounts: (0..plan.n_accounts).map(|_| AccountBook::new(plan)).collect(),
            polls: plan.feeds.iter().map(|feed| PollBook::new(&feed.poll, plan)).collect(),
            receivers: plan.receivers.iter().map(ReceiverBook::new).collect(),
            events: Events::new(plan),
            account_of: plan.feeds.iter().map(|feed| feed.account).collect(),
            stop_asked: None,
            journal_is_suspect: false,
        }
    }

    pub(super) fn account_of(&self, feed: usize) -> usize {
        self.account_of[feed]
    }

    /// A request leaves; `events` are those of a commit's handles.
    ///
    /// # Errors
    /// Which invariant it breaks.
    pub(super) fn sent(
        &mut self,
        now: Duration,
        feed: usize,
        call: &Call<'_>,
        events: &[u32],
    ) -> Result<(), String> {
        self.accounts[self.account_of[feed]].sent(now)?;
        if self.journal_is_suspect && matches!(call.operation, Operation::Receive | Operation::Commit) {
            let does = if call.operation == Operation::Receive { "receives" } else { "commits" };
            return Err(format!("feed {feed} {does} although the journal failed and was not probed"));
        }
        match call.operation {
            Operation::Receive => {
                if self.stop_asked.is_some_and(|asked| asked < now) {
                    return Err(format!("feed {feed} receives after the shutdown began"));
                }
                self.polls[feed].receive_sent(now, call.max).map_err(|text| format!("feed {feed} {text}"))
            }
            Operation::Commit => self.commit_sent(now, feed, call, events),
            Operation::Config => {
                self.polls[feed].config_sent(now).map_err(|text| format!("feed {feed} {text}"))
            }
            Operation::Order | Operation::NotifyPrice => Ok(()),
        }
    }

    fn commit_sent(
        &mut self,
        now: Duration,
        feed: usize,
        call: &Call<'_>,
        events: &[u32],
    ) -> Result<(), String> {
        let n_handles = call.handles.len();
        let mut distinct = call.handles.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if n_handles == 0
            || COMMIT_MAX < n_handles
            || distinct.len() != n_handles
            || events.len() != n_handles
        {
            return Err(format!(
                "feed {feed} commits {n_handles} handles, {} of them distinct",
                distinct.len()
            ));
        }
        self.polls[feed].commit_sent(now, &call.handles).map_err(|text| format!("feed {feed} {text}"))?;
        self.events.commit_sent(now, events)
    }

    /// An answer is heard. Returns what that was, where it is worth counting.
    pub(super) fn heard(
        &mut self,
        now: Duration,
        feed: usize,
        operation: Operation,
        sent_at: Duration,
        heard: &Heard,
    ) -> Option<Met> {
        let met = self.accounts[self.account_of[feed]].heard(now, operation, sent_at, heard);
        match operation {
            Operation::Receive => {
                self.polls[feed].receive_heard(now, heard);
                self.events.handed(&heard.events);
            }
            Operation::Commit => self.polls[feed].commit_heard(now, heard),
            Operation::Config | Operation::Order | Operation::NotifyPrice => {}
        }
        met
    }

    /// A request has ended, whether or not its answer was heard.
    pub(super) fn request_ended(&mut self, feed: usize) {
        self.accounts[self.account_of[feed]].request_ended();
    }

    /// For how long a request has been under way; `None` when none is.
    pub(super) fn busy_for(&self, now: Duration) -> Option<Duration> {
        self.accounts.iter().filter_map(|account| account.busy_for(now)).max()
    }

    /// The feed that should have probed the journal, if one should.
    pub(super) fn has_not_probed(&self, now: Duration) -> Option<usize> {
        self.polls.iter().position(|poll| poll.has_not_probed(now))
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop_asked.is_some()
    }

    pub(super) fn stop_asked(&mut self, now: Duration) {
        self.stop_asked = Some(now);
    }

    /// A new agent begins and knows nothing but what is stored.
    pub(super) fn started(&mut self) {
        self.stop_asked = None;
        self.journal_is_suspect = false;
        self.events.started();
        self.polls.iter_mut().for_each(PollBook::started);
    }
}
