//! Puts the file aside under a name that tells when it was last written, and removes the oldest of those.
//!
//! A rename and nothing else: whatever comes after it, a crash included, is what logrotate leaves behind, a file that
//! is not there and is made anew. It is done only while nothing of ours stands behind the mark, because nobody looks
//! for it in a file that was put aside. Nothing in here fails a delivery.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::observe::logging::ErrorChain;
use crate::observe::thinning::Thinning;
use crate::policy::rotation::{Names, Settings};
use crate::tidy;

pub(super) struct Rotation {
    settings: Settings,
    /// Whether there may be more files than are to be kept.
    untidy: AtomicBool,
    failing: Mutex<Thinning<Job>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Rotate,
    Tidy,
}

impl Rotation {
    pub(super) fn new(settings: Settings) -> Self {
        // A crash may have come between a rotation and the tidying after it.
        Self { settings, untidy: AtomicBool::new(true), failing: Mutex::default() }
    }

    /// How many bytes a file of this length may still get.
    pub(super) fn room(&self, length: u64) -> u64 {
        self.settings.room(length)
    }

    /// Whether the file is to be put aside before anything is written to it; `n_fitting` of the next lines have room
    /// in it.
    ///
    /// How old a file is tells its own time of modification, which outlives every restart and goes with what others
    /// write to it.
    pub(super) fn is_due(&self, file: &File, n_fitting: usize, now: Timestamp) -> bool {
        let Ok(metadata) = file.metadata() else { return false };
        let is_over = || written(&metadata).is_ok_and(|written| self.settings.is_over(written, now));
        0 < metadata.len() && (n_fitting == 0 || is_over())
    }

    /// Puts the file at `path` aside, or the one that a link there leads to; returns whether it did. `file` is that
    /// file.
    pub(super) fn rotate(&self, path: &Path, file: &File) -> bool {
        match put_aside(path, file) {
            Ok(name) => {
                self.untidy.store(true, Ordering::Relaxed);
                self.works(Job::Rotate);
                info!(event = "sink.rotated", path = %path.display(), name, "file was put aside");
                true
            }
            Err(error) => {
                self.fails(Job::Rotate, path, &error, "file could not be put aside; it goes on growing");
                false
            }
        }
    }

    /// Removes the oldest of the files put aside, if there may be too many.
    pub(super) fn tidy(&self, path: &Path) {
        let Some(max_files) = self.settings.max_files else { return };
        if !self.untidy.load(Ordering::Relaxed) {
            return;
        }
        match remove_old(path, max_files) {
            Ok(()) => {
                self.untidy.store(false, Ordering::Relaxed);
                self.works(Job::Tidy);
            }
            Err(error) => self.fails(Job::Tidy, path, &error, "old files could not be removed"),
        }
    }

    fn works(&self, job: Job) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.end(|failed| *failed == job, Instant::now());
    }

    fn fails(&self, job: Job, path: &Path, error: &io::Error, what: &'static str) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failures) = failing.note(job, Instant::now()) {
            warn!(
                event = "sink.untidy", path = %path.display(), failures, error = %ErrorChain(error),
                "{what}; this is tried again at the next delivery"
            );
        }
    }
}

/// Returns the new name.
fn put_aside(path: &Path, file: &File) -> io::Result<String> {
    let real = fs::canonicalize(path)?;
    let (directory, names) = place(&real)?;
    let mut existing = Vec::new();
    for entry in fs::read_dir(directory)? {
        existing.extend(entry?.file_name().into_string());
    }
    let existing = existing.iter().map(String::as_str);
    let written = written(&file.metadata()?)?;
    let name = names.next(existing, written).ok_or_else(|| io::Error::other("no later name is left"))?;
    fs::rename(&real, directory.join(&name))?;
    Ok(name)
}

fn remove_old(path: &Path, max_files: u32) -> io::Result<()> {
    let real = fs::canonicalize(path)?;
    let (directory, names) = place(&real)?;
    tidy::remove(directory, |found| names.expired(found, max_files))
}

/// Where the files are that were put aside, and how they are named.
fn place(real: &Path) -> io::Result<(&Path, Names)> {
    let name = real.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "its name is not text"))?;
    Ok((real.parent().unwrap_or(Path::new("/")), Names::beside(name)))
}

fn written(metadata: &fs::Metadata) -> io::Result<Timestamp> {
    Timestamp::try_from(metadata.modified()?).map_err(io::Error::other)
}
