//! How VTEX is doing: what it answers instead of what it should.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use super::plan::REQUEST_TIMEOUT;
use super::vtex::Answer;
use crate::policy::classify::Operation;

/// How an account of VTEX is treated for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Weather {
    Calm,
    /// Every fault now and then.
    Fitful,
    /// Mostly 429.
    Throttling,
    /// Nothing works.
    Outage,
    Unauthorized,
    Unconfigured,
    /// Bodies are cut.
    Garbling,
}

impl Weather {
    pub(super) fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..100) {
            0..35 => Self::Calm,
            35..72 => Self::Fitful,
            72..80 => Self::Throttling,
            80..87 => Self::Outage,
            87..91 => Self::Unauthorized,
            91..95 => Self::Unconfigured,
            _ => Self::Garbling,
        }
    }

    /// What happens to the next request.
    pub(super) fn answer(self, operation: Operation, rng: &mut StdRng) -> Answer {
        match self {
            Self::Calm => Answer::Good,
            Self::Fitful if rng.random_bool(0.75) => Answer::Good,
            Self::Fitful => fault(operation, rng),
            Self::Throttling if rng.random_bool(0.3) => Answer::Good,
            Self::Throttling => Answer::Refused { status: 429, retry_after: retry_after(rng) },
            Self::Outage => outage(rng),
            Self::Unauthorized => {
                Answer::Refused { status: 401 + 2 * rng.random_range(0..2), retry_after: None }
            }
            Self::Unconfigured if operation == Operation::Commit => Answer::Good,
            Self::Unconfigured => Answer::Refused { status: 404, retry_after: None },
            Self::Garbling if rng.random_bool(0.2) => Answer::Good,
            Self::Garbling => Answer::Cut,
        }
    }
}

fn fault(operation: Operation, rng: &mut StdRng) -> Answer {
    let refused = |status| Answer::Refused { status, retry_after: None };
    match rng.random_range(0..14) {
        0 => Answer::Refused { status: 429, retry_after: retry_after(rng) },
        1 => Answer::Refused { status: 503, retry_after: retry_after(rng) },
        2 => outage(rng),
        3 => refused([400, 409, 413, 422, 405, 301][rng.random_range(0..6)]),
        4 => refused([401, 403][rng.random_range(0..2)]),
        5 if operation != Operation::Commit => refused(404),
        6 => Answer::Cut,
        7 => Answer::TooLarge,
        8 => Answer::LostBefore,
        9 => Answer::LostAfter,
        10 => Answer::Hung,
        11 => Answer::Late(REQUEST_TIMEOUT.mul_f64(rng.random_range(0.1..0.95))),
        _ => Answer::Hollow,
    }
}

fn outage(rng: &mut StdRng) -> Answer {
    match rng.random_range(0..10) {
        0 => Answer::LostBefore,
        1 => Answer::Hung,
        n => Answer::Refused { status: [408, 500, 501, 502, 503, 503, 504, 520][n - 2], retry_after: None },
    }
}

/// As the agent understands it: above zero and at most a day.
fn retry_after(rng: &mut StdRng) -> Option<Duration> {
    let seconds = match rng.random_range(0..20) {
        0..8 => return None,
        8..13 => rng.random_range(1..60),
        13..18 => rng.random_range(60..900),
        18 => rng.random_range(900..7_200),
        _ if rng.random_bool(0.1) => 86_400,
        _ => 5,
    };
    Some(Duration::from_secs(seconds))
}
