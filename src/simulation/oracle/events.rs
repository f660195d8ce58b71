//! Every event from the queue to the sinks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::simulation::plan::Plan;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::simulation) enum Kind {
    Usable,
    /// Without an orderId: to be quarantined and committed.
    WithoutOrder,
    /// Without a handle: it stays until it expires.
    WithoutHandle,
}

pub(in crate::simulation) struct Events {
    all: Vec<Book>,
    retention: Vec<Duration>,
    /// Given to the agent, not journaled yet.
    handed: BTreeSet<u32>,
    /// Journaled, but no commit of it was sent yet; with the end of its lease.
    untried: BTreeMap<u32, Duration>,
    /// Journaled, but not deleted yet.
    undeleted: BTreeSet<u32>,
    /// How many usable events are journaled.
    pub(in crate::simulation) n_journaled: usize,
}

struct Book {
    feed: usize,
    enqueued_at: Duration,
    kind: Kind,
    is_journaled: bool,
    is_deleted: bool,
    /// By which a commit must be sent.
    lease_end: Duration,
}

impl Events {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            all: Vec::new(),
            retention: plan.feeds.iter().map(|feed| feed.rules.retention).collect(),
            handed: BTreeSet::new(),
            untried: BTreeMap::new(),
            undeleted: BTreeSet::new(),
            n_journaled: 0,
        }
    }

    /// Returns its number.
    pub(in crate::simulation) fn enqueued(&mut self, feed: usize, now: Duration, kind: Kind) -> u32 {
        self.all.push(Book {
            feed,
            enqueued_at: now,
            kind,
            is_journaled: false,
            is_deleted: false,
            lease_end: Duration::ZERO,
        });
        u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn handed(&mut self, events: &[u32]) {
        self.handed.extend(events);
    }

    /// The journal told the agent that these are stored.
    pub(in crate::simulation) fn journaled(&mut self, events: &[u32], lease_end: Duration) {
        for event in events {
            self.handed.remove(event);
            let Some(book) = self.book(*event) else { continue };
            let is_new = !book.is_journaled && book.kind == Kind::Usable;
            book.is_journaled = true;
            book.lease_end = lease_end;
            if book.kind != Kind::WithoutHandle {
                self.untried.insert(*event, lease_end);
                self.undeleted.insert(*event);
            }
            self.n_journaled += usize::from(is_new);
        }
    }

    /// The journal told the agent that these could not be stored.
    pub(in crate::simulation) fn not_journaled(&mut self, events: &[u32]) {
        for event in events {
            self.handed.remove(event);
        }
    }

    pub(super) fn commit_sent(&mut self, now: Duration, events: &[u32]) -> Result<(), String> {
        for event in events {
            self.untried.remove(event);
            if !self.is_journaled(*event) {
                return Err(format!("event {event} is committed but not journaled"));
            }
            if let Some(lease_end) = self.book(*event).map(|book| book.lease_end).filter(|end| *end < now) {
                return Err(format!("event {event} is committed {:?} after its lease", now - lease_end));
            }
        }
        Ok(())
    }

    pub(in crate::simulation) fn deleted(&mut self, event: u32) {
        self.undeleted.remove(&event);
        if let Some(book) = self.book(event) {
            book.is_deleted = true;
        }
    }

    pub(super) fn started(&mut self) {
        self.handed.clear();
        self.untried.clear();
        self.undeleted.clear();
    }

    pub(in crate::simulation) fn is_journaled(&self, event: u32) -> bool {
        self.all.get(event as usize).is_some_and(|book| book.is_journaled)
    }

    pub(in crate::simulation) fn is_deleted(&self, event: u32) -> bool {
        self.all.get(event as usize).is_some_and(|book| book.is_deleted)
    }

    pub(in crate::simulation) fn has_leased(&self) -> bool {
        !self.handed.is_empty()
    }

    pub(in crate::simulation) fn has_uncommitted(&self) -> bool {
        !self.undeleted.is_empty()
    }

    /// After a shutdown in good time: what was received must be journaled.
    pub(in crate::simulation) fn lost_at_shutdown(&self) -> Option<u32> {
        self.handed.first().copied()
    }

    /// Journaled and leased for some time yet, but no commit was tried.
    pub(in crate::simulation) fn untried(&self, now: Duration) -> Option<u32> {
        self.untried.iter().find(|(_, lease_end)| now < **lease_end).map(|(event, _)| *event)
    }

    /// The events that had the time to reach the sinks; those that expired before are told apart.
    pub(in crate::simulation) fn owed(&self, now: Duration) -> Owed {
        let mut owed = Owed::default();
        for (number, book) in (0..).zip(&self.all) {
            let is_expired = book.enqueued_at + self.retention[book.feed] <= now;
            match book.kind {
                Kind::WithoutHandle => owed.n_stuck += usize::from(!is_expired),
                Kind::Usable | Kind::WithoutOrder if !book.is_journaled && is_expired => owed.n_expired += 1,
                Kind::Usable => owed.usable.push(number),
                Kind::WithoutOrder => owed.unusable.push(number),
            }
        }
        owed
    }

    fn book(&mut self, event: u32) -> Option<&mut Book> {
        self.all.get_mut(event as usize)
    }
}

#[derive(Debug, Default)]
pub(in crate::simulation) struct Owed {
    pub(in crate::simulation) usable: Vec<u32>,
    pub(in crate::simulation) unusable: Vec<u32>,
    pub(in crate::simulation) n_expired: usize,
    /// Items without a handle, which cannot be committed.
    pub(in crate::simulation) n_stuck: usize,
}
