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
pub use rules::{Oddities, Rules, StaleHandle};

mod rules;

/// The most items that one receive answers.
pub const MAX_BATCH: usize = 10;

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
    /// The feed has forgotten the message.
    Deleted(MessageId),
    /// The commit counts as done, but the message stays: the handle is an older one, or the queue was odd.
    Kept(MessageId),
    /// The handle is an older one, and such are refused.
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

    /// Changes how messages are treated from now on; leases that run keep their end.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Forgets all messages. Handles made so far stay what they are: of messages that are gone.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.visible.clear();
        self.hidden.clear();
    }

    /// Answers up to `maxlot` (at most [`MAX_BATCH`]) visible messages in no particular order and hides them.
    pub fn receive(&mut self, now: Duration, maxlot: usize) -> Vec<Received> {
        self.settle(now);
        let oddities = self.rules.oddities;
        let mut n = maxlot.min(MAX_BATCH).min(self.visible.len());
        if n == 0 || self.happens(oddities.empty_read) {
            return Vec::new();
        }
        if self.happens(oddities.short_read) {
            n = self.rng.random_range(1..=n);
        }
        self.pick(n).into_iter().filter_map(|number| self.lease(now, number)).collect()
    }

    /// What [`Self::commit`] would do with a handle, oddities apart.
    pub fn judge(&mut self, now: Duration, handle: &str) -> Fate {
        self.settle(now);
        self.find(handle).map_or_else(|fate| fate, |(_, id)| Fate::Deleted(id))
    }

    /// Deletes the message of a handle if that is the handle of its latest receive, whether or not the message is
    /// still hidden.
    pub fn commit(&mut self, now: Duration, handle: &str) -> Fate {
        self.settle(now);
        let (number, id) = match self.find(handle) {
            Ok(found) => found,
            Err(fate) => return fate,
        };
        let oddities = self.rules.oddities;
        if self.happens(oddities.kept_despite_commit) {
            return Fate::Kept(id);
        }
        if self.happens(oddities.back_after_commit) {
            self.hide(now, number);
        } else {
            self.remove(number);
        }
        Fate::Deleted(id)
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

    /// The message that a handle deletes, or why it deletes none.
    fn find(&self, handle: &str) -> Result<(u64, MessageId), Fate> {
        let receipt = self.issuer.read(handle).map_err(|unreadable| match unreadable {
            Unreadable::Foreign => Fate::Foreign,
            Unreadable::Garbled => Fate::Garbled,
        })?;
        let message = self.messages.get(&receipt.message).ok_or(Fate::AlreadyGone)?;
        if message.receive_count == receipt.receive {
            return Ok((receipt.message, message.id));
        }
        match self.rules.stale_handle {
            StaleHandle::Ignored => Err(Fate::Kept(message.id)),
            StaleHandle::Deleted => Ok((receipt.message, message.id)),
            StaleHandle::Refused => Err(Fate::Stale(message.id)),
        }
    }

    /// Draws whether something of this probability happens; nothing is drawn for the impossible.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random::<f64>() < probability
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
        if !self.happens(self.rules.oddities.delivered_twice) {
            self.hide(now, number);
        }
        let message = self.messages.get_mut(&number)?;
        message.receive_count = message.receive_count.saturating_add(1);

        let receipt = Receipt { message: number, receive: message.receive_count };
        let created_at = self.epoch.saturating_add(now).unwrap_or(self.epoch);
        let handle = self.issuer.mint(receipt, message.id, &message.item, created_at, &mut self.rng);
        let item = message.item.clone();
        Some(Received { message: message.id, receive_count: message.receive_count, handle, item })
    }

    /// Hides a message for the visibility timeout from `now`.
    fn hide(&mut self, now: Duration, number: u64) {
        if let Some(message) = self.messages.get_mut(&number) {
            self.visible.remove(&number);
            self.hidden.remove(&(message.visible_at, number));
            message.visible_at = now.saturating_add(self.rules.visibility);
            self.hidden.insert((message.visible_at, number));
        }
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
    use crate::sandbox::handle::HandleForm;
    use rand::SeedableRng;
    use serde_json::json;

    const T0: Duration = Duration::ZERO;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn queue(seed: u64) -> Queue {
        let epoch = "2026-03-02T20:00:00Z".parse().unwrap();
        Queue::new(
            Rules::default(),
            Issuer::new("mystore", "key", HandleForm::Jwt),
            epoch,
            StdRng::seed_from_u64(seed),
        )
    }

    fn queue_of(n: usize) -> Queue {
        let mut queue = queue(1);
        for order in 0..n {
            queue.enqueue(T0, Item::new(&json!({"orderId": format!("{order}-01"), "state": "handling"})));
        }
        queue
    }

    fn odd(oddities: Oddities) -> Rules {
        Rules { oddities, ..Rules::default() }
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
        assert_eq!(queue.commit(secs(31), &first.handle), Fate::Kept(first.message));
        assert_eq!(queue.len(secs(31)), 1);
        assert_eq!(queue.commit(secs(31), &second.handle), Fate::Deleted(first.message));
    }

    #[test]
    fn a_stale_handle_deletes_or_is_refused_where_the_rules_say_so() {
        for stale_handle in [StaleHandle::Ignored, StaleHandle::Deleted, StaleHandle::Refused] {
            let mut queue = queue_of(1);
            queue.set_rules(Rules { stale_handle, ..Rules::default() });
            let first = queue.receive(T0, 10).remove(0);
            queue.receive(secs(30), 10);
            let (fate, left) = match stale_handle {
                StaleHandle::Ignored => (Fate::Kept(first.message), 1),
                StaleHandle::Deleted => (Fate::Deleted(first.message), 0),
                StaleHandle::Refused => (Fate::Stale(first.message), 1),
            };
            assert_eq!(queue.judge(secs(31), &first.handle), fate);
            assert_eq!(queue.commit(secs(31), &first.handle), fate);
            assert_eq!(queue.len(secs(31)), left, "{stale_handle:?}");
        }
    }

    #[test]
    fn judging_a_handle_deletes_nothing() {
        let mut queue = queue_of(1);
        let received = queue.receive(T0, 10).remove(0);
        assert_eq!(queue.judge(T0, &received.handle), Fate::Deleted(received.message));
        assert_eq!(queue.commit(T0, &received.handle), Fate::Deleted(received.message));
    }

    #[test]
    fn reads_are_short_or_empty_at_the_probability_asked_for() {
        let mut queue = queue_of(100);
        queue.set_rules(odd(Oddities { empty_read: 0.5, ..Oddities::default() }));
        let reads: Vec<usize> = (0..1_000).map(|n| queue.receive(secs(30 * n), 10).len()).collect();
        let empty = reads.iter().filter(|&&n| n == 0).count();
        assert!((450..550).contains(&empty), "{empty}");
        assert!(reads.iter().all(|&n| n == 0 || n == 10));

        queue.set_rules(odd(Oddities { short_read: 1.0, ..Oddities::default() }));
        let mut sizes: Vec<usize> = (1_000..1_200).map(|n| queue.receive(secs(30 * n), 10).len()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn a_message_may_be_delivered_twice_within_its_lease() {
        let mut queue = queue_of(1);
        queue.set_rules(odd(Oddities { delivered_twice: 1.0, ..Oddities::default() }));
        let first = queue.receive(T0, 10).remove(0);
        queue.set_rules(Rules::default());
        let second = queue.receive(T0, 10).remove(0);
        assert_eq!(first.message, second.message);
        assert_eq!(queue.receive(T0, 10), []);
        assert_eq!(queue.commit(T0, &first.handle), Fate::Kept(first.message));
        assert_eq!(queue.commit(T0, &second.handle), Fate::Deleted(first.message));
        assert!(queue.is_empty(T0));
    }

    #[test]
    fn a_committed_message_may_come_back_and_can_be_committed_again() {
        let mut queue = queue_of(1);
        queue.set_rules(odd(Oddities { back_after_commit: 1.0, ..Oddities::default() }));
        let first = queue.receive(T0, 10).remove(0);
        assert_eq!(queue.commit(secs(1), &first.handle), Fate::Deleted(first.message));
        assert_eq!(queue.receive(secs(30), 10), []);
        queue.set_rules(Rules::default());
        let second = queue.receive(secs(31), 10).remove(0);
        assert_eq!(queue.commit(secs(31), &second.handle), Fate::Deleted(first.message));
        assert!(queue.is_empty(secs(31)));
    }

    #[test]
    fn a_commit_may_succeed_and_delete_nothing() {
        let mut queue = queue_of(1);
        queue.set_rules(odd(Oddities { kept_despite_commit: 1.0, ..Oddities::default() }));
        let first = queue.receive(T0, 10).remove(0);
        assert_eq!(queue.commit(T0, &first.handle), Fate::Kept(first.message));
        assert_eq!(queue.receive(secs(30), 10).len(), 1);
    }

    #[test]
    fn handles_of_a_cleared_queue_are_of_messages_that_are_gone() {
        let mut queue = queue_of(1);
        let old = queue.receive(T0, 10).remove(0);
        queue.clear();
        queue.enqueue(T0, Item::new(&json!({})));
        queue.receive(T0, 10);
        assert_eq!(queue.commit(T0, &old.handle), Fate::AlreadyGone);
        assert_eq!(queue.len(T0), 1);
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
        let other_key = Issuer::new("mystore", "other", HandleForm::Jwt);
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
