//! The same journal as deliveries use it.

use std::sync::PoisonError;

use tokio::sync::watch;

use super::{SimulatedJournal, User};
use crate::journal::{DeliveryState, Entry, Heading, JournalError, Outbox, Progress, Resume, Settlement};
use crate::simulation::coverage::Met;
use crate::simulation::oracle::deliveries::ReceiverBook;
use crate::simulation::trace::Step;
use crate::simulation::world::State;

impl SimulatedJournal {
    /// Reads what is behind `seq`. A sink looks every minute all day long; that nothing came since the last look is
    /// known.
    async fn read_behind<T>(
        &self,
        seq: i64,
        read: impl Future<Output = Result<Vec<T>, JournalError>>,
    ) -> Result<Vec<T>, JournalError> {
        let asked = (seq, self.shared.n_changes());
        let is_end = *self.end.lock().unwrap_or_else(PoisonError::into_inner) == Some(asked);
        let found = if is_end {
            self.shared.read("read", std::future::ready(Ok(Vec::new()))).await?
        } else {
            self.shared.read("read", read).await?
        };
        if found.is_empty() {
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        }
        Ok(found)
    }

    /// Looks into the book of the receiver that uses it, if one does.
    fn with_book(&self, look: impl FnOnce(&mut ReceiverBook) -> Result<(), String>) {
        let User::Receiver(receiver) = self.user else { return };
        self.shared.world.with(|state, _| {
            let kept = look(&mut state.oracle.receivers[receiver]);
            state.expect(kept.map_err(|text| format!("receiver {receiver}: {text}")));
        });
    }

    /// A dead letter that the progress has not passed is rare: half of them are worth a crash.
    fn is_bad_moment(&self, settlement: &Settlement) -> bool {
        let mut dead = settlement.states.iter().filter(|(_, state)| matches!(state, DeliveryState::Dead(_)));
        let is_bad = dead.any(|(seq, _)| settlement.seq < *seq && seq % 2 == 0);
        is_bad && self.shared.world.with(|state, _| state.faulty)
    }

    fn note_failure(&self, records: bool) {
        let now = self.shared.world.now();
        self.with_book(|book| {
            book.journal_failed(now, records);
            Ok(())
        });
    }
}

impl Outbox for SimulatedJournal {
    async fn entries_after(
        &self,
        seq: i64,
        max_events: usize,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, JournalError> {
        self.read_behind(seq, self.shared.inner.entries_after(seq, max_events, max_bytes)).await
    }

    async fn headings_after(&self, seq: i64, max_events: usize) -> Result<Vec<Heading>, JournalError> {
        let read = self.read_behind(seq, self.shared.inner.headings_after(seq, max_events)).await;
        read.inspect_err(|_| self.note_failure(false))
    }

    async fn entry(&self, seq: i64) -> Result<Option<Entry>, JournalError> {
        let now = self.shared.world.now();
        self.with_book(|book| book.begun(now, seq).map_err(|text| format!("{seq} {text}")));
        let read = self.shared.read("read", self.shared.inner.entry(seq)).await;
        read.inspect_err(|_| {
            self.with_book(|book| {
                book.not_sent(seq);
                Ok(())
            });
        })
    }

    async fn open_deliveries(
        &self,
        sink: &str,
        seq: i64,
        max_events: usize,
    ) -> Result<Vec<(Heading, DeliveryState)>, JournalError> {
        let read = self.shared.read("read", self.shared.inner.open_deliveries(sink, seq, max_events)).await;
        let open = read.inspect_err(|_| self.note_failure(false))?;
        self.with_book(|book| {
            book.loaded(&open);
            Ok(())
        });
        Ok(open)
    }

    async fn settle(&self, sink: &str, settlement: Settlement) -> Result<(), JournalError> {
        self.with_book(|book| book.settling(&settlement));
        let settled = self.shared.write("settle", self.shared.inner.settle(sink, settlement.clone())).await;
        if settled.is_err() {
            self.note_failure(true);
            self.shared.world.with(|state, _| state.coverage.meet(Met::RecordFailed));
        } else if let User::Receiver(receiver) = self.user {
            self.shared.world.with(|state, now| {
                for met in state.oracle.receivers[receiver].settled(&settlement) {
                    state.coverage.meet(met);
                }
                state.trace.note(now, settled_step(receiver, &settlement));
            });
            if self.is_bad_moment(&settlement) {
                self.shared.crash().await;
            }
        }
        settled
    }

    async fn resume(&self, sink: &str) -> Result<Resume, JournalError> {
        let resumed = self.shared.write("resume", self.shared.inner.resume(sink)).await;
        let resume = resumed.inspect_err(|_| self.note_failure(false))?;
        let seq = resume.progress.seq;
        if let User::Sink(sink) = self.user {
            // A record that failed in the end may be there all the same.
            self.shared.world.with(|state, _| state.sinks[sink].seq = seq);
        }
        self.with_book(|book| book.resumed(seq));
        Ok(resume)
    }

    async fn record_progress(&self, sink: &str, progress: Progress) -> Result<(), JournalError> {
        let seq = progress.seq;
        self.shared.write("record_progress", self.shared.inner.record_progress(sink, progress)).await?;
        if let User::Sink(sink) = self.user {
            self.shared.world.with(|state, now| {
                state.sinks[sink].in_hand.clear();
                state.sinks[sink].seq = seq;
                state.trace.note(now, Step::Progress { sink, seq });
            });
        }
        Ok(())
    }

    fn appended(&self) -> watch::Receiver<()> {
        let (user, receiver) = watch::channel(());
        self.shared.appended.lock().unwrap_or_else(PoisonError::into_inner).users.push(user);
        receiver
    }

    fn altered(&self) -> watch::Receiver<()> {
        let (user, receiver) = watch::channel(());
        self.shared.altered.lock().unwrap_or_else(PoisonError::into_inner).users.push(user);
        receiver
    }
}

impl State {
    /// An event has its place in the journal.
    pub(super) fn note_journaled(&mut self, heading: &Heading) {
        self.noted_to = heading.seq;
        for receiver in &mut self.oracle.receivers {
            if let Some(met) = receiver.journaled(heading) {
                self.coverage.meet(met);
            }
        }
    }
}

fn settled_step(receiver: usize, settlement: &Settlement) -> Step {
    let (mut delivered, mut pending, mut dead) = (Vec::new(), Vec::new(), Vec::new());
    for (seq, state) in &settlement.states {
        match state {
            DeliveryState::Delivered => delivered.push(*seq),
            DeliveryState::Pending(_) => pending.push(*seq),
            DeliveryState::Dead(_) => dead.push(*seq),
        }
    }
    Step::Settled { receiver, progress: settlement.seq, delivered, pending, dead }
}
