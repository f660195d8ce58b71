//! The sinks, and that no two things write one file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::states;
use super::taken::{Taken, real};
use super::{Remarks, command, webhook};
use crate::config::raw::{RawAccountNames, RawFileSink, RawSink, RawStates};
use crate::config::{FileSink, Journal, Sink, SinkKind, Wanted};
use crate::policy::rotation;

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
    let states: Option<BTreeSet<String>> =
        states.map(|states| states.0.into_iter().map(|state| state.value.0).collect());
    for state in states.iter().flatten() {
        if let Some(meant) = states::meant_by(state) {
            let doubt = format!("`{state}` is no state that is known of VTEX; the nearest one is `{meant}`");
            remarks.doubt(&["sinks", name, "states"], doubt);
        }
    }
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
    let RawFileSink { states: _, accounts: _, path, mode, rotate, max_bytes, max_files } = raw;
    if path.is_none() {
        remarks.require(&["sinks", name, "path"], "the path of the file to append to");
    }
    let (path, mode, every) = (path?.value.0, mode?.value.0, rotate?.value.0);
    let max_bytes = max_bytes.map(|size| size.value.0);
    let rotates = every.is_some() || max_bytes.is_some();
    if max_files.is_some() && !rotates {
        let message = "means nothing while no file is put aside: say rotate or max_bytes, or leave it out";
        remarks.refuse(&["sinks", name, "max_files"], message);
    }
    let n_bytes = real(&path).file_name().map_or(0, OsStr::len);
    if rotates && NAME_MAX < n_bytes + rotation::STAMP_BYTES {
        let message =
            format!("must have a name of at most {} bytes to be rotated", NAME_MAX - rotation::STAMP_BYTES);
        remarks.refuse(&["sinks", name, "path"], message);
    }
    let max_files = max_files.map(|n| n.0);
    Some(FileSink {
        path,
        mode,
        rotation: rotates.then_some(rotation::Settings { every, max_bytes, max_files }),
    })
}

/// The longest name of a file on Linux, in bytes.
const NAME_MAX: usize = 255;

fn refuse_shared_files<'a>(
    sinks: impl Iterator<Item = &'a Sink>,
    journal: Option<&Journal>,
    taken: &Taken<'_>,
    remarks: &mut Remarks,
) {
    let journal = journal.map(|journal| real(&journal.path));
    let mut writers: BTreeMap<PathBuf, &str> = BTreeMap::new();
    let files = sinks.filter_map(|Sink { name, wanted: _, kind }| match kind {
        SinkKind::File(file) => Some((name, file)),
        SinkKind::Webhook(_) | SinkKind::Command(_) => None,
    });
    let files: Vec<_> = files.collect();
    for (name, FileSink { path, mode: _, rotation: _ }) in &files {
        let key = ["sinks", name, "path"];
        if let Some(what) = taken.by(path) {
            remarks.refuse(&key, format!("is {what}; it must be another one"));
        }
        let path = real(path);
        if journal.as_ref().is_some_and(|journal| belongs_to(&path, journal)) {
            remarks.refuse(&key, "is a file of the journal (journal.path); it must be another one");
        }
        if let Some((other, _)) = files.iter().find(|(_, other)| puts_aside_as(other, &path)) {
            remarks.refuse(&key, format!("is a name that sinks.{other} gives to files it puts aside"));
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

/// Whether a sink may rename its own file to `path`, which is a real one.
fn puts_aside_as(sink: &FileSink, path: &Path) -> bool {
    let own = real(&sink.path);
    let is_its_name = || {
        let (own, name) = (own.file_name()?.to_str()?, path.file_name()?.to_str()?);
        rotation::Names::beside(own).stamp(name)
    };
    sink.rotation.is_some() && own.parent() == path.parent() && is_its_name().is_some()
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
