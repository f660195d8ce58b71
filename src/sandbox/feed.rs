//! The feed of one app key: its configuration and its queue.

use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use serde_json::Value;

use super::behaviour::{AboveTen, BadHandle, FeedBehaviour, ItemBehaviour, SecondEventId};
use super::feed_config::{FeedConfig, Filter};
use super::items::{Event, Item, event_id, finish, happens};
use super::ledger::Bookkeeper;
use super::life::Change;
use super::queue::{Fate, MAX_BATCH, Queue, Received};

/// A queue this full takes no further event.
const MAX_WAITING: usize = 1_000_000;

/// See the module's description. Time is given with each call and never goes back.
#[derive(Debug)]
pub(super) struct Feed {
    app_key: String,
    behaviour: FeedBehaviour,
    items: ItemBehaviour,
    config: Option<FeedConfig>,
    queue: Queue,
    /// Until then the configuration seems to be gone.
    hidden_until: Duration,
    /// When the last event came, or the feed was configured.
    last_event: Duration,
    rng: StdRng,
}

/// Why the feed does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedRefusal {
    /// The app key has no feed configuration.
    Unconfigured,
    TooManyHandles,
    BadHandle,
    ForeignHandle,
}

impl Feed {
    /// A feed without a configuration.
    pub(super) fn new(
        app_key: &str,
        behaviour: FeedBehaviour,
        items: ItemBehaviour,
        queue: Queue,
        rng: StdRng,
    ) -> Self {
        let (app_key, hidden_until, last_event) = (app_key.to_owned(), Duration::ZERO, Duration::ZERO);
        Self { app_key, behaviour, items, config: None, queue, hidden_until, last_event, rng }
    }

    /// Sets or replaces the configuration; what waits in the queue stays there.
    pub(super) fn configure(&mut self, now: Duration, config: FeedConfig) {
        self.queue.set_rules(self.behaviour.rules(config.visibility, config.retention));
        self.config = Some(config);
        self.hidden_until = Duration::ZERO;
        self.last_event = self.last_event.max(now);
    }

    /// Removes the configuration and all that waits.
    pub(super) fn remove(&mut self, now: Duration) -> Result<(), FeedRefusal> {
        self.answering(now)?;
        self.forget();
        Ok(())
    }

    /// Has no configuration any more, and nothing that waits.
    pub(super) fn forget(&mut self) {
        self.config = None;
        self.queue.clear();
    }

    /// Answers until then as if there were no configuration; events go on to come in.
    pub(super) fn hide_until(&mut self, until: Duration) {
        self.hidden_until = self.hidden_until.max(until);
    }

    /// What a look at the configuration answers.
    pub(super) fn show(&mut self, now: Duration) -> Result<Value, FeedRefusal> {
        let (quantity, oldest) = (self.queue.len(now), self.queue.oldest_age(now).unwrap_or_default());
        Ok(self.answering(now)?.show(quantity, oldest))
    }

    /// Puts a change into the queue if the filter asks for it.
    pub(super) fn offer(&mut self, at: Duration, change: &Change, epoch: Timestamp, books: &mut Bookkeeper) {
        let Ok(config) = self.config(at) else { return };
        if !config.filter.wants(change.state, &change.passed) {
            return;
        }
        let event = Event {
            order_id: &change.order_id,
            domain: change.domain,
            state: change.state,
            last_state: change.last_state,
            last_change: epoch.saturating_add(change.last_at).unwrap_or(epoch),
            current_change: epoch.saturating_add(change.at).unwrap_or(epoch),
        };
        let raw = match config.filter {
            Filter::Workflow { .. } => event.from_workflow(),
            Filter::Orders { .. } => event.from_orders(),
        };
        let item = finish(raw, self.items.variety(), &mut self.rng);
        if happens(self.items.enqueued_twice, &mut self.rng) {
            let second = match self.items.second_event_id {
                SecondEventId::Same => item.clone(),
                SecondEventId::Different => {
                    let mut second = item.value();
                    second["eventId"] = event_id(&second).into();
                    Item::new(&second)
                }
            };
            self.enqueue(at, second, books);
        }
        self.enqueue(at, item, books);
    }

    /// Puts any item into the queue, whatever the filter.
    pub(super) fn push(
        &mut self,
        now: Duration,
        item: Item,
        books: &mut Bookkeeper,
    ) -> Result<(), FeedRefusal> {
        self.config(now)?;
        self.enqueue(now, item, books);
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        now: Duration,
        maxlot: usize,
        books: &mut Bookkeeper,
    ) -> Result<Vec<Received>, FeedRefusal> {
        self.answering(now)?;
        let batch = self.queue.receive(now, maxlot);
        batch.iter().for_each(|received| books.received(now, received.message));
        Ok(batch)
    }

    /// Commits all handles or, when one of them is refused, none.
    pub(super) fn commit(
        &mut self,
        now: Duration,
        handles: &[String],
        books: &mut Bookkeeper,
    ) -> Result<(), FeedRefusal> {
        self.answering(now)?;
        if handles.len() > MAX_BATCH && self.behaviour.handles_above_ten == AboveTen::Refused {
            return Err(FeedRefusal::TooManyHandles);
        }
        for handle in handles {
            self.check(now, handle)?;
        }
        for handle in handles {
            if let Fate::Deleted(message) = self.queue.commit(now, handle) {
                books.committed(now, message);
            }
        }
        Ok(())
    }

    /// How many events wait, those out on a lease included.
    pub(super) fn waiting(&mut self, now: Duration) -> usize {
        self.queue.len(now)
    }

    /// The configuration, unless it seems to be gone.
    fn answering(&mut self, now: Duration) -> Result<&FeedConfig, FeedRefusal> {
        if now < self.hidden_until {
            return Err(FeedRefusal::Unconfigured);
        }
        self.config(now)
    }

    /// The configuration, unless VTEX would have removed it because no event came for the whole retention.
    fn config(&mut self, now: Duration) -> Result<&FeedConfig, FeedRefusal> {
        if self.config.as_ref().is_some_and(|config| now >= self.last_event.saturating_add(config.retention))
        {
            self.forget();
        }
        self.config.as_ref().ok_or(FeedRefusal::Unconfigured)
    }

    fn check(&mut self, now: Duration, handle: &str) -> Result<(), FeedRefusal> {
        match (self.queue.judge(now, handle), self.behaviour.unknown_handle, self.behaviour.foreign_handle) {
            (Fate::Stale(_), ..) | (Fate::Garbled, BadHandle::Refused, _) => Err(FeedRefusal::BadHandle),
            (Fate::Foreign, _, BadHandle::Refused) => Err(FeedRefusal::ForeignHandle),
            (Fate::Deleted(_) | Fate::Kept(_) | Fate::AlreadyGone, ..)
            | (Fate::Garbled, BadHandle::Ignored, _)
            | (Fate::Foreign, _, BadHandle::Ignored) => Ok(()),
        }
    }

    fn enqueue(&mut self, at: Duration, item: Item, books: &mut Bookkeeper) {
        self.last_event = self.last_event.max(at);
        if self.queue.len(at) >= MAX_WAITING {
            books.overflowed();
            return;
        }
        let message = self.queue.enqueue(self.last_event, item.clone());
        books.enqueued(at, &self.app_key, message, &item);
    }
}
