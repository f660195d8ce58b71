//! Envelopes as lines of a file that others may read, move away or write to.
//!
//! The file is opened for every delivery, so that one that was moved away (logrotate, or [`rotation`]) is made anew.
//! Nothing is ever truncated. A line that a crash cut is completed where its rest is known, else ended with a newline.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;

use super::{Delivered, Envelope, Sink, SinkError};
use crate::config;
use crate::journal::Mark;
use crate::wall::Wall;

use rotation::Rotation;
use tail::{End, Tail};

mod rotation;
mod tail;

/// The sink of `type = "file"`.
pub struct FileSink {
    target: Arc<Target>,
    wall: Wall,
}

/// The file and what is known of it, for the thread that works on it.
struct Target {
    path: PathBuf,
    mode: u32,
    rotation: Option<Rotation>,
    /// Set by a failed fsync: the kernel may call the lost pages clean, so what the file shows behind the mark
    /// proves nothing.
    sync_failed: AtomicBool,
}

impl FileSink {
    pub fn new(file: &config::FileSink, wall: Wall) -> Self {
        Self { target: Arc::new(Target::new(file)), wall }
    }
}

impl Sink for FileSink {
    async fn deliver(
        &mut self,
        envelopes: Vec<Envelope>,
        mark: Option<Mark>,
    ) -> Result<Delivered, SinkError> {
        let (target, now) = (Arc::clone(&self.target), self.wall.now());
        tokio::task::spawn_blocking(move || target.deliver(&envelopes, mark, now))
            .await
            .map_err(|_| SinkError::Task)?
    }
}

impl Target {
    fn new(file: &config::FileSink) -> Self {
        let config::FileSink { path, mode, rotation } = file;
        let rotation = rotation.map(Rotation::new);
        Self { path: path.clone(), mode: *mode, rotation, sync_failed: AtomicBool::new(false) }
    }

    fn deliver(
        &self,
        envelopes: &[Envelope],
        mark: Option<Mark>,
        now: Timestamp,
    ) -> Result<Delivered, SinkError> {
        let mut file = self.open()?;
        if let Some(rotation) = &self.rotation {
            rotation.tidy(&self.path);
        }
        let found = mark_of(&file).map_err(self.io("look at"))?;
        let is_where_we_left = |mark: &Mark| mark.inode == found.inode && mark.length <= found.length;
        let Some(mark) =
            mark.filter(is_where_we_left).filter(|_| !self.sync_failed.swap(false, Ordering::Relaxed))
        else {
            return self.anchor(&file);
        };
        let tail = Tail::read(&file, mark.length, envelopes).map_err(self.io("read back"))?;
        let n_events = match &self.rotation {
            None => envelopes.len(),
            Some(rotation) => match n_fitting(envelopes, &tail, rotation.room(found.length)) {
                n_fitting if tail.is_settled() && rotation.is_due(&file, n_fitting, now) => {
                    if rotation.rotate(&self.path, &file) {
                        return self.anchor(&self.open()?);
                    }
                    // Better a file too long than one event at a time.
                    envelopes.len()
                }
                n_fitting => n_fitting.max(n_at_least(envelopes, &tail)),
            },
        };
        let envelopes_in_hand = &envelopes[..n_events.min(envelopes.len())];
        file.write_all(&missing(envelopes_in_hand, &tail)).map_err(self.io("write to"))?;
        let synced = file.sync_all().inspect_err(|_| self.sync_failed.store(true, Ordering::Relaxed));
        synced.map_err(self.io("sync"))?;
        let mark = mark_of(&file).map_err(self.io("look at"))?;
        Ok(match envelopes_in_hand.len() {
            n_events if n_events < envelopes.len() => Delivered::Part { n_events, mark },
            _ => Delivered::All(mark),
        })
    }

    /// Tells where the file stands, once its name is on stable storage: what is written to it later could not be
    /// found otherwise, and a rename that was undone by a power failure would bring another file back.
    fn anchor(&self, file: &File) -> Result<Delivered, SinkError> {
        let found = mark_of(file).map_err(self.io("look at"))?;
        let real = fs::canonicalize(&self.path).map_err(self.io("look at"))?;
        let directory = File::open(real.parent().unwrap_or(Path::new("/")));
        directory.and_then(|directory| directory.sync_all()).map_err(self.io("sync the directory of"))?;
        Ok(Delivered::Anchored(found))
    }

    /// Opens the file for appending, or makes it with exactly the mode, whatever the umask is.
    fn open(&self) -> Result<File, SinkError> {
        match fs::metadata(&self.path) {
            // Opening a pipe would block until somebody reads it.
            Ok(found) if !found.is_file() => return Err(SinkError::NotAFile { path: self.path.clone() }),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = OpenOptions::new()
                    .read(true)
                    .append(true)
                    // Not `create_new`: a link whose target was moved away gets a new target.
                    .create(true)
                    .mode(self.mode)
                    .open(&self.path)
                    .map_err(self.io("make"))?;
                let mode = Permissions::from_mode(self.mode);
                file.set_permissions(mode).map_err(self.io("set the mode of"))?;
                return Ok(file);
            }
            Err(error) => return Err(self.io("look at")(error)),
        }
        OpenOptions::new().read(true).append(true).open(&self.path).map_err(self.io("open"))
    }

    fn io(&self, doing: &'static str) -> impl Fn(io::Error) -> SinkError {
        let path = self.path.clone();
        move |source| SinkError::Io { path: path.clone(), doing, source }
    }
}

fn mark_of(file: &File) -> io::Result<Mark> {
    let metadata = file.metadata()?;
    Ok(Mark { inode: metadata.ino(), length: metadata.len() })
}

/// How many of the envelopes, from the first, are in the file or have room in it.
fn n_fitting(envelopes: &[Envelope], tail: &Tail, room: u64) -> usize {
    let mut n_bytes = 0;
    let fits = |envelope: &&Envelope| {
        if !tail.holds(envelope) {
            n_bytes += envelope.line.len() as u64 + 1;
        }
        n_bytes <= room
    };
    envelopes.iter().take_while(fits).count()
}

/// How many of the envelopes are to be handled at once whatever the room: a line that a crash cut gets its rest.
fn n_at_least(envelopes: &[Envelope], tail: &Tail) -> usize {
    let n_whole = match tail.end {
        End::Line(_) => envelopes.iter().take_while(|envelope| tail.holds(envelope)).count(),
        End::Newline | End::WithoutNewline => 0,
    };
    n_whole + 1
}

/// What is still to be written: the lines that the tail lacks, after whatever ends its last line.
fn missing(envelopes: &[Envelope], tail: &Tail) -> Vec<u8> {
    let mut text = Vec::new();
    for envelope in envelopes.iter().filter(|envelope| !tail.holds(envelope)) {
        text.extend_from_slice(envelope.line.as_bytes());
        text.push(b'\n');
    }
    match &tail.end {
        End::Newline => text,
        End::Line(begun) if text.starts_with(begun) => text.split_off(begun.len()),
        End::Line(_) | End::WithoutNewline => [b"\n", text.as_slice()].concat(),
    }
}

#[cfg(test)]
mod tests;
