//! Finds the handles that spoil a commit, so that the others are committed all the same.

use std::ops::Range;

/// The splitting of a refused commit. Its ranges are positions in that commit.
///
/// Both halves are sent; the one that is refused is halved again. When both are, the refusal is not about a few
/// handles, and nothing more is sent: at most 2 · ⌈log2 n⌉ requests. What is neither committed nor refused when
/// the caller stops early was not decided.
#[derive(Debug, Clone)]
pub struct Split {
    halves: Option<Halves>,
    committed: Vec<Range<usize>>,
    refused: Vec<Range<usize>>,
}

/// What became of the range that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    Refused,
}

#[derive(Debug, Clone)]
struct Halves {
    first: Range<usize>,
    second: Range<usize>,
    /// The first half's, once it is told.
    told: Option<Outcome>,
}

impl Split {
    /// Begins after a commit of `n_handles` was refused as a whole.
    pub fn new(n_handles: usize) -> Self {
        let mut split = Self { halves: None, committed: Vec::new(), refused: Vec::new() };
        split.halve(0..n_handles);
        split
    }

    /// The range to send next, never empty; `None` when there is nothing left to try.
    pub fn next(&self) -> Option<Range<usize>> {
        self.halves.as_ref().map(|halves| match halves.told {
            None => halves.first.clone(),
            Some(Outcome::Committed | Outcome::Refused) => halves.second.clone(),
        })
    }

    /// Takes what became of the range that [`Self::next`] named; nothing happens where it named none.
    pub fn tell(&mut self, outcome: Outcome) {
        let Some(Halves { first, second, told }) = self.halves.take() else { return };
        match (told, outcome) {
            (None, told) => {
                if told == Outcome::Committed {
                    self.committed.push(first.clone());
                }
                self.halves = Some(Halves { first, second, told: Some(told) });
            }
            (Some(Outcome::Committed), Outcome::Committed) => self.committed.push(second),
            (Some(Outcome::Committed), Outcome::Refused) => self.halve(second),
            (Some(Outcome::Refused), Outcome::Committed) => {
                self.committed.push(second);
                self.halve(first);
            }
            (Some(Outcome::Refused), Outcome::Refused) => self.refused.extend([first, second]),
        }
    }

    pub fn committed(&self) -> &[Range<usize>] {
        &self.committed
    }

    /// What was refused and is not split any further.
    pub fn refused(&self) -> &[Range<usize>] {
        &self.refused
    }

    fn halve(&mut self, range: Range<usize>) {
        let middle = range.start + range.len() / 2;
        match range.len() {
            0 => {}
            1 => self.refused.push(range),
            2.. => {
                self.halves =
                    Some(Halves { first: range.start..middle, second: middle..range.end, told: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_poisoned_handle_of_ten_costs_only_itself() {
        for poison in 0..10 {
            let (n_requests, split) = run(10, &[poison]);
            let others: Vec<usize> = (0..10).filter(|handle| *handle != poison).collect();
            assert_eq!(positions(split.committed()), others, "poison {poison}");
            assert_eq!(positions(split.refused()), [poison], "poison {poison}");
            assert!(n_requests <= 8, "poison {poison}: {n_requests} requests");
        }
    }

    #[test]
    fn two_poisoned_handles_cost_the_halves_that_hold_them() {
        for first in 0..10 {
            for second in first + 1..10 {
                let (n_requests, split) = run(10, &[first, second]);
                let refused = positions(split.refused());
                assert!(
                    refused.contains(&first) && refused.contains(&second),
                    "{first}, {second}: {refused:?}"
                );
                assert_eq!(positions(split.committed()).len() + refused.len(), 10, "{first}, {second}");
                assert!(n_requests <= 8, "{first}, {second}: {n_requests} requests");
            }
        }
        assert_eq!(positions(run(10, &[0, 1]).1.refused()), [0, 1]);
        assert_eq!(run(10, &[4, 5]).0, 2);
    }

    #[test]
    fn when_all_is_refused_two_requests_are_enough() {
        let all: Vec<usize> = (0..10).collect();
        let (n_requests, split) = run(10, &all);
        assert_eq!((n_requests, positions(split.refused())), (2, all));
        assert!(split.committed().is_empty());
    }

    #[test]
    fn a_refusal_that_goes_away_leaves_nothing_refused() {
        let (_, split) = run(10, &[]);
        assert_eq!(positions(split.committed()).len(), 10);
        assert!(split.refused().is_empty());
    }

    #[test]
    fn a_single_handle_has_no_halves() {
        for (n_handles, refused) in [(0, 0), (1, 1)] {
            let mut split = Split::new(n_handles);
            assert_eq!(split.next(), None);
            split.tell(Outcome::Committed);
            assert_eq!((split.committed().len(), split.refused().len()), (0, refused));
        }
    }

    proptest! {
        #[test]
        fn whatever_is_answered_every_handle_ends_once_and_requests_are_bounded(
            n in 0usize..2_000, outcomes in prop::collection::vec(any::<bool>(), 30),
        ) {
            let mut split = Split::new(n);
            let mut n_requests = 0;
            while let Some(range) = split.next() {
                prop_assert!(!range.is_empty());
                split.tell(if outcomes[n_requests] { Outcome::Committed } else { Outcome::Refused });
                n_requests += 1;
            }
            prop_assert!(n_requests as u32 <= 2 * n.max(1).next_power_of_two().ilog2());
            let mut ended = positions(split.committed());
            ended.extend(positions(split.refused()));
            ended.sort_unstable();
            prop_assert_eq!(ended, (0..n).collect::<Vec<_>>());
        }
    }

    /// Splits against a feed that refuses whatever holds one of `poison`.
    fn run(n_handles: usize, poison: &[usize]) -> (usize, Split) {
        let mut split = Split::new(n_handles);
        let mut n_requests = 0;
        while let Some(range) = split.next() {
            n_requests += 1;
            let is_poisoned = poison.iter().any(|handle| range.contains(handle));
            split.tell(if is_poisoned { Outcome::Refused } else { Outcome::Committed });
        }
        (n_requests, split)
    }

    fn positions(ranges: &[Range<usize>]) -> Vec<usize> {
        let mut positions: Vec<usize> = ranges.iter().cloned().flatten().collect();
        positions.sort_unstable();
        positions
    }
}
