//! The files of a simulated machine, and what is left of them when the power goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Kept in memory where that is possible: a simulation syncs millions of times.
const IN_MEMORY: &str = "/dev/shm";

/// What a write-ahead log begins with; it changes when the log begins anew.
const WAL_HEADER_BYTES: usize = 32;

/// A log of this length may have been moved into the database by the last transaction, and so been synced before.
const WAL_MAY_BE_CHECKPOINTED: u64 = 4_000_000;

pub(super) struct Storage {
    directory: TempDir,
}

/// Where a write-ahead log stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WalMark {
    header: [u8; WAL_HEADER_BYTES],
    length: u64,
}

impl Storage {
    /// # Errors
    /// No directory could be made.
    pub(super) fn new() -> io::Result<Self> {
        let builder = tempfile::Builder::new();
        let in_memory = Path::new(IN_MEMORY);
        let directory = builder.tempdir_in(in_memory).or_else(|_| builder.tempdir())?;
        Ok(Self { directory })
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.directory.path().join("journal.db")
    }

    pub(super) fn sink(&self, sink: usize) -> PathBuf {
        self.directory.path().join(format!("sink-{sink}.jsonl"))
    }

    /// Moves a sink's file away as logrotate does; returns whether there was one.
    pub(super) fn rotate(&self, sink: usize) -> bool {
        let path = self.sink(sink);
        let n_before = self.sink_parts(sink).len();
        fs::rename(&path, path.with_extension(format!("jsonl.{n_before:06}"))).is_ok()
    }

    /// All that a sink ever got, oldest first.
    pub(super) fn sink_parts(&self, sink: usize) -> Vec<PathBuf> {
        let prefix = format!("sink-{sink}.jsonl.");
        let is_part = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix))
        };
        let entries = fs::read_dir(self.directory.path()).into_iter().flatten().flatten();
        let mut parts: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_part).collect();
        parts.sort();
        if fs::metadata(self.sink(sink)).is_ok() {
            parts.push(self.sink(sink));
        }
        parts
    }

    pub(super) fn sink_length(&self, sink: usize) -> u64 {
        fs::metadata(self.sink(sink)).map_or(0, |file| file.len())
    }

    /// Leaves only `length` bytes of a sink's file, as a crash before the sync may.
    pub(super) fn tear_sink(&self, sink: usize, length: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.sink(sink))?.set_len(length)
    }

    /// `None` while there is no log.
    pub(super) fn wal_mark(&self) -> Option<WalMark> {
        mark(&self.wal())
    }

    /// Copies the journal as it stands now, while it is open: what closing it does later, a crash would not have
    /// done. Of a transaction behind `untold` only a share from 0 to 1 is copied; returns how many bytes are missing.
    pub(super) fn copy_journal(&self, untold: Option<WalMark>, share: f64) -> io::Result<u64> {
        fs::copy(self.journal(), self.copy_of("db"))?;
        let Some(now) = self.wal_mark() else { return Ok(0) };
        fs::copy(self.wal(), self.copy_of("wal"))?;
        let Some(before) = untold else { return Ok(0) };
        let may_tear =
            before.header == now.header && before.length < now.length && now.length < WAL_MAY_BE_CHECKPOINTED;
        if !may_tear {
            return Ok(0);
        }
        let kept = (((now.length - before.length) as f64) * share) as u64;
        let length = before.length + kept;
        OpenOptions::new().write(true).open(self.copy_of("wal"))?.set_len(length)?;
        Ok(now.length - length)
    }

    /// Puts the copy in place of the journal, which must be closed.
    pub(super) fn put_copy_back(&self) -> io::Result<()> {
        for name in [self.wal(), self.beside("-shm")] {
            match fs::remove_file(name) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        fs::rename(self.copy_of("db"), self.journal())?;
        match fs::rename(self.copy_of("wal"), self.wal()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The bytes of everything that the journal keeps.
    pub(super) fn journal_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = fs::read(self.journal())?;
        if fs::metadata(self.wal()).is_ok() {
            bytes.extend(fs::read(self.wal())?);
        }
        Ok(bytes)
    }

    fn wal(&self) -> PathBuf {
        self.beside("-wal")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.directory.path().join(format!("journal.db{suffix}"))
    }

    fn copy_of(&self, part: &str) -> PathBuf {
        self.directory.path().join(format!("copy.{part}"))
    }
}

fn mark(wal: &Path) -> Option<WalMark> {
    let mut file = File::open(wal).ok()?;
    let mut header = [0; WAL_HEADER_BYTES];
    file.read_exact(&mut header).ok()?;
    Some(WalMark { header, length: file.metadata().ok()?.len() })
}
