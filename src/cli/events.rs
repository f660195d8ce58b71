//! `events`: what the journal holds.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::output::{self, Paper, Rows, plain};
use super::{Failure, open_journal};
use crate::event::{self, hex};
use crate::journal::desk::{Delivery, Desk, EventFilter, EventPages, EventRow, IdPrefix, Passed};
use crate::journal::{Entry, JournalError};
use crate::sandbox::text::duration;

/// Characters of an order id, a state and the like on a terminal.
pub(super) const SHORT: usize = 64;

/// Characters of a reason, and of an item, where it is shown alone.
pub(super) const LONG: usize = 1_000;
pub(super) const LONGEST: usize = 4_000;

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List events, the newest first
    List(ListArgs),
    /// Show one event with what the feed gave
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only of this account, by its name in the configuration
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Only of this order
    #[arg(long, value_name = "ORDER_ID")]
    order: Option<String>,
    /// Only changes into this state
    #[arg(long)]
    state: Option<String>,
    /// Received at this time or later: 2026-03-02, 2026-03-02T20:54:23Z, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Received before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Stop after so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    limit: usize,
    /// Also how the delivery to each sink stands
    #[arg(long)]
    delivery: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The id, or at least its first 8 digits
    id: IdPrefix,
    /// Also how the delivery to each sink stands
    #[arg(long)]
    delivery: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// An event for programs; names as in the envelope.
#[derive(Serialize)]
struct Event<'a> {
    id: String,
    sequence: String,
    account: &'a str,
    subject: &'a str,
    state: &'a str,
    time: Timestamp,
    received_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    superseded: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries: Option<Vec<DeliveryOf<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct DeliveryOf<'a> {
    sink: &'a str,
    state: &'a str,
    attempts: u32,
    failures: u32,
    failed_at: Option<Timestamp>,
    reason: Option<&'a str>,
    answer: Option<&'a str>,
}

pub(super) fn run(config: &Path, args: EventsArgs) -> Result<(), Failure> {
    let (_, desk) = open_journal(config)?;
    let sinks = desk.sinks()?;
    let office = Office { desk, sinks };
    match args.what {
        What::List(args) => office.list(args),
        What::Show(args) => office.show(&args),
    }
}

/// The journal and what it says of sinks.
struct Office {
    desk: Desk,
    sinks: BTreeMap<String, Passed>,
}

impl Office {
    fn list(&self, args: ListArgs) -> Result<(), Failure> {
        let ListArgs { account, order, state, since, until, limit, delivery, json } = args;
        let mut pages = EventPages::new(EventFilter { account, order_id: order, state, since, until });
        let last = if delivery { "DELIVERY" } else { "" };
        let mut rows = if json {
            Rows::json()
        } else {
            Rows::table(["ID", "RECEIVED", "ACCOUNT", "ORDER", "STATE", "CHANGED", last])
        };
        let mut out = Paper::buffered();
        let (mut left, mut is_cut) = (limit, false);
        while !pages.is_done() && !is_cut && !out.get_ref().reader_left() {
            let mut page = self.desk.next_events(&mut pages)?;
            is_cut = left < page.len() || left == page.len() && !pages.is_done();
            page.truncate(left);
            left -= page.len();
            let page = page
                .into_iter()
                .map(|row| {
                    let deliveries =
                        delivery.then(|| self.deliveries(row.seq, &row.account, &row.state)).transpose()?;
                    Ok((row, deliveries))
                })
                .collect::<Result<Vec<_>, JournalError>>()?;
            rows.print(&page, cells, |row| serde_json::to_string(&listed(row)), &mut out)?;
        }
        rows.end(&mut out)?;
        if is_cut {
            output::note(format!("stopped after {}; --limit sets how many", output::count(limit, "event")));
        } else if left == limit {
            output::note("no such event");
        }
        Ok(())
    }

    fn show(&self, args: &ShowArgs) -> Result<(), Failure> {
        let entry = self.desk.event(&args.id)?;
        let deliveries =
            args.delivery.then(|| self.deliveries(entry.seq, &entry.account, &entry.state)).transpose()?;
        let mut out = Paper::buffered();
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&shown(&entry, deliveries.as_deref()))?)?;
        } else {
            print(&entry, deliveries.as_deref(), &mut out)?;
        }
        Ok(out.flush()?)
    }

    fn deliveries(&self, seq: i64, account: &str, state: &str) -> Result<Vec<Delivery>, JournalError> {
        self.desk.deliveries((seq, account, state), &self.sinks)
    }
}

/// Reads a date, a moment, or how long ago it was.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let ago = || {
        let ago = SignedDuration::try_from(duration(text).ok()?).ok()?;
        Timestamp::now().checked_sub(ago).ok()
    };
    event::date(text).or_else(ago).ok_or_else(|| {
        "a time is 2026-03-02, 2026-03-02T20:54:23Z, or 2h for two hours ago; UTC if it names no zone"
            .to_owned()
    })
}

/// Reads how many rows to print.
pub(super) fn limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| 0 < *n).ok_or_else(|| "must be a number, at least 1".to_owned())
}

type Row = (EventRow, Option<Vec<Delivery>>);

fn cells((row, deliveries): &Row) -> [String; 7] {
    let told = deliveries
        .iter()
        .flatten()
        .map(|delivery| format!("{} {}", plain(&delivery.sink, SHORT), delivery.standing.as_str()));
    [
        hex(&row.id),
        output::time(Some(row.received_at)),
        plain(&row.account, SHORT),
        plain(&row.order_id, SHORT),
        plain(&row.state, SHORT),
        output::time(row.current_change),
        told.collect::<Vec<_>>().join(", "),
    ]
}

fn listed((row, deliveries): &Row) -> Event<'_> {
    Event {
        id: hex(&row.id),
        sequence: format!("{:020}", row.seq),
        account: &row.account,
        subject: &row.order_id,
        state: &row.state,
        time: row.current_change.unwrap_or(row.received_at),
        received_at: row.received_at,
        source: None,
        superseded: None,
        deliveries: deliveries.as_deref().map(deliveries_of),
        event: None,
    }
}

fn shown<'a>(entry: &'a Entry, deliveries: Option<&'a [Delivery]>) -> Event<'a> {
    Event {
        id: hex(&entry.id),
        sequence: format!("{:020}", entry.seq),
        account: &entry.account,
        subject: &entry.order_id,
        state: &entry.state,
        time: entry.current_change.unwrap_or(entry.received_at),
        received_at: entry.received_at,
        source: Some(&entry.source),
        superseded: Some(entry.superseded),
        deliveries: deliveries.map(deliveries_of),
        event: Some(output::raw(&entry.item)),
    }
}

fn deliveries_of(deliveries: &[Delivery]) -> Vec<DeliveryOf<'_>> {
    deliveries.iter().map(delivery_of).collect()
}

fn delivery_of(delivery: &Delivery) -> DeliveryOf<'_> {
    let Delivery { sink, standing, tries } = delivery;
    let last = tries.last.as_ref();
    DeliveryOf {
        sink,
        state: standing.as_str(),
        attempts: tries.attempts,
        failures: tries.failures,
        failed_at: last.map(|last| last.at),
        reason: last.map(|last| last.reason.as_str()),
        answer: last.and_then(|last| last.answer.as_deref()),
    }
}

fn print(entry: &Entry, deliveries: Option<&[Delivery]>, out: &mut impl Write) -> io::Result<()> {
    let mut fields = vec![
        ("id", hex(&entry.id)),
        ("account", plain(&entry.account, SHORT)),
        ("order", plain(&entry.order_id, LONG)),
        ("state", plain(&entry.state, LONG)),
        ("changed", output::time(entry.current_change)),
        ("received", output::time(Some(entry.received_at))),
        ("source", plain(&entry.source, LONG)),
        ("sequence", entry.seq.to_string()),
        ("superseded", if entry.superseded { "yes" } else { "no" }.to_owned()),
    ];
    for delivery in deliveries.unwrap_or_default() {
        let mut told = format!("{} to {}", delivery.standing.as_str(), plain(&delivery.sink, SHORT));
        if let Some(last) = &delivery.tries.last {
            let (at, reason) = (output::time(Some(last.at)), plain(&last.reason, LONG));
            told.push_str(&format!(", failed {} times, last at {at}: {reason}", delivery.tries.failures));
        }
        fields.push(("delivery", told));
    }
    fields.push(("event", plain(&entry.item, LONGEST)));
    output::print_fields(&fields, out)
}
