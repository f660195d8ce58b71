//! All that the sandbox knows: who may come in, the accounts with their feeds and orders, and the ledger. A value
//! without clock or IO.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::account::{Account, account_of, signed};
use super::faults::{Faults, Lasting};
use super::feed::{Feed, FeedRefusal};
use super::feed_config::{FeedConfig, Filter};
use super::handle::Issuer;
use super::items::Item;
use super::ledger::{Bookkeeper, Ledger};
use super::life::{Habits, Life};
use super::queue::{Queue, Received, Rules};
use super::route::Operation;
use super::throttle::{RetryAfter, Throttle, Verdict};
use super::{KeyPair, Options};

/// More app keys than this are turned away.
const MAX_FEEDS: usize = 10_000;
const MAX_RETIRED: usize = 10_000;

/// See the module's description. Each call says what time it is, counted from `epoch`; time never goes back.
#[derive(Debug)]
pub(super) struct World {
    pub(super) options: Options,
    epoch: Timestamp,
    accounts: BTreeMap<String, Account>,
    pub(super) books: Bookkeeper,
    pub(super) faults: Faults,
    /// App key and digest of a token that is not welcome, and when it is welcome again.
    retired: BTreeMap<(String, [u8; 32]), Duration>,
}

/// Why a caller is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Unauthorized,
    Forbidden,
    TooManyFeeds,
}

impl World {
    /// `epoch` is the wall time at which `now` is zero.
    pub(super) fn new(options: Options, epoch: Timestamp) -> Self {
        let faults = Faults::new(&options.settings.faults, options.seed);
        let (accounts, books, retired) = (BTreeMap::new(), Bookkeeper::default(), BTreeMap::new());
        Self { options, epoch, accounts, books, faults, retired }
    }

    /// Lets a caller in, if it may.
    pub(super) fn admit(&mut self, now: Duration, app_key: &str, app_token: &str) -> Result<(), Refused> {
        let known = |key: &KeyPair| key.app_key == app_key && key.app_token.expose() == app_token;
        let welcome = self.options.keys.is_empty() || self.options.keys.iter().any(known);
        let retired = self.retired.get(&token_of(app_key, app_token)).is_some_and(|until| now < *until);
        if !welcome || retired || app_key.is_empty() || app_token.is_empty() {
            return Err(Refused::Unauthorized);
        }
        if self.options.settings.feed.forbidden_keys.iter().any(|key| key == app_key) {
            return Err(Refused::Forbidden);
        }
        self.meet(now, app_key)
    }

    /// Puts items of any shape into the queue of an app key, whatever its filter.
    pub(super) fn push(&mut self, now: Duration, app_key: &str, items: &[Value]) -> Result<(), FeedRefusal> {
        self.meet(now, app_key).map_err(|_| FeedRefusal::Unconfigured)?;
        let (feed, books) = self.feed(app_key).ok_or(FeedRefusal::Unconfigured)?;
        items.iter().try_for_each(|item| feed.push(now, Item::new(item), books))
    }

    pub(super) fn receive(
        &mut self,
        now: Duration,
        app_key: &str,
        maxlot: usize,
    ) -> Result<Vec<Received>, FeedRefusal> {
        let (feed, books) = self.feed(app_key).ok_or(FeedRefusal::Unconfigured)?;
        feed.receive(now, maxlot, books)
    }

    pub(super) fn commit(
        &mut self,
        now: Duration,
        app_key: &str,
        handles: &[String],
    ) -> Result<(), FeedRefusal> {
        let (feed, books) = self.feed(app_key).ok_or(FeedRefusal::Unconfigured)?;
        feed.commit(now, handles, books)
    }

    /// The feed of an app key that was let in, and the books that it writes.
    pub(super) fn feed(&mut self, app_key: &str) -> Option<(&mut Feed, &mut Bookkeeper)> {
        let account = self.accounts.get_mut(account_of(app_key))?;
        Some((account.feeds.get_mut(app_key)?, &mut self.books))
    }

    /// The account of an app key that was let in.
    pub(super) fn account(&self, app_key: &str) -> Option<&Account> {
        self.accounts.get(account_of(app_key))
    }

    /// Whether the order was ready for handling; its handling has started then.
    pub(super) fn start_handling(&mut self, now: Duration, app_key: &str, order_id: &str) -> bool {
        let account = self.accounts.get_mut(account_of(app_key));
        account.is_some_and(|account| account.start_handling(now, order_id, &mut self.books))
    }

    /// Notes a request, and whether its account's rate limit lets it pass.
    pub(super) fn throttle(&mut self, now: Duration, app_key: &str, operation: Operation) -> Verdict {
        self.books.requested(operation);
        let name = account_of(app_key);
        let Some(account) = self.accounts.get_mut(name) else { return Verdict::Pass(Vec::new()) };
        if let Some(after) = account.throttle.in_penalty(now) {
            self.books.in_penalty(name, operation, after);
        }
        account.throttle.ask(now, self.epoch)
    }

    /// Refuses every request of an account for this long; the verdict on the one at hand.
    pub(super) fn throttle_for(
        &mut self,
        now: Duration,
        app_key: &str,
        lasting: Duration,
        retry_after: RetryAfter,
    ) -> Verdict {
        let Some(account) = self.accounts.get_mut(account_of(app_key)) else {
            return Verdict::Pass(Vec::new());
        };
        account.throttle.refuse(now, lasting, retry_after);
        account.throttle.ask(now, self.epoch)
    }

    pub(super) fn answered_429(&mut self, now: Duration, app_key: &str, retry_after: Option<&str>) {
        self.books.throttled();
        if let Some(account) = self.accounts.get_mut(account_of(app_key)) {
            account.throttle.answered_429(now, retry_after.and_then(|text| text.parse().ok()));
        }
    }

    /// A token is not welcome any more.
    pub(super) fn retire_token(&mut self, now: Duration, app_key: &str, app_token: &str, lasting: Lasting) {
        if self.retired.len() < MAX_RETIRED {
            self.retired.insert(token_of(app_key, app_token), end_of(now, lasting));
        }
    }

    /// A feed's configuration is gone; unless that is for good, what waits comes back with it.
    pub(super) fn remove_config(&mut self, now: Duration, app_key: &str, lasting: Lasting) {
        let Some((feed, _)) = self.feed(app_key) else { return };
        match lasting {
            Lasting::ForGood => feed.forget(),
            Lasting::For(_) => feed.hide_until(end_of(now, lasting)),
        }
    }

    /// The ledger, its list of events included.
    pub(super) fn ledger(&mut self, now: Duration) -> Ledger {
        let counts = self.counts(now);
        Ledger { events: self.books.events().to_vec(), ..counts }
    }

    /// The ledger with an empty list of events.
    pub(super) fn counts(&mut self, now: Duration) -> Ledger {
        self.catch_up(now);
        let feeds = self.accounts.values_mut().flat_map(|account| account.feeds.values_mut());
        let waiting: usize = feeds.map(|feed| feed.waiting(now)).sum();
        self.books.counts(waiting as u64, self.faults.fired())
    }

    /// Lets all happen that is due and, at the first contact of an app key, sets up its feed.
    fn meet(&mut self, now: Duration, app_key: &str) -> Result<(), Refused> {
        self.catch_up(now);
        if self.feed(app_key).is_none() {
            if self.accounts.values().map(|account| account.feeds.len()).sum::<usize>() >= MAX_FEEDS {
                return Err(Refused::TooManyFeeds);
            }
            self.open_feed(now, app_key);
        }
        Ok(())
    }

    fn catch_up(&mut self, now: Duration) {
        self.accounts.values_mut().for_each(|account| account.catch_up(now, &mut self.books));
    }

    fn open_feed(&mut self, now: Duration, app_key: &str) {
        let name = account_of(app_key);
        if !self.accounts.contains_key(name) {
            let life = Life::new(self.habits(), signed(now), self.rng("life", name));
            self.accounts.insert(
                name.to_owned(),
                Account::new(life, Throttle::new(self.options.settings.rate_limit.clone()), self.epoch),
            );
        }
        let settings = &self.options.settings;
        let issuer = Issuer::new(name, app_key, settings.feed.handle_form);
        let queue = Queue::new(Rules::default(), issuer, self.epoch, self.rng("queue", app_key));
        let (behaviour, items) = (settings.feed.clone(), settings.items.clone());
        let mut feed = Feed::new(app_key, behaviour, items, queue, self.rng("items", app_key));
        if !self.options.unconfigured {
            feed.configure(now, self.first_config());
        }
        if let Some(account) = self.accounts.get_mut(name) {
            account.open_feed(now, app_key, feed, self.options.count, &mut self.books);
        }
    }

    /// What a feed is configured to at first contact.
    fn first_config(&self) -> FeedConfig {
        let everything = FeedConfig::of_everything(self.options.visibility);
        if self.options.settings.items.from_orders {
            let filter = Filter::Orders { expression: "true".to_owned(), disable_single_fire: true };
            return FeedConfig { filter, ..everything };
        }
        everything
    }

    fn habits(&self) -> Habits {
        let Options { count, rate, settings, .. } = &self.options;
        Habits {
            rate: *rate,
            past: *count,
            repeated_state: settings.items.repeated_state,
            odd_order_ids: settings.items.odd_order_id,
            wait_for_start_handling: settings.orders.wait_for_start_handling,
        }
    }

    /// A generator for one purpose, so that the draws of one never shift those of another.
    pub(super) fn rng(&self, purpose: &str, name: &str) -> StdRng {
        let seed = format!("{}\n{purpose}\n{name}", self.options.seed);
        StdRng::from_seed(Sha256::digest(seed.as_bytes()).into())
    }
}

fn token_of(app_key: &str, app_token: &str) -> (String, [u8; 32]) {
    (app_key.to_owned(), Sha256::digest(app_token.as_bytes()).into())
}

fn end_of(now: Duration, lasting: Lasting) -> Duration {
    match lasting {
        Lasting::ForGood => Duration::MAX,
        Lasting::For(length) => now.saturating_add(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;
    use crate::sandbox::settings::Settings;

    const KEY: &str = "vtexappkey-mystore-ABCDEF";

    fn world(options: Options) -> World {
        let mut world = World::new(options, "2026-03-02T20:00:00Z".parse().unwrap());
        world.admit(secs(0), KEY, "token").unwrap();
        world
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    /// All that waits, received and committed at `now`.
    fn drain(world: &mut World, now: Duration, app_key: &str) -> Vec<Received> {
        let mut all = Vec::new();
        loop {
            let batch = world.receive(now, app_key, 10).unwrap();
            if batch.is_empty() {
                return all;
            }
            let handles: Vec<String> = batch.iter().map(|received| received.handle.clone()).collect();
            world.commit(now, app_key, &handles).unwrap();
            all.extend(batch);
        }
    }

    #[test]
    fn a_feed_gets_the_events_that_wait_and_then_those_of_the_rate() {
        let mut world = world(Options { rate: 5.0, count: 30, ..Options::default() });
        assert_eq!(world.ledger(secs(0)).enqueued, 30);
        for second in 1..=600 {
            world.ledger(secs(second));
        }
        let made = world.ledger(secs(600)).enqueued - 30;
        assert!((2_100..3_900).contains(&made), "{made}");
    }

    #[test]
    fn two_keys_of_an_account_see_the_same_events_and_share_nothing() {
        let mut world = world(Options { count: 25, ..Options::default() });
        let other = "vtexappkey-mystore-OTHERS";
        world.admit(secs(0), other, "token").unwrap();
        let mine = world.receive(secs(0), KEY, 1).unwrap();
        let refused = world.commit(secs(0), other, &[mine[0].handle.clone()]);
        assert_eq!(refused, Err(FeedRefusal::ForeignHandle));

        world.commit(secs(0), KEY, &[mine[0].handle.clone()]).unwrap();
        let mut mine: Vec<String> =
            mine.into_iter().chain(drain(&mut world, secs(0), KEY)).map(json).collect();
        let mut theirs: Vec<String> = drain(&mut world, secs(0), other).into_iter().map(json).collect();
        mine.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(mine, theirs);
        assert_eq!(mine.len(), 25);
    }

    fn json(received: Received) -> String {
        received.item.as_json().to_owned()
    }

    #[test]
    fn only_the_given_keys_are_welcome_once_any_is_given() {
        let key = KeyPair { app_key: KEY.into(), app_token: Secret::new("token".into()) };
        let mut world = world(Options { keys: vec![key], ..Options::default() });
        assert_eq!(world.admit(secs(0), KEY, "token"), Ok(()));
        assert_eq!(world.admit(secs(0), KEY, "other"), Err(Refused::Unauthorized));
        assert_eq!(world.admit(secs(0), "other", "token"), Err(Refused::Unauthorized));
    }

    #[test]
    fn the_ledger_follows_an_event_to_its_commit() {
        let mut world = world(Options { count: 2, ..Options::default() });
        world.receive(secs(1), KEY, 10).unwrap();
        let batch = world.receive(secs(31), KEY, 10).unwrap();
        world.commit(secs(32), KEY, &[batch[0].handle.clone()]).unwrap();
        let ledger = world.ledger(secs(33));
        assert_eq!((ledger.enqueued, ledger.received, ledger.committed, ledger.waiting), (2, 4, 1, 1));
        let committed: Vec<_> = ledger.committed_events().collect();
        assert_eq!(committed.len(), 1);
        assert_eq!(committed[0].message_id, batch[0].message.to_string());
        assert_eq!(committed[0].event_id, batch[0].item.value()["eventId"]);
        assert_eq!(committed[0].order_id, batch[0].item.value()["orderId"]);
        assert_eq!(committed[0].received, 2);
        assert_eq!(committed[0].last_received_at_ms, Some(31_000));
        assert_eq!(committed[0].committed_at_ms, Some(32_000));
    }

    #[test]
    fn the_same_seed_repeats_the_same_run() {
        let run = |seed| {
            let mut world = world(Options { seed, count: 20, rate: 5.0, ..Options::default() });
            let mut all = world.receive(secs(10), KEY, 10).unwrap();
            world.admit(secs(50), KEY, "token").unwrap();
            all.extend(world.receive(secs(50), KEY, 10).unwrap());
            all
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn a_removed_feed_is_unconfigured_and_a_new_one_starts_empty() {
        let mut world = world(Options { count: 10, ..Options::default() });
        let old = world.receive(secs(0), KEY, 10).unwrap().remove(0);
        let config = FeedConfig::of_everything(secs(30));
        let (feed, _) = world.feed(KEY).unwrap();
        feed.remove(secs(1)).unwrap();
        assert_eq!(feed.remove(secs(1)), Err(FeedRefusal::Unconfigured));
        assert_eq!(world.receive(secs(2), KEY, 10), Err(FeedRefusal::Unconfigured));
        world.feed(KEY).unwrap().0.configure(secs(3), config);
        assert_eq!(world.receive(secs(3), KEY, 10), Ok(vec![]));
        assert_eq!(world.commit(secs(3), KEY, &[old.handle]), Ok(()));
    }

    #[test]
    fn an_update_of_the_configuration_keeps_what_waits() {
        let mut world = world(Options { count: 10, ..Options::default() });
        let filter = Filter::Workflow { statuses: vec!["handling".into()] };
        let config = FeedConfig { filter, ..FeedConfig::of_everything(secs(60)) };
        world.feed(KEY).unwrap().0.configure(secs(1), config);
        assert_eq!(world.receive(secs(1), KEY, 10).unwrap().len(), 10);
        assert_eq!(world.receive(secs(60), KEY, 10).unwrap().len(), 0, "the new visibility timeout holds");
        assert_eq!(world.receive(secs(61), KEY, 10).unwrap().len(), 10);
    }

    #[test]
    fn a_configuration_without_an_event_for_the_retention_is_removed() {
        let mut world = world(Options { count: 1, ..Options::default() });
        let retention = Rules::default().retention;
        assert!(world.receive(retention - secs(1), KEY, 10).is_ok());
        assert_eq!(world.receive(retention, KEY, 10), Err(FeedRefusal::Unconfigured));
    }

    #[test]
    fn a_filter_lets_only_its_states_in() {
        let options = Options { unconfigured: true, rate: 20.0, ..Options::default() };
        let mut world = world(options);
        assert_eq!(world.receive(secs(0), KEY, 10), Err(FeedRefusal::Unconfigured));
        let filter = Filter::Workflow { statuses: vec!["handling".into()] };
        world
            .feed(KEY)
            .unwrap()
            .0
            .configure(secs(0), FeedConfig { filter, ..FeedConfig::of_everything(secs(30)) });
        world.ledger(secs(300));
        let items = drain(&mut world, secs(300), KEY);
        assert!(items.len() > 100);
        assert!(items.iter().all(|received| received.item.value()["state"] == "handling"));
    }

    #[test]
    fn an_event_is_enqueued_twice_under_the_same_or_another_event_id() {
        for (kind, different) in [("same", 1), ("different", 2)] {
            let toml = format!("[items]\nenqueued_twice = 1.0\nsecond_event_id = \"{kind}\"");
            let settings = Settings::parse(&toml).unwrap();
            let mut world = world(Options { count: 1, settings, ..Options::default() });
            let items = drain(&mut world, secs(0), KEY);
            assert_eq!(items.len(), 2);
            let mut ids: Vec<_> =
                items.iter().map(|received| received.item.value()["eventId"].to_string()).collect();
            ids.dedup();
            assert_eq!(ids.len(), different);
        }
    }

    #[test]
    fn a_refused_handle_refuses_the_whole_commit_unless_such_are_ignored() {
        for (kind, answer, left) in [("refused", Err(FeedRefusal::BadHandle), 1), ("ignored", Ok(()), 0)] {
            let settings = Settings::parse(&format!("[feed]\nunknown_handle = \"{kind}\"")).unwrap();
            let mut world = world(Options { count: 1, settings, ..Options::default() });
            let handle = world.receive(secs(0), KEY, 10).unwrap().remove(0).handle;
            assert_eq!(world.commit(secs(0), KEY, &[handle, "garbled".into()]), answer);
            assert_eq!(world.ledger(secs(0)).waiting, left);
        }
    }
}
