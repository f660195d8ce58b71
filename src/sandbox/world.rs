//! All that the sandbox knows: who may come in, each app key's queue, and the ledger. A value without clock or IO.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use sha2::{Digest, Sha256};

use super::Options;
use super::handle::Issuer;
use super::ledger::{Bookkeeper, Ledger};
use super::life::Life;
use super::queue::{Fate, Queue, Received, Rules};

/// More app keys than this are turned away.
const MAX_FEEDS: usize = 10_000;
/// A queue this full gets no made-up events until some of it is committed.
const MAX_WAITING: usize = 2_000_000;

/// See the module's description. Each call says what time it is, counted from the world's start; time never goes
/// back.
#[derive(Debug)]
pub(super) struct World {
    options: Options,
    epoch: Timestamp,
    feeds: BTreeMap<String, Feed>,
    books: Bookkeeper,
}

/// Why a caller is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Unauthorized,
    TooManyFeeds,
}

#[derive(Debug)]
struct Feed {
    queue: Queue,
    life: Life,
    /// When the app key was first seen; its events are made from then on.
    since: Duration,
    /// How many were made by the rate, beside those that waited at the start.
    made: u64,
}

impl World {
    /// `epoch` is the wall time of the world's start.
    pub(super) fn new(options: Options, epoch: Timestamp) -> Self {
        Self { options, epoch, feeds: BTreeMap::new(), books: Bookkeeper::default() }
    }

    /// Lets a caller in and, at its first contact, sets up its queue.
    pub(super) fn admit(&mut self, now: Duration, app_key: &str, app_token: &str) -> Result<(), Refused> {
        let known = |key: &super::KeyPair| key.app_key == app_key && key.app_token.expose() == app_token;
        let welcome = self.options.keys.is_empty() || self.options.keys.iter().any(known);
        if !welcome || app_key.is_empty() || app_token.is_empty() {
            return Err(Refused::Unauthorized);
        }
        if !self.feeds.contains_key(app_key) {
            if self.feeds.len() == MAX_FEEDS {
                return Err(Refused::TooManyFeeds);
            }
            self.open_feed(now, app_key);
        }
        Ok(())
    }

    pub(super) fn receive(&mut self, now: Duration, app_key: &str, maxlot: usize) -> Vec<Received> {
        self.make_events(now);
        let Some(feed) = self.feeds.get_mut(app_key) else { return Vec::new() };
        let batch = feed.queue.receive(now, maxlot);
        batch.iter().for_each(|received| self.books.received(received.message));
        batch
    }

    pub(super) fn commit(&mut self, now: Duration, app_key: &str, handle: &str) -> Fate {
        let Some(feed) = self.feeds.get_mut(app_key) else { return Fate::Foreign };
        let fate = feed.queue.commit(now, handle);
        if let Fate::Deleted(message) = fate {
            self.books.committed(now, message);
        }
        fate
    }

    /// How many events a feed holds, and the age of its oldest.
    pub(super) fn backlog(&mut self, now: Duration, app_key: &str) -> (usize, Duration) {
        self.make_events(now);
        self.feeds.get_mut(app_key).map_or((0, Duration::ZERO), |feed| {
            (feed.queue.len(now), feed.queue.oldest_age(now).unwrap_or_default())
        })
    }

    pub(super) fn rules(&self) -> Rules {
        Rules { visibility: self.options.visibility, ..Rules::default() }
    }

    pub(super) fn ledger(&mut self, now: Duration) -> Ledger {
        self.make_events(now);
        let waiting: usize = self.feeds.values_mut().map(|feed| feed.queue.len(now)).sum();
        self.books.ledger(waiting as u64)
    }

    fn open_feed(&mut self, now: Duration, app_key: &str) {
        let issuer = Issuer::new(account_of(app_key), app_key);
        let queue = Queue::new(self.rules(), issuer, self.epoch, self.rng("queue", app_key));
        let life = Life::new(self.rng("life", app_key));
        let mut feed = Feed { queue, life, since: now, made: 0 };
        for waiting in (0..self.options.count).rev() {
            // The past is laid out so that the newest event happened just now.
            let age = Duration::from_secs(2).saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
            let at = self.wall(now).saturating_sub(age).unwrap_or(self.epoch);
            feed.make(now, at, app_key, &mut self.books);
        }
        self.feeds.insert(app_key.to_owned(), feed);
    }

    /// Catches up with the events that the rate asks for until `now`.
    fn make_events(&mut self, now: Duration) {
        let rate = self.options.rate;
        if rate <= 0.0 {
            return;
        }
        for (app_key, feed) in &mut self.feeds {
            while feed.queue.len(now) < MAX_WAITING {
                let due = feed.since + Duration::from_secs_f64((feed.made + 1) as f64 / rate);
                if now < due {
                    break;
                }
                feed.made += 1;
                let at = self.epoch.saturating_add(due).unwrap_or(self.epoch);
                feed.make(now, at, app_key, &mut self.books);
            }
        }
    }

    fn wall(&self, now: Duration) -> Timestamp {
        self.epoch.saturating_add(now).unwrap_or(self.epoch)
    }

    /// A generator for one purpose, so that the draws of one never shift those of another.
    fn rng(&self, purpose: &str, app_key: &str) -> StdRng {
        let seed = format!("{}\n{purpose}\n{app_key}", self.options.seed);
        StdRng::from_seed(Sha256::digest(seed.as_bytes()).into())
    }
}

impl Feed {
    fn make(&mut self, now: Duration, at: Timestamp, app_key: &str, books: &mut Bookkeeper) {
        let item = self.life.next(at);
        let message = self.queue.enqueue(now, item.clone());
        books.enqueued(now, app_key, message, &item);
    }
}

/// `mystore` of `vtexappkey-mystore-ABCDEF`; a key of another form is its own account.
fn account_of(app_key: &str) -> &str {
    app_key
        .strip_prefix("vtexappkey-")
        .and_then(|rest| rest.rsplit_once('-'))
        .map_or(app_key, |(account, _)| account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const KEY: &str = "vtexappkey-mystore-ABCDEF";

    fn world(options: Options) -> World {
        World::new(options, "2026-03-02T20:00:00Z".parse().unwrap())
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_rate_makes_its_events_as_time_passes_however_often_one_looks() {
        let mut world = world(Options { rate: 2.5, count: 3, ..Options::default() });
        world.admit(secs(100), KEY, "token").unwrap();
        assert_eq!(world.ledger(secs(100)).enqueued, 3);
        for second in 100..=110 {
            world.ledger(secs(second));
        }
        assert_eq!(world.ledger(secs(110)).enqueued, 3 + 25);
    }

    #[test]
    fn two_app_keys_share_nothing() {
        let mut world = world(Options { count: 5, ..Options::default() });
        world.admit(secs(0), KEY, "token").unwrap();
        world.admit(secs(0), "other", "token").unwrap();
        let mine = world.receive(secs(0), KEY, 10);
        assert_eq!(mine.len(), 5);
        assert_eq!(world.commit(secs(0), "other", &mine[0].handle), Fate::Foreign);
        assert_eq!(world.receive(secs(0), "other", 10).len(), 5);
    }

    #[test]
    fn only_the_given_keys_are_welcome_once_any_is_given() {
        let key = super::super::KeyPair { app_key: KEY.into(), app_token: Secret::new("token".into()) };
        let mut world = world(Options { keys: vec![key], ..Options::default() });
        assert_eq!(world.admit(secs(0), KEY, "token"), Ok(()));
        assert_eq!(world.admit(secs(0), KEY, "other"), Err(Refused::Unauthorized));
        assert_eq!(world.admit(secs(0), "other", "token"), Err(Refused::Unauthorized));
    }

    #[test]
    fn the_ledger_follows_an_event_to_its_commit() {
        let mut world = world(Options { count: 2, ..Options::default() });
        world.admit(secs(0), KEY, "token").unwrap();
        world.receive(secs(1), KEY, 10);
        let batch = world.receive(secs(31), KEY, 10);
        world.commit(secs(32), KEY, &batch[0].handle);
        let ledger = world.ledger(secs(33));
        assert_eq!((ledger.enqueued, ledger.received, ledger.committed, ledger.waiting), (2, 4, 1, 1));
        let committed: Vec<_> = ledger.committed_events().collect();
        assert_eq!(committed.len(), 1);
        assert_eq!(committed[0].message_id, batch[0].message.to_string());
        assert_eq!(committed[0].event_id, batch[0].item.value()["eventId"]);
        assert_eq!(committed[0].order_id, batch[0].item.value()["orderId"]);
        assert_eq!((committed[0].received, committed[0].committed_at_ms), (2, Some(32_000)));
    }

    #[test]
    fn the_same_seed_repeats_the_same_run() {
        let run = |seed| {
            let mut world = world(Options { seed, count: 20, rate: 5.0, ..Options::default() });
            world.admit(secs(0), KEY, "token").unwrap();
            let mut all = world.receive(secs(10), KEY, 10);
            all.extend(world.receive(secs(50), KEY, 10));
            all
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
