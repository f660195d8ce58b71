//! The sandbox's own record of what it handed out and what came back: the proof that nothing was lost.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::handle::MessageId;
use super::items::Item;

/// What happened so far, over all app keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ledger {
    /// Messages put into a queue.
    pub enqueued: u64,
    /// Items answered to receives; one that was answered twice counts twice.
    pub received: u64,
    /// Messages deleted by a commit.
    pub committed: u64,
    /// Messages neither committed nor expired, those out on a lease included.
    pub waiting: u64,
    /// Each message in the order in which they were enqueued; only the first million are recorded.
    pub events: Vec<Record>,
}

impl Ledger {
    /// The events whose handle was committed.
    pub fn committed_events(&self) -> impl Iterator<Item = &Record> {
        self.events.iter().filter(|event| event.committed_at_ms.is_some())
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    pub app_key: String,
    /// What the queue calls it: a UUID.
    pub message_id: String,
    /// The item's own members; empty where it has none.
    pub event_id: String,
    pub order_id: String,
    pub state: String,
    /// All times count from the sandbox's start.
    pub enqueued_at_ms: u64,
    pub received: u32,
    pub committed_at_ms: Option<u64>,
}

/// The ledger stops naming messages after this many; it goes on counting them.
pub(super) const MAX_RECORDS: usize = 1_000_000;

/// Writes a [`Ledger`].
#[derive(Debug, Default)]
pub(super) struct Bookkeeper {
    ledger: Ledger,
    places: BTreeMap<MessageId, usize>,
}

impl Bookkeeper {
    pub(super) fn enqueued(&mut self, now: Duration, app_key: &str, message: MessageId, item: &Item) {
        self.ledger.enqueued += 1;
        if self.ledger.events.len() == MAX_RECORDS {
            return;
        }
        let item = item.value();
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        self.places.insert(message, self.ledger.events.len());
        self.ledger.events.push(Record {
            app_key: app_key.to_owned(),
            message_id: message.to_string(),
            event_id: text("eventId"),
            order_id: text("orderId"),
            state: text("state"),
            enqueued_at_ms: millis(now),
            received: 0,
            committed_at_ms: None,
        });
    }

    pub(super) fn received(&mut self, message: MessageId) {
        self.ledger.received += 1;
        if let Some(record) = self.record(message) {
            record.received += 1;
        }
    }

    pub(super) fn committed(&mut self, now: Duration, message: MessageId) {
        self.ledger.committed += 1;
        if let Some(record) = self.record(message) {
            record.committed_at_ms = Some(millis(now));
        }
    }

    pub(super) fn ledger(&self, waiting: u64) -> Ledger {
        Ledger { waiting, ..self.ledger.clone() }
    }

    fn record(&mut self, message: MessageId) -> Option<&mut Record> {
        self.ledger.events.get_mut(*self.places.get(&message)?)
    }
}

fn millis(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}
