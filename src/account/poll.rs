//! One poll: receive until the feed answers an empty batch. A batch is committed while the next is received.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::commit::{Counts, InHand, NotCommitted};
use super::receive::{NotReceived, Received};
use super::{Account, JOURNAL_PATIENCE};
use crate::journal::{Appended, Batch, Journal};
use crate::observe::logging::ErrorChain;
use crate::policy::classify::Class;
use crate::vtex::feed::Feed;

/// A poll that lasts longer ends, so that the next one starts with fresh eyes.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// A long poll says so this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// How many keys a poll remembers before it ends; about 10 MB.
const KEYS_MAX: usize = 200_000;

/// What a poll did.
pub(super) struct Report {
    pub(super) started: Instant,
    pub(super) requests: u64,
    /// Items, duplicates and unusable ones included.
    pub(super) received: u64,
    pub(super) duplicates: u64,
    pub(super) journaled: u64,
    pub(super) committed: u64,
    /// Whether VTEX answered a receive as it should, be it with nothing.
    pub(super) has_received: bool,
    /// The failure that was given up, if one was.
    pub(super) failure: Option<Class>,
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
    /// A request failed and was given up.
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
    // The batch that the end came with, unless the journal itself is in doubt.
    let last = poll.in_hand.take().filter(|_| ended != Ended::JournalBlocked);
    let committed = poll.commit(last).await;
    poll.note_failure(committed);
    let Counts { n_requests, n_committed } = poll.counts;
    Report {
        requests: n_requests.into_inner() + poll.n_receives.into_inner(),
        committed: n_committed.into_inner(),
        ended,
        ..poll.report
    }
}

struct Poll<'a, F, J> {
    account: &'a Account<'a, F, J>,
    shutdown: &'a CancellationToken,
    /// Journaled, not committed yet.
    in_hand: Option<InHand>,
    seen: HashSet<[u8; 16]>,
    progress_at: Instant,
    n_receives: AtomicU64,
    counts: Counts,
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
            has_received: false,
            failure: None,
            ended: Ended::Drained,
        };
        Self {
            account,
            shutdown,
            in_hand: None,
            seen: HashSet::new(),
            progress_at: started + PROGRESS_EVERY,
            n_receives: AtomicU64::new(0),
            counts: Counts::default(),
            report,
        }
    }

    /// Receives and journals a batch, and meanwhile commits the one before.
    ///
    /// # Errors
    /// Why the poll ends.
    async fn step(&mut self) -> Result<(), Ended> {
        if self.account.journal.is_blocked() {
            return Err(Ended::JournalBlocked);
        }
        let in_hand = self.in_hand.take();
        let (received, committed) =
            tokio::join!(self.account.receive(&self.n_receives, self.shutdown), self.commit(in_hand));
        let committed = self.note_failure(committed);
        let received = self.note_received(received)?;
        if received.items.is_empty() {
            return Err(if committed { Ended::Drained } else { Ended::Failed });
        }
        let nothing_new = self.journal(received).await?;
        self.say_progress();
        if self.shutdown.is_cancelled() {
            Err(Ended::Shutdown)
        } else if !committed {
            Err(Ended::Failed)
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

    async fn commit(&self, in_hand: Option<InHand>) -> Result<(), NotCommitted> {
        match in_hand {
            Some(in_hand) => self.account.commit(in_hand, &self.counts, self.shutdown).await,
            None => Ok(()),
        }
    }

    /// Returns whether all was committed.
    fn note_failure(&mut self, committed: Result<(), NotCommitted>) -> bool {
        match committed {
            Ok(()) => true,
            Err(NotCommitted::OutOfTime | NotCommitted::JournalBlocked) => false,
            Err(NotCommitted::GivenUp(class)) => {
                self.report.failure = Some(class);
                false
            }
        }
    }

    fn note_received(&mut self, received: Result<Received, NotReceived>) -> Result<Received, Ended> {
        match received {
            Ok(received) => {
                self.report.has_received = true;
                self.report.received += received.items.len() as u64;
                Ok(received)
            }
            Err(NotReceived::Shutdown) => Err(Ended::Shutdown),
            Err(NotReceived::JournalBlocked) => Err(Ended::JournalBlocked),
            Err(NotReceived::GivenUp(class)) => {
                self.report.failure = Some(class);
                Err(Ended::Failed)
            }
        }
    }

    /// Returns whether the batch held nothing that this poll had not seen.
    async fn journal(&mut self, received: Received) -> Result<bool, Ended> {
        let leases_end = self.account.leases_end(received.sent_at);
        let appended = self.append(received, leases_end).await?;
        self.report.duplicates += appended.n_duplicates as u64;
        self.report.journaled += appended.n_new as u64;
        let n_known = self.seen.len();
        self.seen.extend(&appended.keys);
        if !appended.journaled.is_empty() {
            self.in_hand = Some(InHand { events: appended.journaled, leases_end });
        }
        Ok(self.seen.len() == n_known)
    }

    async fn append(&self, received: Received, leases_end: Instant) -> Result<Appended, Ended> {
        let account = self.account;
        let batch = Batch {
            account: account.name.clone(),
            source: account.source.clone(),
            items: received.items,
            received_at: account.wall.now(),
            lease: leases_end.saturating_duration_since(received.sent_at),
        };
        account.memory.polling.due_within(JOURNAL_PATIENCE);
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
        Ok(appended)
    }

    fn say_progress(&mut self) {
        if self.progress_at <= Instant::now() {
            self.progress_at += PROGRESS_EVERY;
            info!(
                event = "drain.progress",
                account = self.account.name,
                received = self.report.received,
                committed = self.counts.n_committed.load(Ordering::Relaxed),
                "still draining the feed"
            );
        }
    }
}
