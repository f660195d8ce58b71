//! Delivery to a sink that takes one event at a time: the events of an order one after another, different orders side
//! by side.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::{Limits, Wanted};
use crate::http::NoAnswer;
use crate::journal::{FailedAttempt, JournalError, Outbox, StoredPause};
use crate::observe::liveness::Heartbeat;
use crate::observe::logging::ErrorChain;
use crate::policy::backoff::Backoff;
use crate::policy::breaker;
use crate::policy::health::Fault;
use crate::policy::pause;
use crate::sink::{Envelope, EventSink, ProgramError, Refusal, RefusalCause};
use crate::wall::Wall;

use super::plan::{Failed, InHand, Plan};
use super::tell::Teller;
use super::{IDLE, envelope, resume};

/// Read from the journal at once.
const PAGE: usize = 500;

/// How long an answer that is still out is waited for when the work ends; its event is delivered again when it goes on.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the journal may take before the loop counts as hung.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(60);

/// Between two attempts at a journal that fails.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };

/// What the loop of such a sink works with.
pub struct EventWorker<'a, J, S> {
    pub name: &'a str,
    pub wanted: Wanted,
    pub limits: Limits,
    pub breaker: breaker::Settings,
    pub sink: Arc<S>,
    pub journal: Arc<J>,
    pub wall: Wall,
    pub heartbeat: &'a Heartbeat,
    /// Whether a wait counts that the receiver asked for before: not where other settings may lead to another receiver.
    pub keeps_wait: bool,
}

/// How an attempt ended.
enum Attempted {
    Delivered,
    Refused(Envelope, Refusal),
    /// Nothing was sent.
    Unread(JournalError),
}

/// The attempts that are out. Dropping it drops them.
type Attempts = JoinSet<(InHand, Attempted)>;

/// What the loop keeps between its rounds.
struct Work {
    plan: Plan,
    attempts: Attempts,
    appended: watch::Receiver<()>,
    altered: watch::Receiver<()>,
    teller: Teller,
    rng: StdRng,
    /// The receiver asked for a wait that is not recorded.
    has_new_wait: bool,
}

impl<J: Outbox + 'static, S: EventSink + 'static> EventWorker<'_, J, S> {
    /// Delivers until `shutdown`; deliveries in hand are finished, as far as their receivers answer soon.
    pub async fn run(self, seed: u64, shutdown: &CancellationToken) {
        let mut rng = StdRng::seed_from_u64(seed);
        let (appended, altered) = (self.journal.appended(), self.journal.altered());
        let mut teller = Teller::new(self.name);
        let Some(plan) = self.begin(&mut teller, &mut rng, shutdown).await else { return };
        let mut work =
            Work { plan, attempts: JoinSet::new(), appended, altered, teller, rng, has_new_wait: false };
        let mut n_failures = 0;
        while !shutdown.is_cancelled() {
            match self.go_on(&mut work, shutdown).await {
                Ok(()) if n_failures == 0 => {}
                Ok(()) => {
                    work.teller.journal_recovered(n_failures);
                    n_failures = 0;
                }
                Err(error) => {
                    n_failures += 1;
                    self.wait_for_journal(&mut work, &error, n_failures, shutdown).await;
                }
            }
        }
        self.finish(&mut work).await;
    }

    /// Reads where the sink goes on; `None` where the shutdown comes first.
    async fn begin(
        &self,
        teller: &mut Teller,
        rng: &mut StdRng,
        shutdown: &CancellationToken,
    ) -> Option<Plan> {
        let mut n_failures = 0;
        loop {
            self.heartbeat.due_within(JOURNAL_PATIENCE);
            match self.plan().await {
                Ok(plan) => return Some(plan),
                Err(error) => {
                    n_failures += 1;
                    let wait = BACKOFF.delay(n_failures, rng.random());
                    teller.journal_blocked(&error, n_failures, wait);
                    self.heartbeat.due_within(wait);
                    shutdown.run_until_cancelled(sleep(wait)).await?;
                    // Nothing is written before the journal has proved itself; what it answers shows at the next try.
                    self.journal.probe().await.ok();
                }
            }
        }
    }

    async fn plan(&self) -> Result<Plan, JournalError> {
        let progress = resume(self.name, &*self.journal).await?;
        let mut plan = Plan::new(progress.seq, self.wanted.clone(), self.limits.max_attempts, self.breaker);
        if self.keeps_wait
            && let Some(StoredPause { ends_at, length }) = self.journal.pause(&self.wait_key()).await?
        {
            let left = pause::remaining(self.wall.now(), ends_at, length);
            plan.keep_quiet(Instant::now().into_std(), left);
        }
        Ok(plan)
    }

    /// One round: takes what there is room for, records, sends what may go, and waits for something to happen.
    async fn go_on(&self, work: &mut Work, shutdown: &CancellationToken) -> Result<(), JournalError> {
        self.heartbeat.due_within(JOURNAL_PATIENCE);
        self.fill(work).await?;
        // Before anything else is sent: no more than what is in hand is ever delivered and not recorded.
        self.record(work).await?;
        // An answer that came meanwhile may ask for a wait, or show that the receiver is down.
        while self.settle_ended(work)? {
            self.record(work).await?;
        }
        if shutdown.is_cancelled() {
            return Ok(());
        }
        let again_at = self.send(work);
        self.heartbeat.due_within(IDLE.max(self.limits.timeout));
        let idle = Instant::now() + IDLE;
        let again_at = again_at.map_or(idle, |at| at.min(idle));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            Some(ended) = work.attempts.join_next() => self.settle(work, ended)?,
            _ = work.appended.changed() => {}
            _ = work.altered.changed() => work.plan.reload(),
            () = sleep_until(again_at) => {}
        }
        self.settle_ended(work)?;
        Ok(())
    }

    /// Takes from the journal what there is room for.
    async fn fill(&self, work: &mut Work) -> Result<(), JournalError> {
        while let Some(seq) = work.plan.to_load() {
            let open = self.journal.open_deliveries(self.name, seq, PAGE).await?;
            let is_last = open.len() < PAGE;
            work.plan.load(open, is_last);
        }
        // Seen before the journal is read, so that nothing appended meanwhile is slept over.
        work.appended.mark_unchanged();
        while let Some((seq, room)) = work.plan.to_take() {
            let n_asked = room.min(PAGE);
            let headings = self.journal.headings_after(seq, n_asked).await?;
            let is_last = headings.len() < n_asked;
            work.plan.take(headings);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    async fn record(&self, work: &mut Work) -> Result<(), JournalError> {
        if let Some(settlement) = work.plan.settlement() {
            self.journal.settle(self.name, settlement.clone()).await?;
            work.plan.recorded(&settlement);
            work.teller.recorded();
        }
        if work.has_new_wait {
            let length = work.plan.quiet_for(Instant::now().into_std());
            let ends_at = pause::ends_at(self.wall.now(), length);
            self.journal.store_pause(&self.wait_key(), StoredPause { ends_at, length }).await?;
            work.has_new_wait = false;
        }
        Ok(())
    }

    /// Beside the pauses of VTEX accounts, whose names hold no space.
    fn wait_key(&self) -> String {
        format!("sink {}", self.name)
    }

    /// Sends what may go; returns when there may be more, where it is known.
    fn send(&self, work: &mut Work) -> Option<Instant> {
        while work.attempts.len() < self.limits.concurrency as usize {
            let in_hand = match work.plan.next(Instant::now().into_std()) {
                Ok(in_hand) => in_hand,
                Err(again_at) => return again_at.map(Instant::from_std),
            };
            let (journal, sink) = (Arc::clone(&self.journal), Arc::clone(&self.sink));
            work.attempts.spawn(async move {
                let attempted = attempt(&*journal, &*sink, in_hand.seq()).await;
                (in_hand, attempted)
            });
        }
        None
    }

    /// Takes note of all attempts that have ended; returns whether there were any.
    fn settle_ended(&self, work: &mut Work) -> Result<bool, JournalError> {
        let mut is_any = false;
        while let Some(ended) = work.attempts.try_join_next() {
            self.settle(work, ended)?;
            is_any = true;
        }
        Ok(is_any)
    }

    /// Takes note of an attempt that has ended.
    ///
    /// # Errors
    /// It could not be made.
    fn settle(
        &self,
        work: &mut Work,
        ended: Result<(InHand, Attempted), JoinError>,
    ) -> Result<(), JournalError> {
        let (in_hand, attempted) = match ended {
            Ok(ended) => ended,
            // A bug: the agent must not go on as if the event were still in hand.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let now = Instant::now();
        match attempted {
            Attempted::Delivered => {
                let transition = work.plan.delivered(in_hand, now.into_std());
                work.teller.breaker(transition);
            }
            Attempted::Refused(envelope, refusal) => {
                let failed = self.failed(&refusal);
                work.has_new_wait |= refusal.retry_after.is_some();
                let jitter = work.rng.random();
                let consequence = work.plan.refused(in_hand, failed, now.into_std(), jitter);
                let transition = consequence.transition;
                work.teller.refused(envelope, refusal, consequence, now);
                work.teller.breaker(transition);
            }
            Attempted::Unread(error) => {
                work.plan.not_tried(in_hand, now.into_std());
                return Err(error);
            }
        }
        if work.plan.n_failing() == 0 {
            work.teller.recovered(now);
        }
        Ok(())
    }

    fn failed(&self, refusal: &Refusal) -> Failed {
        let is_throttled = matches!(refusal.cause, RefusalCause::Status(429));
        let fault = match &refusal.cause {
            RefusalCause::NoAnswer(NoAnswer::NotConnected(_))
            | RefusalCause::Status(429)
            | RefusalCause::Program(ProgramError::NotStarted(_)) => Fault::Sink,
            RefusalCause::NoAnswer(NoAnswer::Broken(_))
            | RefusalCause::Status(_)
            | RefusalCause::Program(
                ProgramError::Exit(_)
                | ProgramError::Signal(_)
                | ProgramError::TimedOut
                | ProgramError::Lost(_),
            ) => Fault::Unclear,
        };
        let attempt = FailedAttempt {
            at: self.wall.now(),
            reason: ErrorChain(&refusal.cause).to_string(),
            answer: refusal.answer.clone(),
        };
        Failed { attempt, fault, retry_after: refusal.retry_after, is_throttled }
    }

    /// Waits, and lets the journal prove itself. Attempts that are out go on meanwhile.
    async fn wait_for_journal(
        &self,
        work: &mut Work,
        error: &JournalError,
        n_failures: u32,
        shutdown: &CancellationToken,
    ) {
        let wait = BACKOFF.delay(n_failures, work.rng.random());
        work.teller.journal_blocked(error, n_failures, wait);
        self.heartbeat.due_within(wait);
        shutdown.run_until_cancelled(sleep(wait)).await;
        self.heartbeat.due_within(JOURNAL_PATIENCE);
        // What it answers shows at the next round.
        if let Err(error) = self.journal.probe().await {
            work.teller.unproven(&error);
        }
    }

    /// Waits for the answers that are out, and records them.
    async fn finish(&self, work: &mut Work) {
        self.heartbeat.due_within(PATIENCE + JOURNAL_PATIENCE);
        let answers = async {
            while let Some(ended) = work.attempts.join_next().await {
                if let Err(error) = self.settle(work, ended) {
                    work.teller.unproven(&error);
                }
            }
        };
        if timeout(PATIENCE, answers).await.is_err() {
            work.teller.left(work.attempts.len());
        }
        if let Err(error) = self.record(work).await {
            work.teller.unrecorded(&error);
        }
    }
}

async fn attempt<J: Outbox, S: EventSink>(journal: &J, sink: &S, seq: i64) -> Attempted {
    let envelope = match journal.entry(seq).await {
        Ok(Some(entry)) => envelope::envelope(&entry),
        // Somebody took it out of the journal by hand: there is nothing to deliver any more.
        Ok(None) => return Attempted::Delivered,
        Err(error) => return Attempted::Unread(error),
    };
    match sink.deliver(&envelope).await {
        Ok(()) => Attempted::Delivered,
        Err(refusal) => Attempted::Refused(envelope, refusal),
    }
}

#[cfg(test)]
mod tests;
