//! What the delivery to one sink says in the log.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::journal::{JournalError, Tries};
use crate::observe::logging::ErrorChain;
use crate::observe::thinning::Thinning;
use crate::policy::breaker::Transition;
use crate::sink::{Envelope, Refusal, RefusalCause};

use super::plan::{Consequence, Next};

/// Remembers what it said, so that the same failure again and again does not fill the log.
pub(super) struct Teller {
    sink: String,
    /// By the status of the answer; `None` where there was none.
    failures: Thinning<Option<u16>>,
    /// Said once, however many trials fail.
    is_circuit_open: bool,
    /// Dead letters that the journal does not have yet: no more than were in hand at once.
    unrecorded: Vec<DeadLetter>,
}

struct DeadLetter {
    envelope: Envelope,
    refusal: Refusal,
    tries: Tries,
}

impl Teller {
    pub(super) fn new(sink: &str) -> Self {
        Self {
            sink: sink.to_owned(),
            failures: Thinning::default(),
            is_circuit_open: false,
            unrecorded: Vec::new(),
        }
    }

    /// Every event that failed is delivered by now, or a dead letter.
    pub(super) fn recovered(&mut self, now: Instant) {
        if let Some(ended) = self.failures.end(|_| true, now) {
            info!(
                event = "delivery.recovered",
                sink = self.sink,
                failures = ended.times,
                lasted_ms = ended.lasted.as_millis() as u64,
                "no event waits for another attempt any more"
            );
        }
    }

    /// Tells of a retry; of a dead letter once it is [recorded](Self::recorded).
    pub(super) fn refused(
        &mut self,
        envelope: Envelope,
        refusal: Refusal,
        consequence: Consequence,
        now: Instant,
    ) {
        let times = self.failures.note(status(&refusal), now);
        let (sink, answer) = (self.sink.as_str(), refusal.answer.as_deref());
        let (id, order) = (envelope.id.as_str(), envelope.order_id.as_str());
        let Tries { attempts, failures, last: _ } = consequence.tries;
        match consequence.next {
            Next::DeadLetter => {
                self.unrecorded.push(DeadLetter { envelope, refusal, tries: consequence.tries });
            }
            Next::Retry(wait) => {
                let Some(times) = times else { return };
                warn!(
                    event = "delivery.failed", sink, id, order, status = status(&refusal), attempts, failures, answer, times,
                    wait_ms = wait.as_millis() as u64, retry_after_s = refusal.retry_after.map(|wait| wait.as_secs()),
                    outcome = "retry", error = %ErrorChain(&refusal.cause), "event was not delivered and is tried again"
                );
            }
        }
    }

    /// The journal has all that was told here: who reads of a dead letter finds it.
    pub(super) fn recorded(&mut self) {
        for DeadLetter { envelope, refusal, tries } in self.unrecorded.drain(..) {
            error!(
                event = "delivery.dead_lettered", sink = self.sink, id = envelope.id, order = envelope.order_id,
                status = status(&refusal), attempts = tries.attempts, failures = tries.failures,
                answer = refusal.answer, error = %ErrorChain(&refusal.cause),
                "event is set aside: see `order-feed-agent dead-letters list`"
            );
        }
    }

    pub(super) fn breaker(&mut self, transition: Option<Transition>) {
        match transition {
            Some(Transition::Opened) if self.is_circuit_open => {}
            Some(Transition::Opened) => {
                self.is_circuit_open = true;
                warn!(
                    event = "circuit.opened",
                    sink = self.sink,
                    "several orders failed in a row: the sink gets one event now and then until it works again"
                );
            }
            Some(Transition::Closed) => {
                self.is_circuit_open = false;
                info!(event = "circuit.closed", sink = self.sink, "the sink works again");
            }
            None => {}
        }
    }

    pub(super) fn journal_blocked(&self, error: &JournalError, failures: u32, wait: Duration) {
        warn!(
            event = "journal.blocked", sink = self.sink, failures, wait_ms = wait.as_millis() as u64,
            error = %ErrorChain(error), "deliveries wait for the journal"
        );
    }

    pub(super) fn journal_recovered(&self, failures: u32) {
        info!(event = "journal.recovered", sink = self.sink, failures, "deliveries go on");
    }

    pub(super) fn unproven(&self, error: &JournalError) {
        warn!(
            event = "journal.blocked", sink = self.sink, error = %ErrorChain(error),
            "the journal cannot be used"
        );
    }

    pub(super) fn left(&self, n_events: usize) {
        warn!(
            event = "delivery.unanswered",
            sink = self.sink,
            events = n_events,
            "the receiver was not waited for any longer: these events are delivered again"
        );
    }

    pub(super) fn unrecorded(&self, error: &JournalError) {
        warn!(
            event = "journal.blocked", sink = self.sink, error = %ErrorChain(error),
            "the last deliveries are not recorded: they are made again at the next start"
        );
    }
}

/// Of the answer; `None` where there was none.
fn status(refusal: &Refusal) -> Option<u16> {
    match refusal.cause {
        RefusalCause::Status(status) => Some(status),
        RefusalCause::NoAnswer(_) | RefusalCause::Program(_) => None,
    }
}
