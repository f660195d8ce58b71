//! The sinks, and that no two things write one file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::taken::{Taken, real};
use super::{Remarks, command, webhook};
use crate::config::raw::{RawAccountNames, RawFileSink, RawSink, RawStates};
use crate::config::{FileSink, Journal, Sink, SinkKind, Wanted};

/// `accounts` are all that the configuration names, also those that are switched off.
pub(super) fn sinks(
    raw: BTreeMap<String, RawSink>,
    accounts: &BTreeSet<String>,
    journal: Option<&Journal>,
    taken: &Taken<'_>,
    remarks: &mut Remarks,
) -> Option<Vec<Sink>> {
    if raw.is_empty() {
        remarks.doubt(&["sinks"], "none is configured: events stay in the journal and are delivered nowhere");
    }
    let sinks: Vec<_> =
        raw.into_iter().map(|(name, raw)| sink(name, raw, accounts, taken, remarks)).collect();
    refuse_shared_files(sinks.iter().flatten(), journal, taken, remarks);
    sinks.into_iter().collect()
}

fn sink(
    name: String,
    raw: RawSink,
    accounts: &BTreeSet<String>,
    taken: &Taken<'_>,
    remarks: &mut Remarks,
) -> Option<Sink> {
    let (wanted, kind) = match raw {
        RawSink::File(mut raw) => {
            let wanted = wanted(&name, raw.states.take(), raw.accounts.take(), accounts, remarks);
            (wanted, file_sink(&name, raw, remarks).map(SinkKind::File))
        }
        RawSink::Webhook(mut raw) => {
            let wanted = wanted(&name, raw.states.take(), raw.accounts.take(), accounts, remarks);
            let webhook = webhook::webhook(&name, *raw, taken.surroundings, remarks);
            (wanted, webhook.map(|webhook| SinkKind::Webhook(Box::new(webhook))))
        }
        RawSink::Command(mut raw) => {
            let wanted = wanted(&name, raw.states.take(), raw.accounts.take(), accounts, remarks);
            let command = command::command(&name, *raw, taken.surroundings, remarks);
            (wanted, command.map(SinkKind::Command))
        }
    };
    Some(Sink { name, wanted: wanted?, kind: kind? })
}

fn wanted(
    name: &str,
    states: Option<RawStates>,
    accounts: Option<RawAccountNames>,
    known: &BTreeSet<String>,
    remarks: &mut Remarks,
) -> Option<Wanted> {
    let states = states.map(|states| states.0.into_iter().map(|state| state.value.0).collect());
    let accounts: Option<BTreeSet<String>> =
        accounts.map(|accounts| accounts.0.into_iter().map(|account| account.value.0).collect());
    if accounts.as_ref().is_some_and(|wanted| !wanted.is_subset(known)) {
        let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let message = format!("must be names of accounts of this configuration: {known}");
        remarks.refuse(&["sinks", name, "accounts"], message);
        return None;
    }
    Some(Wanted { states, accounts })
}

fn file_sink(name: &str, raw: RawFileSink, remarks: &mut Remarks) -> Option<FileSink> {
    let RawFileSink { states: _, accounts: _, path, mode } = raw;
    if path.is_none() {
        remarks.require(&["sinks", name, "path"], "the path of the file to append to");
    }
    Some(FileSink { path: path?.value.0, mode: mode?.value.0 })
}

fn refuse_shared_files<'a>(
    sinks: impl Iterator<Item = &'a Sink>,
    journal: Option<&Journal>,
    taken: &Taken<'_>,
    remarks: &mut Remarks,
) {
    let journal = journal.map(|journal| real(&journal.path));
    let mut writers: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for Sink { name, wanted: _, kind } in sinks {
        let path = match kind {
            SinkKind::File(FileSink { path, mode: _ }) => path,
            SinkKind::Webhook(_) | SinkKind::Command(_) => continue,
        };
        let key = ["sinks", name, "path"];
        if let Some(what) = taken.by(path) {
            remarks.refuse(&key, format!("is {what}; it must be another one"));
        }
        let path = real(path);
        if journal.as_ref().is_some_and(|journal| belongs_to(&path, journal)) {
            remarks.refuse(&key, "is a file of the journal (journal.path); it must be another one");
        }
        match writers.get(&path) {
            Some(other) => {
                remarks.refuse(&key, format!("sinks.{other} writes the same file; each needs its own"))
            }
            None => {
                writers.insert(path, name);
            }
        }
    }
}

/// The database itself or one of SQLite's and the agent's files beside it, such as `journal.db-wal`.
fn belongs_to(path: &Path, journal: &Path) -> bool {
    let starts_alike = || {
        let (name, journal_name) = (path.file_name()?.to_str()?, journal.file_name()?.to_str()?);
        let rest = name.strip_prefix(journal_name)?;
        Some(matches!(rest, "" | "-wal" | "-shm" | "-journal" | ".lock" | "-lock"))
    };
    path.parent() == journal.parent() && starts_alike().unwrap_or(false)
}
