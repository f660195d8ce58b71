//! One poll: receive until the feed answers an empty batch.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::gate::PAUSE;
use super::{Account, JOURNAL_PATIENCE};
use crate::event::Item;
use crate::journal::{Appended, Batch, Journal, Journaled};
use crate::observe::logging::ErrorChain;
use crate::policy::classify::{Class, Operation};
use crate::vtex::feed::{ABANDON_AFTER, COMMIT_MAX, Feed, FeedError};

/// A poll that lasts longer ends, so that the next one starts with fresh eyes.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// A long poll says so this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// How many keys a poll remembers before it ends; about 10 MB.
const KEYS_MAX: usize = 200_000;

/// How long VTEX hides an item unless its configuration says otherwise.
const LEASE: Duration = Duration::from_secs(30);

/// What a poll did.
pub(super) struct Report {
    pub(super) started: Instant,
    pub(super) requests: u64,
    /// Items, duplicates and unusable ones included.
    pub(super) received: u64,
    pub(super) duplicates: u64,
    pub(super) journaled: u64,
    pub(super) committed: u64,
    pub(super) ended: Ended,
}

/// Why a poll ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The feed answered an empty batch.
    Drained,
    /// `poll.drain` is off.
    OneBatch,
    /// A batch held nothing that this poll had not seen already: the feed gives again what it was told to forget.
    NothingNew,
    /// It lasted [`LONGEST`] or met [`KEYS_MAX`] events.
    TooLong,
    /// A request failed.
    Failed,
    JournalBlocked,
    Shutdown,
}

impl Ended {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::OneBatch => "one_batch",
            Self::NothingNew => "nothing_new",
            Self::TooLong => "too_long",
            Self::Failed => "failed",
            Self::JournalBlocked => "journal_blocked",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Receives, journals and commits batch after batch until there is a reason to end.
pub(super) async fn poll<F: Feed, J: Journal>(
    account: &Account<'_, F, J>,
    shutdown: &CancellationToken,
) -> Report {
    let mut poll = Poll::new(account, shutdown);
    let ended = loop {
        if let Err(ended) = poll.step().await {
            break ended;
        }
    };
    Report { ended, ..poll.report }
}

struct Poll<'a, F, J> {
    account: &'a Account<'a, F, J>,
    shutdown: &'a CancellationToken,
    seen: HashSet<[u8; 16]>,
    progress_at: Instant,
    report: Report,
}

impl<'a, F: Feed, J: Journal> Poll<'a, F, J> {
    fn new(account: &'a Account<'a, F, J>, shutdown: &'a CancellationToken) -> Self {
        let started = Instant::now();
        let report = Report {
            started,
            requests: 0,
            received: 0,
            duplicates: 0,
            journaled: 0,
            committed: 0,
            ended: Ended::Drained,
        };
        Self { account, shutdown, seen: HashSet::new(), progress_at: started + PROGRESS_EVERY, report }
    }

    /// Takes one batch from the feed to its commit.
    ///
    /// # Errors
    /// Why the poll ends.
    async fn step(&mut self) -> Result<(), Ended> {
        let items = self.receive().await?;
        if items.is_empty() {
            return Err(Ended::Drained);
        }
        let appended = self.append(items).await?;
        let n_known = self.seen.len();
        self.seen.extend(&appended.keys);
        let nothing_new = self.seen.len() == n_known;
        for handles in appended.journaled.chunks(COMMIT_MAX) {
            self.commit(handles).await?;
        }
        self.say_progress();
        if self.shutdown.is_cancelled() {
            Err(Ended::Shutdown)
        } else if nothing_new {
            Err(Ended::NothingNew)
        } else if !self.account.poll.drain {
            Err(Ended::OneBatch)
        } else if LONGEST <= self.report.started.elapsed() || KEYS_MAX <= self.seen.len() {
            Err(Ended::TooLong)
        } else {
            Ok(())
        }
    }

    async fn receive(&mut self) -> Result<Vec<Item>, Ended> {
        let account = self.account;
        self.shutdown
            .run_until_cancelled(account.gate.pass(account.heartbeat))
            .await
            .ok_or(Ended::Shutdown)?;
        self.report.requests += 1;
        let sent = Instant::now();
        account.heartbeat.due_within(account.request_timeout);
        let answer = account.feed.receive(account.poll.batch_size, self.shutdown).await;
        let items = answer.map_err(|error| self.failed(Operation::Receive, sent, &error))?;
        self.report.received += items.len() as u64;
        Ok(items)
    }

    async fn append(&mut self, items: Vec<Item>) -> Result<Appended, Ended> {
        let account = self.account;
        let batch = Batch {
            account: account.name.clone(),
            source: account.source.clone(),
            items,
            received_at: Timestamp::now(),
            lease: LEASE,
        };
        account.heartbeat.due_within(JOURNAL_PATIENCE);
        let appended = account.journal.append(batch).await.map_err(|error| {
            error!(
                event = "journal.blocked", account = account.name, error = %ErrorChain(&error),
                "a batch could not be stored; it is not committed and comes back"
            );
            Ended::JournalBlocked
        })?;
        for reason in &appended.quarantined {
            warn!(
                event = "event.quarantined",
                account = account.name,
                reason,
                "an item that no event can be made of was set aside"
            );
        }
        self.report.duplicates += appended.n_duplicates as u64;
        self.report.journaled += appended.n_new as u64;
        Ok(appended)
    }

    async fn commit(&mut self, events: &[Journaled]) -> Result<(), Ended> {
        let account = self.account;
        let abandoned = async {
            self.shutdown.cancelled().await;
            sleep(ABANDON_AFTER).await;
        };
        tokio::select! {
            biased;
            () = account.gate.pass(account.heartbeat) => {}
            // The gate is paused: what is not committed comes back, and the journal knows it.
            () = abandoned => return Err(Ended::Shutdown),
        }
        self.report.requests += 1;
        let sent = Instant::now();
        account.heartbeat.due_within(account.request_timeout);
        let answer = account.feed.commit(events).await;
        answer.map_err(|error| self.failed(Operation::Commit, sent, &error))?;
        self.report.committed += events.len() as u64;
        info!(event = "commit.completed", account = account.name, handles = events.len(), "events committed");
        Ok(())
    }

    /// A failure ends the poll; after a 429 the account is silent.
    fn failed(&self, operation: Operation, sent: Instant, error: &FeedError) -> Ended {
        let class = error.class();
        warn!(
            event = "request.failed", account = self.account.name, operation = operation.name(),
            status = error.status(), class = class.name(), attempt = 1,
            elapsed_ms = sent.elapsed().as_millis() as u64, outcome = "give_up", error = %ErrorChain(error),
            "request failed"
        );
        match class {
            Class::Throttled => {
                self.account.gate.pause(Instant::now(), PAUSE);
                let until = Timestamp::now() + PAUSE;
                self.account.status.account(&self.account.name, |facts| facts.paused_until = Some(until));
                warn!(
                    event = "rate_limit.paused",
                    account = self.account.name,
                    wait_ms = PAUSE.as_millis() as u64,
                    "no request to this account until the pause ends"
                );
            }
            Class::Transient
            | Class::Malformed
            | Class::Unauthorized
            | Class::Unconfigured
            | Class::Permanent => {}
        }
        if self.shutdown.is_cancelled() { Ended::Shutdown } else { Ended::Failed }
    }

    fn say_progress(&mut self) {
        if self.progress_at <= Instant::now() {
            self.progress_at += PROGRESS_EVERY;
            info!(
                event = "drain.progress",
                account = self.account.name,
                received = self.report.received,
                committed = self.report.committed,
                "still draining the feed"
            );
        }
    }
}
