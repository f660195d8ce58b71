//! What an answer of VTEX means.

use std::fmt;

/// What was asked of VTEX. Its text is the `operation` of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Receive,
    Commit,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "feed.receive",
            Self::Commit => "feed.commit",
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
    /// 404 of the feed: VTEX has no configuration for this app key.
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
    match (status, operation) {
        (200..=299, _) => None,
        (429, _) => Some(Class::Throttled),
        (401 | 403, _) => Some(Class::Unauthorized),
        (404, Operation::Receive) => Some(Class::Unconfigured),
        (408 | 500..=599, _) => Some(Class::Transient),
        (_, Operation::Receive | Operation::Commit) => Some(Class::Permanent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_class() {
        use Class::{Permanent, Throttled, Transient, Unauthorized, Unconfigured};
        for (status, receive, commit) in [
            (200, None, None),
            (204, None, None),
            (301, Some(Permanent), Some(Permanent)),
            (302, Some(Permanent), Some(Permanent)),
            (400, Some(Permanent), Some(Permanent)),
            (401, Some(Unauthorized), Some(Unauthorized)),
            (403, Some(Unauthorized), Some(Unauthorized)),
            (404, Some(Unconfigured), Some(Permanent)),
            (408, Some(Transient), Some(Transient)),
            (409, Some(Permanent), Some(Permanent)),
            (429, Some(Throttled), Some(Throttled)),
            (500, Some(Transient), Some(Transient)),
            (503, Some(Transient), Some(Transient)),
            (599, Some(Transient), Some(Transient)),
        ] {
            assert_eq!(classify(Operation::Receive, status), receive, "receive {status}");
            assert_eq!(classify(Operation::Commit, status), commit, "commit {status}");
        }
    }
}
