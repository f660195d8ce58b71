//! The queue behind a feed: an SQS standard queue as a value.
//!
//! It has no clock, no IO and no generator of its own: `now` counts from any start the caller likes, the generator
//! is given, and nothing depends on the order of a hash map. The sandbox, the in-memory feed of the tests and the
//! simulation are all built on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt;
use rand::rngs::StdRng;

use super::handle::{Issuer, MessageId, Receipt, Unreadable};
use super::items::Item;

/// The most items that one receive answers.
pub const MAX_BATCH: usize = 10;

/// How a queue treats its messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// How long a received message stays hidden.
    pub visibility: Duration,
    /// How long a message lives, committed or not, counted from when it was enqueued.
    pub retention: Duration,
}

impl Default for Rules {
    /// 30 s and 4 days, VTEX's own defaults.
    fn default() -> Self {
        Self { visibility: Duration::from_secs(30), retention: Duration::from_secs(345_600) }
    }
}

/// One message as a receive answers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    pub message: MessageId,
    /// 1 for the first receive of this message.
    pub receive_count: u32,
    /// New at each receive.
    pub handle: String,
    pub item: Item,
}

/// What became of one handle of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The message is gone for good.
    Deleted(MessageId),
    /// The message was received again since; nothing happened to it.
    Stale(MessageId),
    /// The message was deleted before, or has expired.
    AlreadyGone,
    /// A handle of another app key.
    Foreign,
    /// Not a handle.
    Garbled,
}

/// See the module's description.
#[derive(Debug)]
pub struct Queue {
    rules: Rules,
    issuer: Issuer,
    /// The wall time at which `now` is zero; handles say when they were made.
    epoch: Timestamp,
    rng: StdRng,
    messages: BTreeMap<u64, Message>,
    visible: BTreeSet<u64>,
    hidden: BTreeSet<(Duration, u64)>,
    next: u64,
}

impl Queue {
    pub fn new(rules: Rules, issuer: Issuer, epoch: Timestamp, rng: StdRng) -> Self {
        let (messages, visible, hidden) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { rules, issuer, epoch, rng, messages, visible, hidden, next: 0 }
    }

    /// Adds a message that is visible at once. `now` never goes back from one call to the next.
    pub fn enqueue(&mut self, now: Duration, item: Item) -> MessageId {
        let id = MessageId::random(&mut self.rng);
        let message = Message { id, item, enqueued_at: now, receive_count: 0, visible_at: now };
        self.messages.insert(self.next, message);
        self.visible.insert(self.next);
        self.next += 1;
        id
    }

    /// Answers up to `maxlot` (at most [`MAX_BATCH`]) visible messages in no particular order and hides them.
    pub fn receive(&mut self, now: Duration, maxlot: usize) -> Vec<Received> {
        self.settle(now);
        self.pick(maxlot.min(MAX_BATCH)).into_iter().filter_map(|number| self.lease(now, number)).collect()
    }

    /// Deletes the message of a handle if that is the handle of its latest receive, whether or not the message is
    /// still hidden.
    pub fn commit(&mut self, now: Duration, handle: &str) -> Fate {
        self.settle(now);
        let receipt = match self.issuer.read(handle) {
            Ok(receipt) => receipt,
            Err(Unreadable::Foreign) => return Fate::Foreign,
            Err(Unreadable::Garbled) => return Fate::Garbled,
        };
        match self.messages.get(&receipt.message) {
            None => Fate::AlreadyGone,
            Some(message) if message.receive_count != receipt.receive => Fate::Stale(message.id),
            Some(message) => {
                let id = message.id;
                self.remove(receipt.message);
                Fate::Deleted(id)
            }
        }
    }

    /// Messages that are neither committed nor expired, hidden ones included.
    pub fn len(&mut self, now: Duration) -> usize {
        self.settle(now);
        self.messages.len()
    }

    pub fn is_empty(&mut self, now: Duration) -> bool {
        self.len(now) == 0
    }

    /// The age of the oldest message that [`Self::len`] counts.
    pub fn oldest_age(&mut self, now: Duration) -> Option<Duration> {
        self.settle(now);
        self.messages.first_key_value().map(|(_, oldest)| now.saturating_sub(oldest.enqueued_at))
    }

    /// When the next hidden message comes back, if any is hidden.
    pub fn next_return(&self) -> Option<Duration> {
        self.hidden.first().map(|(at, _)| *at)
    }

    /// Lets leases lapse and messages expire.
    fn settle(&mut self, now: Duration) {
        while let Some(&(at, number)) = self.hidden.first().filter(|(at, _)| *at <= now) {
            self.hidden.remove(&(at, number));
            self.visible.insert(number);
        }
        while let Some((&number, oldest)) = self.messages.first_key_value() {
            if now < oldest.enqueued_at.saturating_add(self.rules.retention) {
                break;
            }
            self.remove(number);
        }
    }

    /// Draws `n` of the oldest visible messages, shuffled. Like the real queue it roughly, but never strictly, keeps
    /// the order in which the messages came.
    fn pick(&mut self, n: usize) -> Vec<u64> {
        let mut near: Vec<u64> = self.visible.iter().copied().take(DISORDER).collect();
        let n = n.min(near.len());
        for place in 0..n {
            let drawn = self.rng.random_range(place..near.len());
            near.swap(place, drawn);
        }
        near.truncate(n);
        near
    }

    fn lease(&mut self, now: Duration, number: u64) -> Option<Received> {
        let message = self.messages.get_mut(&number)?;
        message.receive_count = message.receive_count.saturating_add(1);
        message.visible_at = now.saturating_add(self.rules.visibility);
        self.visible.remove(&number);
        self.hidden.insert((message.visible_at, number));

        let receipt = Receipt { message: number, receive: message.receive_count };
        let created_at = self.epoch.saturating_add(now).unwrap_or(self.epoch);
        let handle = self.issuer.mint(receipt, message.id, &message.item, created_at, &mut self.rng);
        let item = message.item.clone();
        Some(Received { message: message.id, receive_count: message.receive_count, handle, item })
    }

    fn remove(&mut self, number: u64) {
        if let Some(message) = self.messages.remove(&number) {
            self.visible.remove(&number);
            self.hidden.remove(&(message.visible_at, number));
        }
    }
}

/// A receive draws from this many of the oldest visible messages.
const DISORDER: usize = 100;

#[derive(Debug)]
struct Message {
    id: MessageId,
    item: Item,
    enqueued_at: Duration,
    receive_count: u32,
    /// When it can be received; in the past while it is visible.
    visible_at: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use serde_json::json;

    const T0: Duration = Duration::ZERO;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn queue(seed: u64) -> Queue {
        let epoch = "2026-03-02T20:00:00Z".parse().unwrap();
        Queue::new(Rules::default(), Issuer::new("mystore", "key"), epoch, StdRng::seed_from_u64(seed))
    }

    fn queue_of(n: usize) -> Queue {
        let mut queue = queue(1);
        for order in 0..n {
            queue.enqueue(T0, Item::new(&json!({"orderId": format!("{order}-01"), "state": "handling"})));
        }
        queue
    }

    fn drain(queue: &mut Queue, now: Duration) -> Vec<Received> {
        let mut all = Vec::new();
        loop {
            let batch = queue.receive(now, 10);
            if batch.is_empty() {
                return all;
            }
            all.extend(batch);
        }
    }

    #[test]
    fn a_receive_answers_at_most_ten_and_each_message_once_within_its_lease() {
        let mut queue = queue_of(25);
        assert_eq!(queue.receive(T0, 3).len(), 3);
        assert_eq!(queue.receive(T0, 99).len(), 10);
        assert_eq!(queue.receive(T0, 10).len(), 10);
        assert_eq!(queue.receive(T0, 10).len(), 2);
        assert_eq!(queue.receive(secs(29), 10), []);
        assert_eq!(queue.len(secs(29)), 25);
    }

    #[test]
    fn an_uncommitted_message_comes_back_with_a_new_handle_and_the_same_id() {
        let mut queue = queue_of(1);
        let first = queue.receive(T0, 10).remove(0);
        assert_eq!(queue.next_return(), Some(secs(30)));
        let second = queue.receive(secs(30), 10).remove(0);
        assert_eq!(first.message, second.message);
        assert_eq!(first.item, second.item);
        assert_ne!(first.handle, second.handle);
        assert_eq!((first.receive_count, second.receive_count), (1, 2));
    }

    #[test]
    fn a_commit_by_the_latest_handle_deletes_even_after_the_lease() {
        let mut queue = queue_of(1);
        let received = queue.receive(T0, 10).remove(0);
        assert_eq!(queue.commit(secs(100), &received.handle), Fate::Deleted(received.message));
        assert!(queue.is_empty(secs(100)));
        assert_eq!(queue.commit(secs(100), &received.handle), Fate::AlreadyGone);
        assert_eq!(queue.receive(secs(100), 10), []);
    }

    #[test]
    fn a_commit_by_an_older_handle_deletes_nothing() {
        let mut queue = queue_of(1);
        let first = queue.receive(T0, 10).remove(0);
        let second = queue.receive(secs(30), 10).remove(0);
        assert_eq!(queue.commit(secs(31), &first.handle), Fate::Stale(first.message));
        assert_eq!(queue.len(secs(31)), 1);
        assert_eq!(queue.commit(secs(31), &second.handle), Fate::Deleted(first.message));
    }

    #[test]
    fn a_message_expires_at_its_retention_even_in_flight() {
        let mut queue = queue_of(1);
        let retention = Rules::default().retention;
        queue.enqueue(secs(10), Item::new(&json!({})));
        let first = queue.receive(retention - secs(1), 10);
        assert_eq!(first.len(), 2);
        assert_eq!(queue.oldest_age(retention - secs(1)), Some(retention - secs(1)));
        assert_eq!(queue.len(retention), 1);
        assert_eq!(queue.len(retention + secs(10)), 0);
        assert_eq!(queue.oldest_age(retention + secs(10)), None);
        assert_eq!(queue.commit(retention + secs(10), &first[0].handle), Fate::AlreadyGone);
        assert_eq!(queue.receive(retention + secs(60), 10), []);
    }

    #[test]
    fn foreign_and_garbled_handles_are_told_apart_and_touch_nothing() {
        let mut queue = queue_of(1);
        let epoch = "2026-03-02T20:00:00Z".parse().unwrap();
        let other_key = Issuer::new("mystore", "other");
        let mut other = Queue::new(Rules::default(), other_key, epoch, StdRng::seed_from_u64(1));
        other.enqueue(T0, Item::new(&json!({})));
        let foreign = other.receive(T0, 1).remove(0);
        assert_eq!(queue.commit(T0, &foreign.handle), Fate::Foreign);
        assert_eq!(queue.commit(T0, "AQEB"), Fate::Garbled);
        assert_eq!(queue.len(T0), 1);
    }

    #[test]
    fn the_order_is_shuffled_and_the_same_for_the_same_seed() {
        let order = |mut queue: Queue| -> Vec<String> {
            (0..50).for_each(|n| {
                queue.enqueue(T0, Item::new(&json!({"orderId": n})));
            });
            drain(&mut queue, T0).into_iter().map(|received| received.item.as_json().to_owned()).collect()
        };
        let first = order(queue(7));
        assert_eq!(first.len(), 50);
        assert_eq!(first, order(queue(7)));
        assert_ne!(first, order(queue(8)));
        let mut sorted = first.clone();
        sorted.sort();
        assert_ne!(first, sorted);
    }

    #[test]
    fn the_same_calls_give_the_same_handles() {
        let run = || {
            let mut queue = queue_of(20);
            let mut all = drain(&mut queue, T0);
            all.extend(drain(&mut queue, secs(30)));
            all
        };
        assert_eq!(run(), run());
    }
}
