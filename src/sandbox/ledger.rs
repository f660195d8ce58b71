//! The sandbox's own record of what it handed out and what came back: the proof that nothing was lost.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::handle::MessageId;
use super::items::Item;
use super::route::Operation;

/// What happened so far, over all app keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ledger {
    /// Requests that were let in, by operation.
    pub requests: BTreeMap<Operation, u64>,
    /// Messages put into a queue.
    pub enqueued: u64,
    /// Items answered to receives; one that was answered twice counts twice.
    pub received: u64,
    /// Messages deleted by a commit; one that came back and was deleted again counts once while it is recorded.
    pub committed: u64,
    /// Messages neither committed nor expired, those out on a lease included.
    pub waiting: u64,
    /// Events that found their queue full and were dropped.
    pub overflowed: u64,
    /// Requests answered with 429.
    pub throttled: u64,
    /// Requests that came within the penalty of a 429: a minute, or longer where the answer said so.
    pub in_penalty: u64,
    /// The first thousand of those.
    pub penalized: Vec<Penalized>,
    /// How often each rule of the settings file made a fault, in the order of the file.
    pub faults: Vec<u64>,
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
    pub last_received_at_ms: Option<u64>,
    /// When it was committed first.
    pub committed_at_ms: Option<u64>,
}

/// A request within the penalty of a 429.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Penalized {
    pub account: String,
    pub operation: Operation,
    /// Since the 429. A request that was under way when that was answered comes within milliseconds.
    pub after_ms: u64,
}

/// The ledger stops naming messages after this many; it goes on counting them.
pub(super) const MAX_RECORDS: usize = 1_000_000;
const MAX_PENALIZED: usize = 1_000;

/// Writes a [`Ledger`].
#[derive(Debug, Default)]
pub(super) struct Bookkeeper {
    /// Without events.
    ledger: Ledger,
    events: Vec<Record>,
    places: BTreeMap<MessageId, usize>,
}

impl Bookkeeper {
    pub(super) fn requested(&mut self, operation: Operation) {
        *self.ledger.requests.entry(operation).or_default() += 1;
    }

    pub(super) fn throttled(&mut self) {
        self.ledger.throttled += 1;
    }

    pub(super) fn in_penalty(&mut self, account: &str, operation: Operation, after: Duration) {
        self.ledger.in_penalty += 1;
        if self.ledger.penalized.len() < MAX_PENALIZED {
            let (account, after_ms) = (account.to_owned(), millis(after));
            self.ledger.penalized.push(Penalized { account, operation, after_ms });
        }
    }

    pub(super) fn enqueued(&mut self, now: Duration, app_key: &str, message: MessageId, item: &Item) {
        self.ledger.enqueued += 1;
        if self.events.len() == MAX_RECORDS {
            return;
        }
        let item = item.value();
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        self.places.insert(message, self.events.len());
        self.events.push(Record {
            app_key: app_key.to_owned(),
            message_id: message.to_string(),
            event_id: text("eventId"),
            order_id: text("orderId"),
            state: text("state"),
            enqueued_at_ms: millis(now),
            received: 0,
            last_received_at_ms: None,
            committed_at_ms: None,
        });
    }

    pub(super) fn received(&mut self, now: Duration, message: MessageId) {
        self.ledger.received += 1;
        if let Some(record) = self.record(message) {
            record.received += 1;
            record.last_received_at_ms = Some(millis(now));
        }
    }

    pub(super) fn committed(&mut self, now: Duration, message: MessageId) {
        match self.record(message) {
            Some(Record { committed_at_ms: Some(_), .. }) => return,
            Some(record) => record.committed_at_ms = Some(millis(now)),
            None => {}
        }
        self.ledger.committed += 1;
    }

    pub(super) fn overflowed(&mut self) {
        self.ledger.overflowed += 1;
    }

    /// Everything but the events.
    pub(super) fn counts(&self, waiting: u64, faults: Vec<u64>) -> Ledger {
        Ledger { waiting, faults, ..self.ledger.clone() }
    }

    pub(super) fn events(&self) -> &[Record] {
        &self.events
    }

    fn record(&mut self, message: MessageId) -> Option<&mut Record> {
        self.events.get_mut(*self.places.get(&message)?)
    }
}

fn millis(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}
