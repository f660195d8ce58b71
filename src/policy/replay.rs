//! Whether the same request may be sent again, when the first one may have had its effect already.

use super::classify::Operation;

/// What a second effect of the same request would mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Nothing: it reads, or it changes something to what it is already.
    Harmless,
    /// Something happens twice.
    Harmful,
}

/// What is known of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// No connection was made, so nothing was sent.
    NotSent,
    /// It was sent and no whole answer came: it may have had its effect.
    Unanswered,
    Answered(u16),
}

/// What sending this operation twice does.
///
/// A receive leases other items, and those of a lost answer come back. A commit forgets what is forgotten already.
/// A configuration is written as a whole. Anything else that changes state is harmful until its operation says why
/// not.
pub fn replay(operation: Operation) -> Replay {
    match operation {
        Operation::Receive | Operation::Commit | Operation::Config | Operation::Order => Replay::Harmless,
        Operation::NotifyPrice => Replay::Harmful,
    }
}

/// Whether a request that failed may be sent again. `call_site_agrees` says that whoever sends it takes the second
/// effect; without that a harmful request is sent again only where it had no effect for sure: it was never sent, or
/// VTEX refused it for its load (429, 503).
pub fn may_replay(replay: Replay, reached: Reached, call_site_agrees: bool) -> bool {
    match (replay, reached) {
        (Replay::Harmless, Reached::NotSent | Reached::Unanswered | Reached::Answered(_)) => true,
        (Replay::Harmful, Reached::NotSent | Reached::Answered(429 | 503)) => true,
        (Replay::Harmful, Reached::Unanswered | Reached::Answered(_)) => call_site_agrees,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_nothing_twice_is_harmless() {
        for (operation, expected) in [
            (Operation::Receive, Replay::Harmless),
            (Operation::Commit, Replay::Harmless),
            (Operation::Config, Replay::Harmless),
            (Operation::Order, Replay::Harmless),
            (Operation::NotifyPrice, Replay::Harmful),
        ] {
            assert_eq!(replay(operation), expected, "{operation}");
        }
    }

    #[test]
    fn what_may_have_happened_is_repeated_only_where_that_is_harmless_or_agreed_to() {
        use Reached::{Answered, NotSent, Unanswered};
        for (reached, without_agreement) in [
            (NotSent, true),
            (Unanswered, false),
            (Answered(200), false),
            (Answered(408), false),
            (Answered(429), true),
            (Answered(500), false),
            (Answered(502), false),
            (Answered(503), true),
            (Answered(504), false),
        ] {
            assert!(may_replay(Replay::Harmless, reached, false), "{reached:?}");
            assert_eq!(may_replay(Replay::Harmful, reached, false), without_agreement, "{reached:?}");
            assert!(may_replay(Replay::Harmful, reached, true), "{reached:?}");
        }
    }
}
