//! Envelopes as lines of a file that others may read, move away or write to.
//!
//! The file is opened for every delivery, so that one that was moved away (logrotate) is made anew. Nothing is
//! ever truncated. A line that a crash cut is completed where its rest is known, else ended with a newline.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Delivered, Envelope, Sink, SinkError};
use crate::config;
use crate::journal::Mark;

use tail::{End, Tail};

mod tail;

/// The sink of `type = "file"`.
pub struct FileSink {
    path: PathBuf,
    mode: u32,
    /// Set by a failed fsync: the kernel may call the lost pages clean, so what the file shows behind the mark
    /// proves nothing.
    sync_failed: Arc<AtomicBool>,
}

impl FileSink {
    pub fn new(file: &config::FileSink) -> Self {
        Self { path: file.path.clone(), mode: file.mode, sync_failed: Arc::default() }
    }
}

impl Sink for FileSink {
    async fn deliver(
        &mut self,
        envelopes: Vec<Envelope>,
        mark: Option<Mark>,
    ) -> Result<Delivered, SinkError> {
        let (path, mode, sync_failed) = (self.path.clone(), self.mode, Arc::clone(&self.sync_failed));
        tokio::task::spawn_blocking(move || deliver(&path, mode, &sync_failed, &envelopes, mark))
            .await
            .map_err(|_| SinkError::Task)?
    }
}

fn deliver(
    path: &Path,
    mode: u32,
    sync_failed: &AtomicBool,
    envelopes: &[Envelope],
    mark: Option<Mark>,
) -> Result<Delivered, SinkError> {
    let io = |doing| move |source| SinkError::Io { path: path.to_owned(), doing, source };
    let mut file = open(path, mode)?;
    let found = mark_of(&file).map_err(io("look at"))?;
    let is_where_we_left = |mark: &Mark| mark.inode == found.inode && mark.length <= found.length;
    let Some(mark) = mark.filter(is_where_we_left).filter(|_| !sync_failed.swap(false, Ordering::Relaxed))
    else {
        return Ok(Delivered::Anchored(found));
    };
    let tail = Tail::read(&file, mark.length, envelopes).map_err(io("read back"))?;
    let text = missing(envelopes, &tail);
    file.write_all(&text).map_err(io("write to"))?;
    file.sync_all().inspect_err(|_| sync_failed.store(true, Ordering::Relaxed)).map_err(io("sync"))?;
    Ok(Delivered::All(mark_of(&file).map_err(io("look at"))?))
}

/// Opens the file for appending, or makes it with exactly `mode`, whatever the umask is.
fn open(path: &Path, mode: u32) -> Result<File, SinkError> {
    let io = |doing| move |source| SinkError::Io { path: path.to_owned(), doing, source };
    match fs::metadata(path) {
        // Opening a pipe would block until somebody reads it.
        Ok(found) if !found.is_file() => return Err(SinkError::NotAFile { path: path.to_owned() }),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                // Not `create_new`: a link whose target was moved away gets a new target.
                .create(true)
                .mode(mode)
                .open(path)
                .map_err(io("make"))?;
            file.set_permissions(Permissions::from_mode(mode)).map_err(io("set the mode of"))?;
            let target = fs::canonicalize(path).map_err(io("look at"))?;
            let directory = File::open(target.parent().unwrap_or(Path::new("/")));
            directory.and_then(|directory| directory.sync_all()).map_err(io("sync the directory of"))?;
            return Ok(file);
        }
        Err(error) => return Err(io("look at")(error)),
    }
    OpenOptions::new().read(true).append(true).open(path).map_err(io("open"))
}

fn mark_of(file: &File) -> io::Result<Mark> {
    let metadata = file.metadata()?;
    Ok(Mark { inode: metadata.ino(), length: metadata.len() })
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
        End::Line(_) | End::ForeignLine => [b"\n", text.as_slice()].concat(),
    }
}

#[cfg(test)]
mod tests;
