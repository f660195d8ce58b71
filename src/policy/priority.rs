//! Who goes next through the gate of an account.

use super::classify::Operation;

/// Every so many slots, whoever has waited longest goes, so that nobody waits for ever.
const LONGEST_EVERY: u64 = 5;

/// A request that waits at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    pub operation: Operation,
    /// Its number in the order of arrival; no two are alike.
    pub arrival: u64,
}

/// Chooses who takes the `slot`-th place (counted from 1) and answers its index; `None` where nobody waits.
///
/// Commits go before receives, since their leases run; receives before all others. Among
/// equals, and at every fifth slot among all, the first to arrive goes.
pub fn next(slot: u64, waiters: &[Waiter]) -> Option<usize> {
    let is_for_longest = slot.is_multiple_of(LONGEST_EVERY);
    let key = |waiter: &Waiter| (if is_for_longest { 0 } else { rank(waiter.operation) }, waiter.arrival);
    waiters.iter().enumerate().min_by_key(|(_, waiter)| key(waiter)).map(|(index, _)| index)
}

fn rank(operation: Operation) -> u8 {
    match operation {
        Operation::Commit => 0,
        Operation::Receive => 1,
        Operation::Config | Operation::Order | Operation::NotifyPrice => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation::{Commit, Config, Order, Receive};
    use proptest::prelude::*;

    #[test]
    fn commits_go_before_receives_before_the_others() {
        for (operations, chosen) in [
            (&[][..], None),
            (&[Order], Some(0)),
            (&[Order, Config], Some(0)),
            (&[Config, Order], Some(0)),
            (&[Order, Receive], Some(1)),
            (&[Order, Receive, Commit, Commit], Some(2)),
            (&[Receive, Receive], Some(0)),
        ] {
            let waiters = arrived(operations);
            assert_eq!(next(1, &waiters), chosen, "{operations:?}");
            // The order of the list means nothing, the arrival does.
            let reversed: Vec<Waiter> = waiters.iter().rev().copied().collect();
            assert_eq!(next(1, &reversed).map(|i| reversed[i]), chosen.map(|i| waiters[i]), "{operations:?}");
        }
    }

    #[test]
    fn every_fifth_slot_goes_to_whoever_has_waited_longest() {
        let waiters = arrived(&[Order, Receive, Commit]);
        let chosen: Vec<_> = (1..=11).map(|slot| next(slot, &waiters).unwrap()).collect();
        assert_eq!(chosen, [2, 2, 2, 2, 0, 2, 2, 2, 2, 0, 2]);
    }

    proptest! {
        #[test]
        fn nobody_waits_longer_than_five_slots_for_each_one_before(
            operations in prop::collection::vec(prop::sample::select(vec![Receive, Commit, Config, Order]), 1..30),
            first: u32,
        ) {
            let mut waiters = arrived(&operations);
            let last = waiters.len() as u64 - 1;
            let mut arrivals = waiters.len() as u64;
            let mut slots = 0;
            while waiters.iter().any(|waiter| waiter.arrival == last) {
                slots += 1;
                prop_assert!(slots <= 5 * operations.len() as u64);
                waiters.swap_remove(next(u64::from(first) + slots, &waiters).unwrap());
                // A commit takes the place of whoever left.
                waiters.push(Waiter { operation: Commit, arrival: arrivals });
                arrivals += 1;
            }
        }
    }

    fn arrived(operations: &[Operation]) -> Vec<Waiter> {
        (0..).zip(operations).map(|(arrival, operation)| Waiter { operation: *operation, arrival }).collect()
    }
}
