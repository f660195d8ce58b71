//! The sinks, and that no two things write one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Remarks;
use super::taken::{Taken, real};
use crate::config::raw::{RawFileSink, RawSink};
use crate::config::{FileSink, Journal, Sink, SinkKind};

pub(super) fn sinks(
    raw: BTreeMap<String, RawSink>,
    journal: Option<&Journal>,
    taken: &Taken<'_>,
    remarks: &mut Remarks,
) -> Option<Vec<Sink>> {
    if raw.is_empty() {
        remarks.doubt(&["sinks"], "none is configured: events stay in the journal and are delivered nowhere");
    }
    let sinks: Vec<_> = raw.into_iter().map(|(name, raw)| sink(name, raw, remarks)).collect();
    refuse_shared_files(sinks.iter().flatten(), journal, taken, remarks);
    sinks.into_iter().collect()
}

fn sink(name: String, raw: RawSink, remarks: &mut Remarks) -> Option<Sink> {
    let kind = match raw {
        RawSink::File(raw) => SinkKind::File(file_sink(&name, raw, remarks)?),
    };
    Some(Sink { name, kind })
}

fn file_sink(name: &str, raw: RawFileSink, remarks: &mut Remarks) -> Option<FileSink> {
    let RawFileSink { path, mode } = raw;
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
    for Sink { name, kind: SinkKind::File(FileSink { path, .. }) } in sinks {
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
