//! The deliveries to one receiver: what it was sent, what it answered, and what was recorded of that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::breaker::BreakerBook;
use crate::config::{Limits, Wanted};
use crate::journal::{DeliveryState, Heading};
use crate::policy::backoff::Backoff;
use crate::simulation::coverage::Met;
use crate::simulation::plan::ReceiverPlan;

pub(in crate::simulation) use records::Records;

mod letters;
mod records;

/// Between two attempts at one event.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(600) };

/// How a delivery stands in the journal, as far as the agent was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::simulation) enum Standing {
    /// It says nothing of it.
    Open,
    Pending,
    /// Or journaled before the receiver was there.
    Delivered,
    Dead,
    Discarded,
}

/// What an attempt came to.
#[derive(Debug, Clone, Copy)]
pub(in crate::simulation) enum Came {
    Taken,
    Refused {
        /// It says nothing of the event: 429, or no connection.
        of_the_receiver: bool,
        retry_after: Option<Duration>,
    },
}

pub(in crate::simulation) struct ReceiverBook {
    limits: Limits,
    wanted: Wanted,
    breaker_settings: crate::policy::breaker::Settings,
    breaker: BreakerBook,
    /// Behind this place it gets events; `None` until the journal has said it.
    begins_behind: Option<i64>,
    journaled_to: i64,
    progress: i64,
    /// What it wants, by place.
    events: BTreeMap<i64, Delivery>,
    /// The places of each order.
    orders: Vec<Vec<i64>>,
    /// Looked up only.
    order_of: HashMap<(String, String), usize>,
    in_hand: BTreeSet<i64>,
    /// The agent heard that these were taken, and has not recorded it.
    unrecorded: BTreeMap<i64, Duration>,
    /// A record of these was asked for that failed, or has not ended.
    in_doubt: BTreeSet<i64>,
    record_failed: bool,
    /// From when to when nothing may be sent.
    quiet: Option<(Duration, Duration)>,
    /// Answers heard in this run; the last success, and the last one of another order than that.
    n_heard: u64,
    last: Option<(usize, u64)>,
    before: Option<(usize, u64)>,
    stop_asked: Option<Duration>,
}

struct Delivery {
    order: usize,
    standing: Standing,
    /// The agent heard in this run that it was taken.
    is_heard: bool,
    n_taken: u32,
    /// In this run.
    n_failed: u32,
    failed_at: Option<Duration>,
    /// The number of the answer.
    failed_nth: Option<u64>,
    /// Refusals since it was new or was retried while another order went well: no fewer than the agent may count.
    n_counting: u32,
    /// In this run, and no more than it must count.
    n_surely_counting: u32,
    /// Failures that are recorded.
    n_recorded: u32,
    is_retried: bool,
    unseen: Option<Unseen>,
}

/// Another process made it pending again, and the agent has not looked.
#[derive(Debug, Clone, Copy, Default)]
struct Unseen {
    told_at: Option<Duration>,
}

impl ReceiverBook {
    pub(super) fn new(plan: &ReceiverPlan) -> Self {
        Self {
            limits: plan.limits.clone(),
            wanted: plan.wanted.clone(),
            breaker_settings: plan.breaker,
            breaker: BreakerBook::new(plan.breaker),
            begins_behind: None,
            journaled_to: 0,
            progress: 0,
            events: BTreeMap::new(),
            orders: Vec::new(),
            order_of: HashMap::new(),
            in_hand: BTreeSet::new(),
            unrecorded: BTreeMap::new(),
            in_doubt: BTreeSet::new(),
            record_failed: false,
            quiet: None,
            n_heard: 0,
            last: None,
            before: None,
            stop_asked: None,
        }
    }

    /// An event has its place in the journal.
    pub(in crate::simulation) fn journaled(&mut self, heading: &Heading) -> Option<Met> {
        self.journaled_to = heading.seq;
        if !self.wanted.wants(&heading.account, &heading.state) {
            return Some(Met::NotWanted);
        }
        let n_orders = self.orders.len();
        let key = (heading.account.clone(), heading.order_id.clone());
        let order = *self.order_of.entry(key).or_insert(n_orders);
        if order == n_orders {
            self.orders.push(Vec::new());
        }
        self.orders[order].push(heading.seq);
        let delivery = Delivery {
            order,
            standing: Standing::Open,
            is_heard: false,
            n_taken: 0,
            n_failed: 0,
            failed_at: None,
            failed_nth: None,
            n_counting: 0,
            n_surely_counting: 0,
            n_recorded: 0,
            is_retried: false,
            unseen: None,
        };
        self.events.insert(heading.seq, delivery);
        None
    }

    /// The journal has said where it goes on.
    pub(in crate::simulation) fn resumed(&mut self, seq: i64) -> Result<(), String> {
        if self.begins_behind.is_none() {
            self.begins_behind = Some(seq);
            self.progress = seq;
            for (_, delivery) in self.events.range_mut(..=seq) {
                delivery.standing = Standing::Delivered;
            }
        }
        if seq == self.progress {
            Ok(())
        } else {
            Err(format!("goes on behind {seq}, not {}", self.progress))
        }
    }

    /// The agent begins an attempt.
    pub(in crate::simulation) fn begun(&mut self, now: Duration, seq: i64) -> Result<(), String> {
        let Some(delivery) = self.events.get(&seq) else {
            return Err("is tried though it is not wanted".to_owned());
        };
        if delivery.standing.is_finished() {
            return Err(format!("is tried though it is recorded as {:?}", delivery.standing));
        }
        if delivery.is_heard {
            return Err("is tried again though it was taken".to_owned());
        }
        if delivery.failed_at.is_some() && delivery.standing != Standing::Pending {
            return Err("is tried again before its failure is recorded".to_owned());
        }
        if self.limits.concurrency as usize <= self.in_hand.len() + self.unrecorded.len() {
            let (n_in_hand, n_unrecorded) = (self.in_hand.len(), self.unrecorded.len());
            return Err(format!("is tried beside {n_in_hand} in hand and {n_unrecorded} not recorded"));
        }
        for other in &self.orders[delivery.order] {
            let Some(its) = self.events.get(other) else { continue };
            if self.in_hand.contains(other) {
                return Err(format!("is tried beside {other} of its order"));
            }
            if *other < seq && !its.standing.is_finished() && its.unseen.is_none() {
                return Err(format!("is tried before {other} of its order is finished"));
            }
        }
        // What is begun in the very moment of the answer may not know of it.
        if let Some((_, until)) = self.quiet.filter(|(since, until)| *since < now && now < *until) {
            return Err(format!("is tried {:?} before the end of a wait", until - now));
        }
        let shortest = BACKOFF.delay(delivery.n_failed, 0.0);
        if delivery.failed_at.is_some_and(|at| now < at + shortest) {
            return Err(format!("is tried again sooner than {shortest:?} after its last failure"));
        }
        if self.limits.concurrency == 1 {
            self.breaker.begun(now)?;
        }
        self.in_hand.insert(seq);
        Ok(())
    }

    /// It could not be read, and was not sent.
    pub(in crate::simulation) fn not_sent(&mut self, seq: i64) {
        self.in_hand.remove(&seq);
    }

    pub(in crate::simulation) fn is_in_hand(&self, seq: i64) -> bool {
        self.in_hand.contains(&seq)
    }

    /// The receiver has it, whether or not anybody hears of that.
    pub(in crate::simulation) fn taken(&mut self, seq: i64) -> Option<Met> {
        let delivery = self.events.get_mut(&seq)?;
        delivery.n_taken += 1;
        (1 < delivery.n_taken).then_some(match delivery.failed_at {
            Some(_) => Met::TakenAgainAfterFailure,
            None => Met::TakenAgainAfterCrash,
        })
    }

    /// The agent hears what came of an attempt. Returns what that was, where it is worth counting.
    pub(in crate::simulation) fn heard(&mut self, now: Duration, seq: i64, came: Came) -> Vec<Met> {
        self.in_hand.remove(&seq);
        self.n_heard += 1;
        let Some(delivery) = self.events.get_mut(&seq) else { return Vec::new() };
        let order = delivery.order;
        match came {
            Came::Taken => {
                delivery.is_heard = true;
                self.unrecorded.insert(seq, now);
                if self.last.is_some_and(|(last, _)| last != order) {
                    self.before = self.last;
                }
                self.last = Some((order, self.n_heard));
                let retried = delivery.is_retried.then_some(Met::RetriedAndTaken);
                self.breaker.succeeded().into_iter().chain(retried).collect()
            }
            Came::Refused { of_the_receiver, retry_after } => {
                let of_another = self.last.filter(|(last, _)| *last != order).or(self.before);
                let counts = !of_the_receiver
                    && of_another
                        .is_some_and(|(_, nth)| delivery.failed_nth.is_none_or(|failed| failed < nth));
                delivery.n_counting += u32::from(counts);
                delivery.n_surely_counting += u32::from(counts && delivery.failed_nth.is_some());
                delivery.n_failed += 1;
                delivery.failed_at = Some(now);
                delivery.failed_nth = Some(self.n_heard);
                if let Some(wait) = retry_after {
                    let (since, until) = self.quiet.filter(|(_, until)| now < *until).unwrap_or((now, now));
                    self.quiet = Some((since, until.max(now + wait)));
                }
                let not_counted = (!counts).then_some(Met::AttemptNotCounted);
                self.breaker.failed(now, order).into_iter().chain(not_counted).collect()
            }
        }
    }

    pub(in crate::simulation) fn stop_asked(&mut self, now: Duration) {
        self.stop_asked = Some(now);
    }

    pub(in crate::simulation) fn n_in_hand(&self) -> usize {
        self.in_hand.len()
    }

    pub(in crate::simulation) fn n_unrecorded(&self) -> usize {
        self.unrecorded.len()
    }
}

impl Standing {
    fn is_finished(self) -> bool {
        match self {
            Self::Delivered | Self::Dead | Self::Discarded => true,
            Self::Open | Self::Pending => false,
        }
    }

    fn of(state: &DeliveryState) -> Self {
        match state {
            DeliveryState::Delivered => Self::Delivered,
            DeliveryState::Pending(_) => Self::Pending,
            DeliveryState::Dead(_) => Self::Dead,
        }
    }
}
