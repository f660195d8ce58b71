//! What an answer of VTEX means.

use std::fmt;

use super::breaker::Verdict;

/// What was asked of VTEX. Its text is the `operation` of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Receive,
    Commit,
    /// The feed's configuration, read or written.
    Config,
    /// One order's document.
    Order,
    /// Telling a seller's marketplace that the price of a SKU has changed.
    NotifyPrice,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "feed.receive",
            Self::Commit => "feed.commit",
            Self::Config => "feed.config",
            Self::Order => "order.get",
            Self::NotifyPrice => "price.notify",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a failure means. Its text is the `class` of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// 429: the whole account must be silent for a while.
    Throttled,
    /// It may go well the next time: 408, 5xx, no connection, no answer in time.
    Transient,
    /// A success whose body cannot be used.
    Malformed,
    /// 401, 403: the key, the token or its permissions.
    Unauthorized,
    /// 404 of the feed or its configuration: VTEX has none for this app key.
    Unconfigured,
    /// Any other refusal; the same request would be refused again.
    Permanent,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Transient => "transient",
            Self::Malformed => "malformed",
            Self::Unauthorized => "unauthorized",
            Self::Unconfigured => "unconfigured",
            Self::Permanent => "permanent",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Classifies an HTTP status; `None` for a success, which is any 2xx.
pub fn classify(operation: Operation, status: u16) -> Option<Class> {
    match status {
        200..=299 => None,
        429 => Some(Class::Throttled),
        401 | 403 => Some(Class::Unauthorized),
        404 => Some(match operation {
            Operation::Receive | Operation::Config => Class::Unconfigured,
            Operation::Commit | Operation::Order | Operation::NotifyPrice => Class::Permanent,
        }),
        408 | 500..=599 => Some(Class::Transient),
        _ => Some(Class::Permanent),
    }
}

/// How an answer counts for the breaker; `None` is a success. Whoever refuses is alive, so a refusal counts as a
/// success; a 429 says nothing about health.
pub fn verdict(failure: Option<Class>) -> Verdict {
    match failure {
        None | Some(Class::Unauthorized | Class::Unconfigured | Class::Permanent) => Verdict::Success,
        Some(Class::Throttled) => Verdict::Neutral,
        Some(Class::Transient | Class::Malformed) => Verdict::Failure,
    }
}

/// Whether the same request may be sent again soon after a transient failure; `None` where no answer came.
pub fn is_retryable(status: Option<u16>) -> bool {
    matches!(status, None | Some(408 | 500 | 502 | 503 | 504))
}

/// Whether a commit was refused because of what it holds, so that a part of it may still be taken. A 5xx means
/// that only when it stays after one retry.
pub fn is_commit_refusal(status: u16) -> bool {
    matches!(status, 400 | 404 | 409 | 413 | 422 | 500..=599)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_class() {
        use Class::{Permanent, Throttled, Transient, Unauthorized, Unconfigured};
        for (statuses, class) in [
            (&[200, 201, 204, 299][..], None),
            (&[429], Some(Throttled)),
            (&[401, 403], Some(Unauthorized)),
            (&[408, 500, 501, 502, 503, 504, 599], Some(Transient)),
            (&[0, 100, 199, 301, 302, 307, 400, 405, 409, 413, 422, 499, 600, 999], Some(Permanent)),
        ] {
            for (status, operation) in
                statuses.iter().flat_map(|status| all().map(|operation| (status, operation)))
            {
                assert_eq!(classify(operation, *status), class, "{operation} {status}");
            }
        }
        let not_found = all().map(|operation| classify(operation, 404));
        assert_eq!(not_found, [Unconfigured, Permanent, Unconfigured, Permanent, Permanent].map(Some));
    }

    #[test]
    fn whoever_refuses_is_alive_and_a_429_says_nothing() {
        for (failure, expected) in [
            (None, Verdict::Success),
            (Some(Class::Unauthorized), Verdict::Success),
            (Some(Class::Unconfigured), Verdict::Success),
            (Some(Class::Permanent), Verdict::Success),
            (Some(Class::Throttled), Verdict::Neutral),
            (Some(Class::Transient), Verdict::Failure),
            (Some(Class::Malformed), Verdict::Failure),
        ] {
            assert_eq!(verdict(failure), expected, "{failure:?}");
        }
    }

    #[test]
    fn the_statuses_worth_a_retry_are_the_listed_ones() {
        assert!(is_retryable(None));
        let retryable: Vec<u16> = (0..1000).filter(|status| is_retryable(Some(*status))).collect();
        assert_eq!(retryable, [408, 500, 502, 503, 504]);
    }

    #[test]
    fn the_refusals_of_a_commit_are_the_listed_ones() {
        let refusals: Vec<u16> = (0..500).filter(|status| is_commit_refusal(*status)).collect();
        assert_eq!(refusals, [400, 404, 409, 413, 422]);
        assert!((500..600).all(is_commit_refusal) && !(600..1000).any(is_commit_refusal));
    }

    fn all() -> [Operation; 5] {
        [Operation::Receive, Operation::Commit, Operation::Config, Operation::Order, Operation::NotifyPrice]
    }
}
