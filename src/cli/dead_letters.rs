//! `dead-letters`: what could not be delivered or decoded.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::events::{LONG, LONGEST, SHORT, limit, time};
use super::output::{self, Paper, Rows, plain};
use super::{Failure, open_journal};
use crate::config::Outline;
use crate::event::hex;
use crate::journal::JournalError;
use crate::journal::desk::{DeadLetter, DeadLetterPages, Desk, Direction, IdPrefix, Selection};

use change::{Deed, change};

mod change;

#[derive(Debug, Args)]
pub(super) struct DeadLettersArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List what was set aside: deliveries, those of the newest event first, then items that are no events
    List(ListArgs),
    /// Show one with what the feed gave
    Show(ShowArgs),
    /// Deliver again, or decode again what was quarantined
    Retry(ChangeArgs),
    /// Give up for good
    Discard(ChangeArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only of this sink, so no quarantined items
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,
    /// Only what failed last before this time: 2026-03-02, 2026-03-02T20:54:23Z, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = time)]
    before: Option<Timestamp>,
    /// Stop after so many [default: 50, all of them with --json]
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<usize>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The id, or at least its first 8 digits
    id: IdPrefix,
    /// Print a JSON array, an object for each sink
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ChangeArgs {
    /// Ids, or at least their first 8 digits
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<IdPrefix>,
    /// All dead letters, quarantined items included
    #[arg(long)]
    all: bool,
    /// Only of this sink, so no quarantined items
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,
    /// With --all, only what failed last before this time: 2026-03-02, 2026-03-02T20:54:23Z, or 2h for two hours ago
    #[arg(long, value_name = "TIME", conflicts_with = "ids", value_parser = time)]
    before: Option<Timestamp>,
}

/// A dead letter for programs.
#[derive(Serialize)]
struct Letter<'a> {
    /// `null` for a quarantined item.
    sink: Option<&'a str>,
    id: String,
    account: &'a str,
    subject: Option<&'a str>,
    state: Option<&'a str>,
    reason: Option<&'a str>,
    attempts: u32,
    failed_at: Option<Timestamp>,
    answer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a RawValue>,
}

/// The name of a sink was mistyped, or belongs to another configuration.
#[derive(Debug, thiserror::Error)]
#[error("no sink is called {}; there are: {}", plain(name, SHORT), known.join(", "))]
struct NoSink {
    name: String,
    known: Vec<String>,
}

pub(super) fn run(config: &Path, args: DeadLettersArgs) -> Result<(), Failure> {
    let (outline, mut desk) = open_journal(config)?;
    match args.what {
        What::List(args) => list(&desk, &outline, args),
        What::Show(args) => show(&desk, &args),
        What::Retry(args) => change(&mut desk, &outline, Deed::Retry, args),
        What::Discard(args) => change(&mut desk, &outline, Deed::Discard, args),
    }
}

fn list(desk: &Desk, outline: &Outline, args: ListArgs) -> Result<(), Failure> {
    let ListArgs { sink, before, limit, json } = args;
    let limit = limit.unwrap_or(if json { usize::MAX } else { 50 });
    let mut rows = if json {
        Rows::json()
    } else {
        Rows::table(["SINK", "ID", "ORDER", "STATE", "ATTEMPTS", "FAILED", "REASON"])
    };
    let mut pages = DeadLetterPages::new(selection(desk, outline, sink, before)?, Direction::NewestFirst);
    let mut out = Paper::buffered();
    let (mut left, mut is_cut) = (limit, false);
    while !pages.is_done() && !is_cut && !out.get_ref().reader_left() {
        let mut page = desk.next_dead_letters(&mut pages)?;
        is_cut = left < page.len() || left == page.len() && !pages.is_done();
        page.truncate(left);
        left -= page.len();
        rows.print(&page, cells, |letter| serde_json::to_string(&told(letter, None)), &mut out)?;
    }
    rows.end(&mut out)?;
    if is_cut {
        output::note(format!("stopped after {}; --limit sets how many", output::count(limit, "dead letter")));
    } else if left == limit {
        output::note("no dead letters");
    }
    Ok(())
}

fn show(desk: &Desk, args: &ShowArgs) -> Result<(), Failure> {
    let letters = desk
        .dead_letters(&args.id, &Selection::default())?
        .into_iter()
        .map(|letter| Ok((desk.item(&letter)?.unwrap_or_default(), letter)))
        .collect::<Result<Vec<_>, JournalError>>()?;
    let mut out = Paper::buffered();
    if args.json {
        let mut rows = Rows::<0>::json();
        let json = |(item, letter): &(String, DeadLetter)| {
            serde_json::to_string(&told(letter, Some(output::raw(item))))
        };
        rows.print(&letters, |_| [], json, &mut out)?;
        rows.end(&mut out)?;
    } else {
        for (n, (item, letter)) in letters.iter().enumerate() {
            if 0 < n {
                writeln!(out)?;
            }
            print(letter, item, &mut out)?;
        }
    }
    Ok(out.flush()?)
}

/// Checks the sink's name: one that the configuration or the journal knows.
fn selection(
    desk: &Desk,
    outline: &Outline,
    sink: Option<String>,
    before: Option<Timestamp>,
) -> Result<Selection, Failure> {
    if let Some(name) = &sink {
        let mut known: BTreeSet<String> = desk.sinks()?.into_keys().collect();
        known.extend(outline.sinks.iter().cloned());
        if !known.contains(name) {
            return Err(NoSink { name: name.clone(), known: known.into_iter().collect() }.into());
        }
    }
    Ok(Selection { sink, before })
}

fn cells(letter: &DeadLetter) -> [String; 7] {
    let last = letter.tries.last.as_ref();
    [
        plain(letter.sink().unwrap_or("(quarantine)"), SHORT),
        hex(&letter.id),
        plain(letter.order_id.as_deref().unwrap_or("-"), SHORT),
        plain(letter.state.as_deref().unwrap_or("-"), SHORT),
        letter.tries.attempts.to_string(),
        output::time(last.map(|last| last.at)),
        plain(last.map_or("-", |last| &last.reason), 2 * SHORT),
    ]
}

fn told<'a>(letter: &'a DeadLetter, event: Option<&'a RawValue>) -> Letter<'a> {
    let last = letter.tries.last.as_ref();
    Letter {
        sink: letter.sink(),
        id: hex(&letter.id),
        account: &letter.account,
        subject: letter.order_id.as_deref(),
        state: letter.state.as_deref(),
        reason: last.map(|last| last.reason.as_str()),
        attempts: letter.tries.attempts,
        failed_at: last.map(|last| last.at),
        answer: last.and_then(|last| last.answer.as_deref()),
        event,
    }
}

fn print(letter: &DeadLetter, item: &str, out: &mut impl Write) -> io::Result<()> {
    let last = letter.tries.last.as_ref();
    let text = |text: Option<&str>| plain(text.unwrap_or("-"), LONG);
    let mut fields = vec![
        ("sink", text(letter.sink().or(Some("(quarantine)")))),
        ("id", hex(&letter.id)),
        ("account", text(Some(&letter.account))),
        ("order", text(letter.order_id.as_deref())),
        ("state", text(letter.state.as_deref())),
        ("attempts", letter.tries.attempts.to_string()),
        ("failed", output::time(last.map(|last| last.at))),
        ("reason", text(last.map(|last| last.reason.as_str()))),
    ];
    if letter.sink().is_some() {
        fields.push(("answer", text(last.and_then(|last| last.answer.as_deref()))));
    }
    fields.push(("event", plain(item, LONGEST)));
    output::print_fields(&fields, out)
}
