//! What happened, step by step: a hash over all of it, and the steps of the last hour.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::agent::Ending;
use super::disk::{Disk, Medium};
use super::operator::Deed;
use super::receiver::{Fate, Mood};
use super::vtex::Answer;
use super::weather::Weather;
use crate::policy::classify::Operation;

const KEPT: Duration = Duration::from_secs(3600);

/// Something that can be seen from outside the agent. Feeds, accounts and sinks are told by their place in the plan,
/// events by their number.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) enum Step {
    Enqueued {
        feed: usize,
        event: u32,
    },
    Sent {
        feed: usize,
        operation: Operation,
        events: Vec<u32>,
        fate: Answer,
    },
    Heard {
        feed: usize,
        operation: Operation,
        status: Option<u16>,
        events: Vec<u32>,
    },
    /// The agent no longer waits for it.
    Dropped {
        feed: usize,
        operation: Operation,
    },
    Deleted {
        feed: usize,
        event: u32,
    },
    Journaled {
        feed: usize,
        events: Vec<u32>,
        n_new: usize,
    },
    PauseStored {
        account: usize,
        length: Duration,
    },
    Progress {
        sink: usize,
        seq: i64,
    },
    Failed {
        medium: Medium,
        doing: &'static str,
        done: bool,
    },
    Delivered {
        sink: usize,
        n_events: usize,
        length: u64,
    },
    /// An attempt at a receiver leaves; it takes effect there; what came of it is heard.
    Attempted {
        receiver: usize,
        seq: i64,
        event: u32,
        fate: Fate,
    },
    Taken {
        receiver: usize,
        seq: i64,
    },
    Answered {
        receiver: usize,
        seq: i64,
        status: Option<u16>,
    },
    /// Recorded: the progress, and what it does not say.
    Settled {
        receiver: usize,
        progress: i64,
        delivered: Vec<i64>,
        pending: Vec<i64>,
        dead: Vec<i64>,
    },
    Mood {
        receiver: usize,
        mood: Mood,
    },
    /// An operator.
    Did {
        receiver: usize,
        seq: i64,
        deed: Deed,
    },
    /// The agent is told that another process has written.
    Altered,
    Weather {
        account: usize,
        weather: Weather,
    },
    Disk {
        medium: Medium,
        disk: Disk,
    },
    WallJumped {
        by_ms: i64,
    },
    Visibility {
        feed: usize,
        visibility: Duration,
    },
    Poisoned {
        feed: usize,
        event: u32,
    },
    Stranger {
        feed: usize,
        n_items: usize,
    },
    Rotated {
        sink: usize,
    },
    Started {
        run: u32,
        restored: Vec<Duration>,
    },
    Ended {
        run: u32,
        how: Ending,
    },
    Torn {
        medium: Medium,
        n_bytes: u64,
    },
    FaultsEnd,
    Quiet,
}

#[derive(Debug, Default)]
pub(super) struct Trace {
    hasher: DefaultHasher,
    last: VecDeque<(Duration, Step)>,
}

impl Trace {
    pub(super) fn note(&mut self, at: Duration, step: Step) {
        (at, &step).hash(&mut self.hasher);
        self.last.push_back((at, step));
        while self.last.front().is_some_and(|(first, _)| *first + KEPT < at) {
            self.last.pop_front();
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// One line for each step of the last hour.
    pub(super) fn lines(&self) -> Vec<String> {
        self.last.iter().map(|(at, step)| format!("{} {step:?}", Clock(*at))).collect()
    }
}

/// Days, hours, minutes, seconds since the start.
pub(super) struct Clock(pub(super) Duration);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, ms) = (self.0.as_secs(), self.0.subsec_millis());
        write!(f, "{}d {:02}:{:02}:{:02}.{ms:03}", s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60)
    }
}
