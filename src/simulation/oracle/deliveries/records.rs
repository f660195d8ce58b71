//! What is recorded of the deliveries, and what is left of that after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::{BreakerBook, ReceiverBook, Standing};
use crate::journal::{DeliveryState, Settlement};
use crate::simulation::coverage::Met;

/// How long a shutdown waits for answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the journal holds of a sink, read as another process would.
#[derive(Debug, Default)]
pub(in crate::simulation) struct Records {
    pub(in crate::simulation) progress: i64,
    pub(in crate::simulation) states: BTreeMap<i64, Standing>,
}

impl Records {
    pub(in crate::simulation) fn dead_letters(&self) -> Vec<i64> {
        let is_dead = |(_, standing): &(&i64, &Standing)| **standing == Standing::Dead;
        self.states.iter().filter(is_dead).map(|(seq, _)| *seq).collect()
    }
}

impl ReceiverBook {
    /// The agent asks for a record.
    pub(in crate::simulation) fn settling(&mut self, settlement: &Settlement) -> Result<(), String> {
        let Settlement { seq: progress, states } = settlement;
        for (seq, state) in states {
            self.in_doubt.insert(*seq);
            let wrong = |what: &str| Err(format!("{seq} is recorded as {:?} {what}", Standing::of(state)));
            let Some(delivery) = self.events.get(seq) else { return wrong("and not wanted") };
            match state {
                DeliveryState::Delivered if !delivery.is_heard => return wrong("and was not taken"),
                DeliveryState::Pending(_) | DeliveryState::Dead(_) if delivery.is_heard => {
                    return wrong("and was taken");
                }
                DeliveryState::Dead(_) if delivery.n_counting < self.limits.max_attempts => {
                    return wrong(&format!("after {} attempts that may count", delivery.n_counting));
                }
                DeliveryState::Pending(tries) | DeliveryState::Dead(tries)
                    if tries.failures < delivery.n_failed.max(delivery.n_recorded) =>
                {
                    return wrong(&format!("with {} failures, which are too few", tries.failures));
                }
                DeliveryState::Pending(_) if self.limits.max_attempts <= delivery.n_surely_counting => {
                    return wrong(&format!("after {} attempts that count", delivery.n_surely_counting));
                }
                DeliveryState::Delivered | DeliveryState::Pending(_) | DeliveryState::Dead(_) => {}
            }
            if delivery.standing.is_finished() && delivery.standing != Standing::of(state) {
                return wrong(&format!("after {:?}", delivery.standing));
            }
        }
        if *progress < self.progress || self.journaled_to < *progress {
            return Err(format!("the progress goes from {} to {progress}", self.progress));
        }
        let told: BTreeSet<i64> = states.iter().map(|(seq, _)| *seq).collect();
        let mut passed = self.events.range((Bound::Excluded(self.progress), Bound::Included(*progress)));
        match passed.find(|(seq, delivery)| delivery.standing == Standing::Open && !told.contains(seq)) {
            Some((seq, _)) => Err(format!("the progress passes {seq}, of which nothing is known")),
            None => Ok(()),
        }
    }

    /// The journal has what was asked for.
    pub(in crate::simulation) fn settled(&mut self, settlement: &Settlement) -> Vec<Met> {
        let mut met = Vec::new();
        self.progress = settlement.seq;
        for (seq, state) in &settlement.states {
            self.unrecorded.remove(seq);
            let Some(delivery) = self.events.get_mut(seq) else { continue };
            let standing = Standing::of(state);
            if standing == Standing::Delivered && settlement.seq < *seq {
                met.push(Met::RecordedOutOfTurn);
            }
            if standing == Standing::Dead && delivery.standing != Standing::Dead {
                met.push(if settlement.seq < *seq { Met::DeadOutOfTurn } else { Met::DeadLetter });
            }
            delivery.standing = standing;
            if let DeliveryState::Pending(tries) | DeliveryState::Dead(tries) = state {
                delivery.n_recorded = tries.failures;
            }
        }
        self.in_doubt.clear();
        self.record_failed = false;
        met
    }

    /// The journal did not do what this receiver's deliveries need.
    pub(in crate::simulation) fn journal_failed(&mut self, now: Duration, records: bool) {
        self.record_failed |= records;
        for unseen in self.events.values_mut().filter_map(|delivery| delivery.unseen.as_mut()) {
            unseen.told_at = unseen.told_at.map(|_| now);
        }
    }

    /// A new agent begins and knows nothing but the journal, which holds `found`.
    pub(in crate::simulation) fn started(&mut self, found: Option<&Records>) -> Result<(), String> {
        self.breaker = BreakerBook::new(self.breaker_settings);
        (self.quiet, self.last, self.before, self.n_heard) = (None, None, None, 0);
        (self.stop_asked, self.record_failed) = (None, false);
        self.in_hand.clear();
        self.unrecorded.clear();
        let in_doubt = std::mem::take(&mut self.in_doubt);
        for delivery in self.events.values_mut() {
            (delivery.is_heard, delivery.n_failed, delivery.unseen) = (false, 0, None);
            delivery.n_surely_counting = 0;
            (delivery.failed_at, delivery.failed_nth) = (None, None);
        }
        let Some(found) = found.filter(|_| self.begins_behind.is_some()) else { return Ok(()) };
        if found.progress < self.progress {
            return Err(format!("the progress went back from {} to {}", self.progress, found.progress));
        }
        self.progress = found.progress;
        for (seq, delivery) in &mut self.events {
            let by_progress = if *seq <= found.progress { Standing::Delivered } else { Standing::Open };
            let standing = found.states.get(seq).copied().unwrap_or(by_progress);
            if standing != delivery.standing && !in_doubt.contains(seq) {
                return Err(format!("{seq} was {:?} and is {standing:?}", delivery.standing));
            }
            delivery.standing = standing;
        }
        Ok(())
    }

    /// After a shutdown in good time: taken and heard of, and not recorded though the journal did not fail.
    pub(in crate::simulation) fn lost_at_shutdown(&self) -> Option<i64> {
        let patience_ends = self.stop_asked? + PATIENCE;
        let mut lost = self.unrecorded.iter().filter(|(_, heard_at)| **heard_at < patience_ends);
        lost.next().map(|(seq, _)| *seq).filter(|_| !self.record_failed)
    }

    /// What is neither finished nor passed by the progress, and how much that is.
    pub(in crate::simulation) fn left(&self) -> (usize, Option<i64>) {
        let mut open = self.events.iter().filter(|(_, delivery)| !delivery.standing.is_finished());
        let first = open.next().map(|(seq, _)| *seq);
        let n_open = open.count() + usize::from(first.is_some());
        let n_behind = usize::try_from(self.journaled_to - self.progress).unwrap_or_default();
        (n_open.max(n_behind), first)
    }

    /// When all is over: `found` is what the journal holds.
    pub(in crate::simulation) fn audit(
        &self,
        found: &Records,
        is_poison: impl Fn(i64) -> bool,
    ) -> Result<(), String> {
        if found.progress != self.journaled_to {
            return Err(format!("its progress is {}, not {}", found.progress, self.journaled_to));
        }
        for (seq, delivery) in &self.events {
            match found.states.get(seq).copied().unwrap_or(Standing::Delivered) {
                standing if standing != delivery.standing => {
                    return Err(format!("{seq} was {:?} and is {standing:?}", delivery.standing));
                }
                Standing::Open | Standing::Pending => return Err(format!("{seq} is still pending")),
                Standing::Delivered if delivery.n_taken == 0 && self.begins_behind < Some(*seq) => {
                    return Err(format!("never got {seq}"));
                }
                Standing::Dead if !is_poison(*seq) => {
                    return Err(format!("{seq} is a dead letter for nothing"));
                }
                Standing::Delivered | Standing::Dead | Standing::Discarded => {}
            }
        }
        match found.states.iter().find(|(_, standing)| **standing == Standing::Delivered) {
            Some((seq, _)) => Err(format!("what is known of {seq} was not tidied away")),
            None => Ok(()),
        }
    }
}
