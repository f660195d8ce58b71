//! Events by order, by time, by id.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::{Desk, DeskError, IdPrefix, PAGE};
use crate::journal::sqlite::read;
use crate::journal::{Entry, JournalError};

/// What is asked for; `None` is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub account: Option<String>,
    pub order_id: Option<String>,
    pub state: Option<String>,
    /// Received then or later.
    pub since: Option<Timestamp>,
    /// Received before.
    pub until: Option<Timestamp>,
}

/// An event without what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    pub seq: i64,
    pub id: [u8; 16],
    pub account: String,
    pub order_id: String,
    pub state: String,
    pub current_change: Option<Timestamp>,
    pub received_at: Timestamp,
}

/// Where a walk through the events stands; newest first.
#[derive(Debug)]
pub struct EventPages {
    filter: EventFilter,
    walk: Walk,
}

#[derive(Debug)]
enum Walk {
    /// Through what lies before a place.
    Places {
        before: i64,
    },
    /// The same, along the index of the orders.
    Order {
        order_id: String,
        before: i64,
    },
    /// Through the events of an hour, which lie from one place to before another, then through the hours before.
    Hours {
        hour: i64,
        from: i64,
        before: i64,
    },
    Done,
}

const HOUR_MS: i64 = 3_600_000;

pub(super) const BY_PLACE: &str = "
    SELECT seq, id, account, order_id, state, current_change_ns, received_at_ms FROM events
    WHERE seq >= ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";

/// The index begins with the account, and few accounts have many orders.
pub(super) const BY_ORDER: &str = "
    WITH RECURSIVE accounts (name) AS (
        SELECT (SELECT account FROM events ORDER BY account LIMIT 1)
        UNION ALL
        SELECT (SELECT account FROM events WHERE account > name ORDER BY account LIMIT 1)
        FROM accounts WHERE name IS NOT NULL
    )
    SELECT seq, id, account, order_id, state, current_change_ns, received_at_ms
    FROM accounts CROSS JOIN events ON account = name AND order_id = ?1
    WHERE seq < ?2 ORDER BY seq DESC LIMIT ?3";

pub(super) const LAST_HOUR: &str = "
    SELECT received_at_ms / 3600000 FROM events WHERE received_at_ms / 3600000 <= ?1
    ORDER BY received_at_ms / 3600000 DESC LIMIT 1";

pub(super) const SPAN_OF_HOUR: &str =
    "SELECT min(seq), max(seq) FROM events WHERE received_at_ms / 3600000 = ?1";

/// From one hour that has events to the one before, with one look for the id in each.
pub(super) const BY_ID: &str = "
    WITH RECURSIVE hours (hour) AS (
        SELECT (SELECT received_at_ms / 3600000 FROM events ORDER BY received_at_ms / 3600000 DESC LIMIT 1)
        UNION ALL
        SELECT (
            SELECT received_at_ms / 3600000 FROM events WHERE received_at_ms / 3600000 < hour
            ORDER BY received_at_ms / 3600000 DESC LIMIT 1
        )
        FROM hours WHERE hour IS NOT NULL
    )
    SELECT seq, id FROM hours CROSS JOIN events ON received_at_ms / 3600000 = hour
    WHERE id BETWEEN ?1 AND ?2 LIMIT ?3";

/// More events than this do not begin alike by chance, nor stand for one id.
const ALIKE_MAX: usize = 100;

impl EventPages {
    pub fn new(filter: EventFilter) -> Self {
        let walk = match &filter {
            EventFilter { order_id: Some(order_id), .. } => {
                Walk::Order { order_id: order_id.clone(), before: i64::MAX }
            }
            EventFilter { since: None, until: None, .. } => Walk::Places { before: i64::MAX },
            EventFilter { until, .. } => {
                let hour = until.map_or(i64::MAX, |until| hour(until).saturating_add(1));
                Walk::Hours { hour, from: 0, before: 0 }
            }
        };
        Self { filter, walk }
    }

    /// Whether there is nothing more to look at.
    pub fn is_done(&self) -> bool {
        matches!(self.walk, Walk::Done)
    }
}

impl EventFilter {
    fn admits(&self, row: &EventRow) -> bool {
        let Self { account, order_id, state, since, until } = self;
        account.as_ref().is_none_or(|account| *account == row.account)
            && order_id.as_ref().is_none_or(|order_id| *order_id == row.order_id)
            && state.as_ref().is_none_or(|state| *state == row.state)
            && since.is_none_or(|since| since <= row.received_at)
            && until.is_none_or(|until| row.received_at < until)
    }
}

impl Desk {
    /// Looks at the next events, at most [`PAGE`], and returns those that are asked for: an empty page is not yet the
    /// end.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn next_events(&self, pages: &mut EventPages) -> Result<Vec<EventRow>, JournalError> {
        let EventPages { filter, walk } = pages;
        let (rows, next) = self.step(filter, walk).map_err(self.failed("cannot read events"))?;
        *walk = next;
        Ok(rows)
    }

    fn step(&self, filter: &EventFilter, walk: &Walk) -> rusqlite::Result<(Vec<EventRow>, Walk)> {
        let connection = &self.connection;
        let first = |rows: &[EventRow]| rows.last().filter(|_| rows.len() == PAGE).map(|row| row.seq);
        let (mut rows, next) = match walk {
            Walk::Places { before } => {
                let rows = rows(connection, BY_PLACE, (i64::MIN, before, PAGE as i64))?;
                let next = first(&rows).map_or(Walk::Done, |before| Walk::Places { before });
                (rows, next)
            }
            Walk::Order { order_id, before } => {
                let rows = rows(connection, BY_ORDER, (order_id, before, PAGE as i64))?;
                let next = first(&rows)
                    .map_or(Walk::Done, |before| Walk::Order { order_id: order_id.clone(), before });
                (rows, next)
            }
            Walk::Hours { hour, from, before } if from < before => {
                let mut rows = rows(connection, BY_PLACE, (from, before, PAGE as i64))?;
                let before = first(&rows).unwrap_or(*from);
                // Where the clock was set, the events of an hour lie apart.
                rows.retain(|row| self::hour(row.received_at) == *hour);
                (rows, Walk::Hours { hour: *hour, from: *from, before })
            }
            Walk::Hours { hour, .. } => (Vec::new(), self.hour_before(*hour, filter.since)?),
            Walk::Done => (Vec::new(), Walk::Done),
        };
        rows.retain(|row| filter.admits(row));
        Ok((rows, next))
    }

    fn hour_before(&self, hour: i64, since: Option<Timestamp>) -> rusqlite::Result<Walk> {
        let last: Option<i64> =
            self.connection.prepare_cached(LAST_HOUR)?.query_row([hour - 1], |row| row.get(0)).optional()?;
        let Some(hour) = last.filter(|hour| since.is_none_or(|since| self::hour(since) <= *hour)) else {
            return Ok(Walk::Done);
        };
        self.connection.prepare_cached(SPAN_OF_HOUR)?.query_row([hour], |row| {
            // Nothing where the hour was pruned meanwhile.
            let (from, last): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
            Ok(Walk::Hours { hour, from: from.unwrap_or(0), before: last.map_or(0, |last| last + 1) })
        })
    }

    /// The event with this id; the newest, should several have it.
    ///
    /// # Errors
    /// There is none, or several ids begin so.
    pub fn event(&self, id: &IdPrefix) -> Result<Entry, DeskError> {
        let found = self.alike(id)?;
        let Some(only) = id.only(&found.iter().map(|(_, id)| *id).collect())? else {
            return Err(DeskError::NoEvent { id: id.clone() });
        };
        let newest = found.iter().filter(|(_, id)| *id == only).map(|(seq, _)| *seq).max().unwrap_or(0);
        let entry = read::entry_at(&self.connection, newest).map_err(self.failed("cannot read an event"))?;
        entry.ok_or_else(|| DeskError::NoEvent { id: id.clone() })
    }

    /// The places of the events whose ids begin so.
    pub(super) fn alike(&self, id: &IdPrefix) -> Result<BTreeSet<(i64, [u8; 16])>, JournalError> {
        let ids = id.ids();
        let find = || {
            self.connection
                .prepare_cached(BY_ID)?
                .query_map((ids.start(), ids.end(), ALIKE_MAX as i64), |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()
        };
        find().map_err(self.failed("cannot look for an id"))
    }
}

/// As the index has it.
fn hour(time: Timestamp) -> i64 {
    time.as_millisecond() / HOUR_MS
}

fn rows(connection: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<Vec<EventRow>> {
    connection.prepare_cached(sql)?.query_map(params, row)?.collect()
}

fn row(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    let current_change: Option<i64> = row.get(5)?;
    Ok(EventRow {
        seq: row.get(0)?,
        id: row.get(1)?,
        account: row.get(2)?,
        order_id: row.get(3)?,
        state: row.get(4)?,
        current_change: current_change.and_then(|ns| Timestamp::from_nanosecond(ns.into()).ok()),
        received_at: Timestamp::from_millisecond(row.get(6)?).unwrap_or_default(),
    })
}
