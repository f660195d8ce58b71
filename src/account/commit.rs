//! Committing what is journaled, while its lease lasts.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Account;
use super::attempt::Attempts;
use super::gate::Permit;
use crate::journal::{Journal, Journaled};
use crate::observe::metrics::{Cause, GivenUp};
use crate::policy::classify::{Class, Operation, classify, is_commit_refusal};
use crate::policy::retry::Decision;
use crate::policy::split::{Outcome, Split};
use crate::vtex::feed::{ABANDON_AFTER, COMMIT_MAX, Feed};

/// Journaled events whose leases run out together.
pub(super) struct InHand {
    pub(super) events: Vec<Journaled>,
    pub(super) leases_end: Instant,
}

/// What commits count.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) n_requests: AtomicU64,
    pub(super) n_committed: AtomicU64,
}

/// Why events were not committed; they come back, and the journal knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotCommitted {
    /// The leases ended while the gate was closed, or the shutdown did not wait longer.
    OutOfTime,
    /// A write failed since, so the journal is not believed before it has proved itself.
    JournalBlocked,
    GivenUp(Class),
}

/// How one commit request ended.
enum Sent {
    Committed,
    /// VTEX minds what it holds.
    Refused(u16),
    NotCommitted(NotCommitted),
}

impl<F: Feed, J: Journal> Account<'_, F, J> {
    /// Commits all of it, [`COMMIT_MAX`] handles at a time. A refused handle costs only itself.
    pub(super) async fn commit(
        &self,
        in_hand: InHand,
        counts: &Counts,
        shutdown: &CancellationToken,
    ) -> Result<(), NotCommitted> {
        let InHand { events, leases_end } = in_hand;
        let mut seen = BTreeSet::new();
        let events: Vec<Journaled> =
            events.into_iter().filter(|event| seen.insert(event.handle().expose().to_owned())).collect();
        let time = Time { leases_end, shutdown };
        for events in events.chunks(COMMIT_MAX) {
            match self.send(events, true, &time, counts).await {
                Sent::Committed => {}
                Sent::Refused(status) => self.split(events, status, &time, counts).await?,
                Sent::NotCommitted(why) => {
                    self.tell_given_up(events.len(), None, why);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Finds the handles that VTEX minds and commits the others.
    async fn split(
        &self,
        events: &[Journaled],
        status: u16,
        time: &Time<'_>,
        counts: &Counts,
    ) -> Result<(), NotCommitted> {
        let mut split = Split::new(events.len());
        if split.next().is_some() {
            self.tell_rejected(events.len(), Some(status), "split");
        }
        while let Some(range) = split.next() {
            match self.send(&events[range], false, time, counts).await {
                Sent::Committed => split.tell(Outcome::Committed),
                Sent::Refused(_) => split.tell(Outcome::Refused),
                Sent::NotCommitted(why) => {
                    self.tell_given_up(undecided(events.len(), &split), Some(status), why);
                    return Err(why);
                }
            }
        }
        let n_dropped = split.refused().iter().map(Range::len).sum();
        if 0 < n_dropped {
            self.tell_rejected(n_dropped, Some(status), "dropped");
            let class = classify(Operation::Commit, status).unwrap_or(Class::Permanent);
            self.gate.metrics().gave_up(Operation::Commit, GivenUp::Failed(class));
        }
        Ok(())
    }

    /// Sends one commit until it is answered for good. `is_whole` is false for the parts of a split one: they count
    /// once for the breaker, and have been retried as a whole.
    async fn send(&self, events: &[Journaled], is_whole: bool, time: &Time<'_>, counts: &Counts) -> Sent {
        let mut attempts = Attempts::new(Operation::Commit, is_whole, &counts.n_requests);
        loop {
            let passing = self.gate.pass(Operation::Commit, &self.memory.polling);
            let Some(permit): Option<Permit> = time.allows(passing).await else {
                return Sent::NotCommitted(NotCommitted::OutOfTime);
            };
            // Looked at behind the gate, where the wait may have been long.
            if self.journal.is_blocked() {
                return Sent::NotCommitted(NotCommitted::JournalBlocked);
            }
            self.memory.polling.due_within(self.request_timeout);
            let answer = self.feed.commit(events).await;
            let (decision, error) = match self.settle(&mut attempts, permit, answer).await {
                Ok(()) => {
                    counts.n_committed.fetch_add(events.len() as u64, Ordering::Relaxed);
                    info!(
                        event = "commit.completed",
                        account = self.name,
                        handles = events.len(),
                        "events committed"
                    );
                    return Sent::Committed;
                }
                Err(failure) => failure,
            };
            let may_pass = error.class() == Class::Transient && is_whole && attempts.n_failed() < 2;
            match (error.status(), decision) {
                (Some(status), _) if is_commit_refusal(status) && !may_pass => return Sent::Refused(status),
                // Waited out at the gate, where it keeps its turn before receives.
                (_, Decision::AwaitGate) => {}
                (_, Decision::RetryAfter(_)) if error.hints().wait.is_some() => {}
                (_, Decision::RetryAfter(delay)) => {
                    self.memory.polling.due_within(delay);
                    let _waiting = self.gate.metrics().waiting_for(Cause::Backoff);
                    if time.allows(sleep(delay)).await.is_none() {
                        return Sent::NotCommitted(NotCommitted::OutOfTime);
                    }
                }
                (_, Decision::GiveUp(_)) => {
                    return Sent::NotCommitted(NotCommitted::GivenUp(error.class()));
                }
            }
        }
    }

    fn tell_given_up(&self, handles: usize, status: Option<u16>, why: NotCommitted) {
        let given_up = match why {
            NotCommitted::OutOfTime => GivenUp::OutOfTime,
            NotCommitted::JournalBlocked => GivenUp::JournalBlocked,
            NotCommitted::GivenUp(class) => GivenUp::Failed(class),
        };
        self.gate.metrics().gave_up(Operation::Commit, given_up);
        self.tell_rejected(handles, status, "given_up");
    }

    fn tell_rejected(&self, handles: usize, status: Option<u16>, outcome: &str) {
        warn!(
            event = "commit.rejected",
            account = self.name,
            status,
            handles,
            outcome,
            "events were not committed; what is not committed comes back"
        );
    }
}

/// How long a commit may wait: while its leases run, and for a short while after the shutdown.
struct Time<'a> {
    leases_end: Instant,
    shutdown: &'a CancellationToken,
}

impl Time<'_> {
    async fn allows<T>(&self, waiting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // The lease first: what need not be waited for is still too late behind it.
            biased;
            () = sleep_until(self.leases_end) => None,
            done = waiting => Some(done),
            () = async {
                self.shutdown.cancelled().await;
                sleep(ABANDON_AFTER).await;
            } => None,
        }
    }
}

fn undecided(n_events: usize, split: &Split) -> usize {
    let decided: usize = split.committed().iter().chain(split.refused()).map(Range::len).sum();
    n_events - decided
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_need_not_be_waited_for_is_too_late_once_the_lease_has_ended() {
        let shutdown = CancellationToken::new();
        let time =
            Time { leases_end: Instant::now() + std::time::Duration::from_secs(30), shutdown: &shutdown };
        assert_eq!(time.allows(ready(1)).await, Some(1));
        sleep(std::time::Duration::from_secs(30)).await;
        assert_eq!(time.allows(ready(2)).await, None);
    }
}
