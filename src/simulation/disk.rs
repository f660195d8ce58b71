//! How the storage is doing.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

/// What an agent stores on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Medium {
    Journal,
    Sink(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Disk {
    Healthy,
    /// No write fails, but they take their time.
    Slow,
    /// Some writes fail, some take long.
    Flaky,
    /// No write succeeds.
    Broken,
}

/// How one piece of work goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Luck {
    pub(super) before: Duration,
    pub(super) trouble: Option<Trouble>,
    pub(super) after: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It fails before anything is done.
    Fails,
    /// It is done, but fails.
    FailsAfterwards,
    /// The power goes before anything is done.
    CrashBefore,
    /// The power goes when it is done, but nobody was told.
    CrashAfter,
}

impl Disk {
    pub(super) fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..10) {
            0..5 => Self::Healthy,
            5 => Self::Slow,
            6..9 => Self::Flaky,
            _ => Self::Broken,
        }
    }

    pub(super) fn luck(self, may_crash: bool, rng: &mut StdRng) -> Luck {
        let trouble = match self {
            Self::Broken => Some(Trouble::Fails),
            Self::Flaky if rng.random_bool(0.15) => Some(Trouble::Fails),
            Self::Flaky if rng.random_bool(0.1) => Some(Trouble::FailsAfterwards),
            Self::Flaky | Self::Slow | Self::Healthy if may_crash && rng.random_bool(0.004) => {
                Some(if rng.random_bool(0.3) { Trouble::CrashBefore } else { Trouble::CrashAfter })
            }
            Self::Flaky | Self::Slow | Self::Healthy => None,
        };
        let mut delay = || {
            let ms = match self {
                Self::Healthy => rng.random_range(0..8),
                Self::Slow => rng.random_range(0..1_500),
                Self::Flaky | Self::Broken if rng.random_bool(0.1) => rng.random_range(0..4_000),
                Self::Flaky | Self::Broken => rng.random_range(0..100),
            };
            Duration::from_millis(ms)
        };
        Luck { before: delay(), trouble, after: delay() }
    }
}
