//! What an operator does to dead letters, and whether the agent looks.

use std::time::Duration;

use super::{Delivery, ReceiverBook, Standing, Unseen};
use crate::journal::{DeliveryState, Heading};

/// How soon an agent that was told must have looked at what another process wrote.
const LOOKS_WITHIN: Duration = Duration::from_secs(600);

impl ReceiverBook {
    /// What an operator would find.
    pub(in crate::simulation) fn dead_letters(&self) -> Vec<i64> {
        let is_dead = |(seq, delivery): &(&i64, &Delivery)| {
            delivery.standing == Standing::Dead && !self.in_doubt.contains(seq)
        };
        self.events.iter().filter(is_dead).map(|(seq, _)| *seq).collect()
    }

    /// Another process made a dead letter pending again.
    pub(in crate::simulation) fn retried(&mut self, seq: i64, is_running: bool) {
        let Some(delivery) = self.events.get_mut(&seq) else { return };
        delivery.standing = Standing::Pending;
        (delivery.n_counting, delivery.n_failed, delivery.failed_at) = (0, 0, None);
        (delivery.n_surely_counting, delivery.n_recorded) = (0, 0);
        (delivery.failed_nth, delivery.is_retried) = (None, true);
        delivery.unseen = is_running.then(Unseen::default);
    }

    pub(in crate::simulation) fn discarded(&mut self, seq: i64) {
        if let Some(delivery) = self.events.get_mut(&seq) {
            delivery.standing = Standing::Discarded;
        }
    }

    /// The agent was told that another process has written.
    pub(in crate::simulation) fn told(&mut self, now: Duration) {
        for unseen in self.events.values_mut().filter_map(|delivery| delivery.unseen.as_mut()) {
            unseen.told_at.get_or_insert(now);
        }
    }

    /// The agent was given what is open.
    pub(in crate::simulation) fn loaded(&mut self, open: &[(Heading, DeliveryState)]) {
        for (heading, _) in open {
            if let Some(delivery) = self.events.get_mut(&heading.seq) {
                delivery.unseen = None;
            }
        }
    }

    /// A retried dead letter that the agent does not look at.
    pub(in crate::simulation) fn overlooked(&self, now: Duration) -> Option<i64> {
        let is_overlooked = |delivery: &Delivery| {
            delivery
                .unseen
                .and_then(|unseen| unseen.told_at)
                .is_some_and(|told_at| told_at + LOOKS_WITHIN < now)
        };
        self.events.iter().find(|(_, delivery)| is_overlooked(delivery)).map(|(seq, _)| *seq)
    }
}
