//! How far a sink has come, with what the one number does not say: what is to be recorded in the journal.

use std::collections::{BTreeMap, BTreeSet};

use crate::journal::{DeliveryState, Settlement, Tries};

/// Kept beside the lanes. Every place up to [`Ledger::taken_to`] is finished, has a state, or is `untold`.
#[derive(Debug)]
pub(super) struct Ledger {
    taken_to: i64,
    /// Taken, not finished, and the journal has no state of it: the progress must not pass these.
    untold: BTreeSet<i64>,
    /// Recorded ahead of the progress before a restart: they are met again and not taken again.
    known: BTreeSet<i64>,
    unrecorded: BTreeMap<i64, DeliveryState>,
    recorded: i64,
}

impl Ledger {
    /// Goes on behind `seq`.
    pub(super) fn new(seq: i64) -> Self {
        Self {
            taken_to: seq,
            untold: BTreeSet::new(),
            known: BTreeSet::new(),
            unrecorded: BTreeMap::new(),
            recorded: seq,
        }
    }

    pub(super) fn taken_to(&self) -> i64 {
        self.taken_to
    }

    /// How many events are taken and not tried.
    pub(super) fn n_untold(&self) -> usize {
        self.untold.len()
    }

    /// Notes a place that has a state in the journal.
    pub(super) fn knows(&mut self, seq: i64) {
        if self.taken_to < seq {
            self.known.insert(seq);
        }
    }

    /// Passes the next place; returns whether its event is to be delivered now: it is wanted and not known.
    pub(super) fn take(&mut self, seq: i64, is_wanted: bool) -> bool {
        self.taken_to = seq;
        let is_new = !self.known.remove(&seq) && is_wanted;
        if is_new {
            self.untold.insert(seq);
        }
        is_new
    }

    pub(super) fn is(&mut self, seq: i64, state: DeliveryState) {
        self.untold.remove(&seq);
        self.unrecorded.insert(seq, state);
    }

    /// Whether the journal does not have the last of a place.
    pub(super) fn is_unrecorded(&self, seq: i64) -> bool {
        self.unrecorded.contains_key(&seq)
    }

    /// Notes events that wait behind one that failed: the progress need not wait with them.
    pub(super) fn wait(&mut self, places: impl IntoIterator<Item = i64>) {
        for seq in places {
            if self.untold.contains(&seq) {
                self.is(seq, DeliveryState::Pending(Tries::default()));
            }
        }
    }

    /// What is to be recorded; `None` where nothing has changed.
    pub(super) fn settlement(&self) -> Option<Settlement> {
        let seq = self.untold.first().map_or(self.taken_to, |first| first - 1);
        let has_changed = !self.unrecorded.is_empty() || self.recorded < seq;
        has_changed.then(|| Settlement {
            seq,
            states: self.unrecorded.iter().map(|(seq, state)| (*seq, state.clone())).collect(),
        })
    }

    /// The last settlement is in the journal.
    pub(super) fn recorded(&mut self, settlement: &Settlement) {
        self.recorded = settlement.seq;
        self.unrecorded.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeliveryState::{Delivered, Pending};

    fn ledger(n_events: i64) -> Ledger {
        let mut ledger = Ledger::new(0);
        for seq in 1..=n_events {
            assert!(ledger.take(seq, true));
        }
        ledger
    }

    fn settle(ledger: &mut Ledger) -> Option<(i64, Vec<i64>)> {
        let settlement = ledger.settlement()?;
        ledger.recorded(&settlement);
        Some((settlement.seq, settlement.states.into_iter().map(|(seq, _)| seq).collect()))
    }

    #[test]
    fn the_progress_passes_only_what_is_finished_or_recorded_as_waiting() {
        let mut ledger = ledger(5);
        assert_eq!(settle(&mut ledger), None);
        ledger.is(2, Delivered);
        assert_eq!(settle(&mut ledger), Some((0, vec![2])));
        ledger.is(1, Delivered);
        assert_eq!(settle(&mut ledger), Some((2, vec![1])));
        ledger.is(3, Pending(Tries::default()));
        ledger.wait([5]);
        assert_eq!(settle(&mut ledger), Some((3, vec![3, 5])));
        ledger.is(4, Delivered);
        assert_eq!(settle(&mut ledger), Some((5, vec![4])));
        assert_eq!(settle(&mut ledger), None);
    }

    #[test]
    fn what_nobody_wants_is_passed_and_has_no_state() {
        let mut ledger = Ledger::new(0);
        assert!(!ledger.take(1, false) && ledger.take(2, true) && !ledger.take(3, false));
        assert_eq!(settle(&mut ledger), Some((1, vec![])));
        ledger.is(2, Delivered);
        assert_eq!(settle(&mut ledger), Some((3, vec![2])));
    }

    #[test]
    fn what_was_recorded_ahead_before_a_restart_is_not_taken_again() {
        let mut ledger = Ledger::new(3);
        ledger.knows(2);
        ledger.knows(5);
        assert!(ledger.take(4, true) && !ledger.take(5, true) && ledger.take(6, true));
        assert!(ledger.known.is_empty());
    }

    #[test]
    fn a_settlement_that_could_not_be_recorded_is_made_again_with_what_came_since() {
        let mut ledger = ledger(2);
        ledger.is(1, Delivered);
        assert_eq!(ledger.settlement().map(|settlement| settlement.seq), Some(1));
        ledger.is(2, Delivered);
        assert_eq!(settle(&mut ledger), Some((2, vec![1, 2])));
    }
}
