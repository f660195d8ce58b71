//! What was really met. A simulation that never meets a fault proves nothing about it.

use std::collections::BTreeMap;
use std::fmt;

/// Something that must happen now and then over many seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    /// 429 without a hint, with one, and one that was sent before another 429 came.
    Throttled,
    ThrottledWithHint,
    ThrottledTwice,
    /// A Retry-After on another failure.
    OtherHint,
    RefusedTransient,
    RefusedPermanent,
    Unauthorized,
    Unconfigured,
    /// A body that was cut, one that was too large.
    Cut,
    TooLarge,
    /// The connection broke before and after the request took effect; no answer within the time-out.
    LostBefore,
    LostAfter,
    Hung,
    Late,
    Hollow,
    SlowDown,
    /// A commit that VTEX refused because of one handle, and one that succeeded without effect.
    PoisonedCommit,
    KeptDespiteCommit,
    StaleHandle,
    /// An item given again that was journaled already, and one whose message had been deleted.
    Redelivered,
    BackAfterCommit,
    EnqueuedTwice,
    UnusableItem,
    /// An event that VTEX forgot before the agent could journal it.
    Expired,
    Stranger,
    VisibilityChanged,
    JournalFailed,
    /// The batch was stored, but the journal said that it failed.
    JournalFailedAfterwards,
    ProbeFailed,
    SinkFailed,
    SinkFailedAfterwards,
    SinkRotated,
    WallForward,
    WallBack,
    Crash,
    CrashWithLeasedBatch,
    CrashBetweenJournalAndCommit,
    CrashInPause,
    CrashInDelivery,
    /// A transaction, or lines of a sink, of which a crash left a part.
    TornJournal,
    TornSink,
    Shutdown,
    ShutdownInPause,
    ShutdownInPoll,
    GraceExceeded,
    PauseRestored,
    /// More than 24 h were asked for.
    HintOfDays,
    /// A receiver: it took an event late, refused one, asked for time (after a 429 and a 503), could not be reached, did not
    /// answer in time, and broke the connection after it took the event.
    ReceiverLate,
    ReceiverRefused,
    ReceiverThrottled,
    ReceiverUnavailable,
    ReceiverUnreachable,
    ReceiverHung,
    ReceiverTookAndBroke,
    /// An event that it never takes.
    PoisonRefused,
    /// It was down for a while.
    ReceiverDown,
    /// An event that is not for it.
    NotWanted,
    /// A failed attempt that says nothing of its event.
    AttemptNotCounted,
    /// A dead letter; retried while the agent ran, and while it did not; taken at last; thrown away.
    DeadLetter,
    /// One that the progress had not passed.
    DeadOutOfTurn,
    RetriedWhileRunning,
    RetriedWhileDown,
    RetriedAndTaken,
    Discarded,
    /// Another process wrote something else.
    AlteredOtherwise,
    /// An event came twice: the agent ended before it recorded it, or never heard that it was taken.
    TakenAgainAfterCrash,
    TakenAgainAfterFailure,
    /// The power went while an event was on its way, and before one that was taken was recorded.
    CrashInAttempt,
    CrashBeforeRecord,
    UnansweredAtShutdown,
    /// What was delivered could not be recorded at once.
    RecordFailed,
    /// A delivery was recorded before one that comes before it.
    RecordedOutOfTurn,
    /// The breaker of a receiver.
    BreakerOpened,
    BreakerClosed,
}

impl Met {
    pub const ALL: [Self; 74] = [
        Self::Throttled,
        Self::ThrottledWithHint,
        Self::ThrottledTwice,
        Self::OtherHint,
        Self::RefusedTransient,
        Self::RefusedPermanent,
        Self::Unauthorized,
        Self::Unconfigured,
        Self::Cut,
        Self::TooLarge,
        Self::LostBefore,
        Self::LostAfter,
        Self::Hung,
        Self::Late,
        Self::Hollow,
        Self::SlowDown,
        Self::PoisonedCommit,
        Self::KeptDespiteCommit,
        Self::StaleHandle,
        Self::Redelivered,
        Self::BackAfterCommit,
        Self::EnqueuedTwice,
        Self::UnusableItem,
        Self::Expired,
        Self::Stranger,
        Self::VisibilityChanged,
        Self::JournalFailed,
        Self::JournalFailedAfterwards,
        Self::ProbeFailed,
        Self::SinkFailed,
        Self::SinkFailedAfterwards,
        Self::SinkRotated,
        Self::WallForward,
        Self::WallBack,
        Self::Crash,
        Self::CrashWithLeasedBatch,
        Self::CrashBetweenJournalAndCommit,
        Self::CrashInPause,
        Self::CrashInDelivery,
        Self::TornJournal,
        Self::TornSink,
        Self::Shutdown,
        Self::ShutdownInPause,
        Self::ShutdownInPoll,
        Self::GraceExceeded,
        Self::PauseRestored,
        Self::HintOfDays,
        Self::ReceiverLate,
        Self::ReceiverRefused,
        Self::ReceiverThrottled,
        Self::ReceiverUnavailable,
        Self::ReceiverUnreachable,
        Self::ReceiverHung,
        Self::ReceiverTookAndBroke,
        Self::PoisonRefused,
        Self::ReceiverDown,
        Self::NotWanted,
        Self::AttemptNotCounted,
        Self::DeadLetter,
        Self::DeadOutOfTurn,
        Self::RetriedWhileRunning,
        Self::RetriedWhileDown,
        Self::RetriedAndTaken,
        Self::Discarded,
        Self::AlteredOtherwise,
        Self::TakenAgainAfterCrash,
        Self::TakenAgainAfterFailure,
        Self::CrashInAttempt,
        Self::CrashBeforeRecord,
        Self::UnansweredAtShutdown,
        Self::RecordFailed,
        Self::RecordedOutOfTurn,
        Self::BreakerOpened,
        Self::BreakerClosed,
    ];
}

/// How often each was met, and how much work was done meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    met: BTreeMap<Met, u64>,
    pub requests: u64,
    pub events: u64,
    pub delivered: u64,
    /// Lines that a sink got again after its file was moved away in a delivery.
    pub delivered_again: u64,
    /// Attempts at receivers, and how many of them were taken.
    pub attempts: u64,
    pub taken: u64,
}

impl Coverage {
    pub(super) fn meet(&mut self, met: Met) {
        *self.met.entry(met).or_default() += 1;
    }

    pub fn times(&self, met: Met) -> u64 {
        self.met.get(&met).copied().unwrap_or_default()
    }

    /// What was never met.
    pub fn missing(&self) -> Vec<Met> {
        Met::ALL.into_iter().filter(|met| self.times(*met) == 0).collect()
    }

    /// Adds what another run met.
    pub fn add(&mut self, other: &Self) {
        for (met, times) in &other.met {
            *self.met.entry(*met).or_default() += times;
        }
        self.requests += other.requests;
        self.events += other.events;
        self.delivered += other.delivered;
        self.delivered_again += other.delivered_again;
        self.attempts += other.attempts;
        self.taken += other.taken;
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for met in Met::ALL {
            writeln!(f, "{:>12} {met:?}", self.times(met))?;
        }
        writeln!(f, "{:>12} requests", self.requests)?;
        writeln!(f, "{:>12} events", self.events)?;
        writeln!(f, "{:>12} lines delivered, {} of them again", self.delivered, self.delivered_again)?;
        writeln!(f, "{:>12} attempts at receivers, {} of them taken", self.attempts, self.taken)
    }
}
