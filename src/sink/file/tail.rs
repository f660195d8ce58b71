//! What stands in a file behind the recorded mark.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use serde::Deserialize;

use super::Envelope;

/// A longer line is looked at in pieces, none of which is ours.
const LINE_MAX: u64 = 16 * 1024 * 1024;

pub(super) struct Tail {
    /// The ids among those asked for whose lines are whole.
    ids: HashSet<String>,
    pub(super) end: End,
}

/// How the file ends.
pub(super) enum End {
    Newline,
    /// In a line that lacks nothing but its end: one that was begun before the mark, so by somebody else, or a whole one.
    WithoutNewline,
    /// In a line that was begun behind the mark, with what stands of it.
    Line(Vec<u8>),
}

impl Tail {
    /// Reads from the byte before `offset`, which tells whether the line before it was ended.
    pub(super) fn read(mut file: &File, offset: u64, envelopes: &[Envelope]) -> io::Result<Self> {
        let wanted: HashSet<&str> = envelopes.iter().map(|envelope| envelope.id.as_str()).collect();
        let mut tail = Self { ids: HashSet::new(), end: End::Newline };
        let mut position = file.seek(SeekFrom::Start(offset.saturating_sub(1)))?;
        let mut reader = BufReader::new(file);
        loop {
            let mut line = Vec::new();
            if reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(tail);
            }
            let begun_at = position;
            position += line.len() as u64;
            let whole = id(&line).filter(|id| wanted.contains(id.as_ref())).map(Cow::into_owned);
            let is_whole = whole.is_some();
            tail.ids.extend(whole);
            tail.end = if line.ends_with(b"\n") {
                End::Newline
            } else if is_whole || begun_at < offset {
                End::WithoutNewline
            } else {
                End::Line(line)
            };
        }
    }

    /// Whether nothing of ours stands behind the mark, not even a line cut short.
    pub(super) fn is_settled(&self) -> bool {
        self.ids.is_empty() && matches!(self.end, End::Newline)
    }

    pub(super) fn holds(&self, envelope: &Envelope) -> bool {
        self.ids.contains(&envelope.id)
    }
}

fn id(line: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    serde_json::from_slice(line).ok().map(|line: Line<'_>| line.id)
}
