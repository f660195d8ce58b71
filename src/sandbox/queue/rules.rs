//! How a queue treats its messages: its promises, and how often it breaks them.

use std::time::Duration;

use serde::Deserialize;

/// How a queue treats its messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// How long a received message stays hidden.
    pub visibility: Duration,
    /// How long a message lives, committed or not, counted from when it was enqueued.
    pub retention: Duration,
    pub stale_handle: StaleHandle,
    pub oddities: Oddities,
}

impl Default for Rules {
    /// 30 s and 4 days, VTEX's own defaults, and a queue on its best behaviour.
    fn default() -> Self {
        Self {
            visibility: Duration::from_secs(30),
            retention: Duration::from_secs(345_600),
            stale_handle: StaleHandle::Ignored,
            oddities: Oddities::default(),
        }
    }
}

/// What a handle does whose message was received again since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StaleHandle {
    /// The commit succeeds and deletes nothing.
    #[default]
    Ignored,
    /// It deletes the message.
    Deleted,
    /// The commit is refused.
    Refused,
}

/// What an SQS standard queue does now and then; each number is a probability from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Oddities {
    /// A receive answers fewer messages than it could, but at least one.
    pub short_read: f64,
    /// A receive answers none although some are visible.
    pub empty_read: f64,
    /// A received message is not hidden, so that another receive gets it too.
    pub delivered_twice: f64,
    /// A deleted message comes back once the visibility timeout is over.
    pub back_after_commit: f64,
    /// A handle's commit succeeds and deletes nothing.
    pub kept_despite_commit: f64,
}
