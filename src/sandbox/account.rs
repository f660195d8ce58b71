//! One VTEX account: its orders, the feeds of its app keys, and the rate limit that they share.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::feed::Feed;
use super::ledger::Bookkeeper;
use super::life::{Change, Life};
use super::throttle::Throttle;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) life: Life,
    /// By app key.
    pub(super) feeds: BTreeMap<String, Feed>,
    pub(super) throttle: Throttle,
    pub(super) epoch: Timestamp,
}

impl Account {
    pub(super) fn new(life: Life, throttle: Throttle, epoch: Timestamp) -> Self {
        Self { life, feeds: BTreeMap::new(), throttle, epoch }
    }

    /// Adds a feed in which the newest `waiting` changes wait.
    pub(super) fn open_feed(
        &mut self,
        now: Duration,
        app_key: &str,
        mut feed: Feed,
        waiting: u64,
        books: &mut Bookkeeper,
    ) {
        for change in self.life.history(waiting) {
            feed.offer(now, &change, self.epoch, books);
        }
        self.feeds.insert(app_key.to_owned(), feed);
    }

    /// Lets all happen that is due until `now`.
    pub(super) fn catch_up(&mut self, now: Duration, books: &mut Bookkeeper) {
        while let Some(change) = self.life.next_change(signed(now)) {
            self.tell(&change, books);
        }
    }

    /// Whether the order was ready for handling; its handling has started then.
    pub(super) fn start_handling(&mut self, now: Duration, order_id: &str, books: &mut Bookkeeper) -> bool {
        let Some(changes) = self.life.start_handling(order_id, signed(now)) else { return false };
        changes.iter().for_each(|change| self.tell(change, books));
        true
    }

    fn tell(&mut self, change: &Change, books: &mut Bookkeeper) {
        let at = Duration::try_from(change.at).unwrap_or_default();
        for feed in self.feeds.values_mut() {
            feed.offer(at, change, self.epoch, books);
        }
    }
}

/// `mystore` of `vtexappkey-mystore-ABCDEF`; a key of another form is its own account.
pub(super) fn account_of(app_key: &str) -> &str {
    app_key
        .strip_prefix("vtexappkey-")
        .and_then(|rest| rest.rsplit_once('-'))
        .map_or(app_key, |(account, _)| account)
}

pub(super) fn signed(now: Duration) -> SignedDuration {
    SignedDuration::try_from(now).unwrap_or(SignedDuration::MAX)
}
