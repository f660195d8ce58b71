//! Rolling log files: one a day or an hour (UTC), of which the newest are kept.
//!
//! `tracing_appender::rolling` cannot carry this: it prunes whatever begins and ends like its own files, keeps writing to
//! a file that was moved or deleted until the next rotation, says its failures to stderr only, and leaves half a line
//! behind when the disk is full. Its off-thread writer is used all the same, see `queue`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tracing::warn;

use super::ErrorChain;
use super::lines::Output;
use crate::config::LogFiles;

mod names;
mod tidy;

/// Permission bits of a new log file, less the umask: readable by the group, so that a log shipper needs no root.
const MODE: u32 = 0o640;

/// The file that is written now, whatever happens to it: moved, deleted, truncated, its directory gone, its disk full.
pub(super) struct RollingFile {
    settings: LogFiles,
    current: Option<Current>,
    /// Whether the link led to the current file after the last line.
    linked: bool,
}

struct Current {
    file: File,
    path: PathBuf,
    /// Device and inode, to see whether the path still leads to this file.
    identity: (u64, u64),
    /// Whether the file ends inside a line, which the next line must not continue.
    torn: bool,
}

impl RollingFile {
    /// Touches nothing yet; the first line makes the directory and the file.
    pub(super) fn new(settings: LogFiles) -> Self {
        Self { settings, current: None, linked: true }
    }

    /// The file for this moment: the one that is open while its name and its inode are right, else opened anew.
    fn current(&mut self, now: Timestamp) -> io::Result<&mut Current> {
        let LogFiles { directory, rotation, max_files } = &self.settings;
        let name = names::file_name(*rotation, now);
        let path = directory.join(&name);
        let current = match self.current.take().filter(|current| current.is_at(&path)) {
            Some(current) => current,
            None => {
                fs::create_dir_all(directory)?;
                let current = Current::open(path)?;
                // After the opening: said for each opening that succeeds, and never in answer to its own failure.
                if let Err(error) = tidy::prune(directory, &name, *max_files) {
                    warn!(event = "log.untidy", error = %ErrorChain(&error), "old log files could not be removed");
                }
                current
            }
        };
        // For each line, as for the file: somebody may have removed it since.
        let linked = tidy::link(directory, &name);
        let was_linked = std::mem::replace(&mut self.linked, linked.is_ok());
        // Not again for the line that says so.
        if let Err(error) = linked
            && was_linked
        {
            warn!(event = "log.untidy", error = %ErrorChain(&error), "the link to the log file could not be made");
        }
        Ok(self.current.insert(current))
    }
}

impl Output for RollingFile {
    const NAME: &'static str = "file";
    const THREAD: &'static str = "log-file";

    fn write_line(&mut self, now: Timestamp, line: &[u8]) -> io::Result<()> {
        self.current(now)?.append(line)
    }
}

impl Current {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(MODE).open(&path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let torn = ends_inside_a_line(&file, metadata.len())?;
        Ok(Self { file, path, identity: identity(&metadata), torn })
    }

    fn is_at(&self, path: &Path) -> bool {
        self.path == path && fs::metadata(path).is_ok_and(|metadata| identity(&metadata) == self.identity)
    }

    /// Appends a whole line or, where that fails, nothing.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        let mut n_written = 0;
        while n_written < line.len() {
            match self.file.write(&line[n_written..]) {
                Ok(0) => return self.take_back(n_written, io::ErrorKind::WriteZero.into()),
                Ok(n) => n_written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.take_back(n_written, error),
            }
        }
        Ok(())
    }

    /// Removes the `n_written` bytes of a line that could not be finished, and passes the reason on.
    fn take_back(&mut self, n_written: usize, reason: io::Error) -> io::Result<()> {
        if 0 < n_written {
            let removed = self.remove_last(n_written as u64);
            self.torn = !removed.unwrap_or(false);
        }
        Err(reason)
    }

    /// Cuts the file by its last bytes, but only while they are those written last by this process.
    fn remove_last(&mut self, n: u64) -> io::Result<bool> {
        let end = self.file.stream_position()?;
        if self.file.metadata()?.len() != end {
            return Ok(false);
        }
        self.file.set_len(end.saturating_sub(n))?;
        Ok(true)
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Whether a file of this length was left (by a crash, or by somebody else) without a newline at its end.
fn ends_inside_a_line(file: &File, length: u64) -> io::Result<bool> {
    let Some(last) = length.checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    let n_read = file.read_at(&mut byte, last)?;
    Ok(n_read == 1 && byte != *b"\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::config::Rotation;

    #[test]
    fn a_new_day_begins_a_new_file() {
        let (directory, mut output) = daily(14);
        output.write_line(day(1), b"one\n").unwrap();
        output.write_line(day(2), b"two\n").unwrap();
        assert_eq!(
            contents(&directory),
            [
                ("order-feed-agent.2026-01-01.log".to_owned(), "one\n".to_owned()),
                ("order-feed-agent.2026-01-02.log".to_owned(), "two\n".to_owned()),
            ]
        );
    }

    #[test]
    fn a_restart_continues_the_file_of_the_day() {
        let (directory, mut output) = daily(1);
        output.write_line(day(1), b"one\n").unwrap();
        RollingFile::new(output.settings).write_line(day(1), b"two\n").unwrap();
        assert_eq!(contents(&directory)[0].1, "one\ntwo\n");
    }

    #[test]
    fn a_file_that_was_moved_or_deleted_is_made_anew() {
        let (directory, mut output) = daily(14);
        let path = directory.path().join("order-feed-agent.2026-01-01.log");
        output.write_line(day(1), b"one\n").unwrap();
        fs::rename(&path, directory.path().join("moved")).unwrap();
        output.write_line(day(1), b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        fs::remove_file(&path).unwrap();
        output.write_line(day(1), b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn a_link_that_was_deleted_or_led_astray_is_made_anew_at_the_next_line() {
        let (directory, mut output) = daily(14);
        let link = directory.path().join(names::LINK);
        output.write_line(day(1), b"one\n").unwrap();
        fs::remove_file(&link).unwrap();
        output.write_line(day(1), b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "one\ntwo\n");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        output.write_line(day(1), b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn a_link_that_cannot_be_made_costs_no_line() {
        let (directory, mut output) = daily(14);
        // A folder is in the way of the new link.
        fs::create_dir_all(directory.path().join(format!(".{}.new", names::LINK))).unwrap();
        for line in [b"one\n", b"two\n"] {
            output.write_line(day(1), line).unwrap();
        }
        assert_eq!(contents(&directory)[0].1, "one\ntwo\n");
    }

    #[test]
    fn a_file_that_was_truncated_is_continued_at_its_new_end() {
        let (directory, mut output) = daily(14);
        output.write_line(day(1), b"one\n").unwrap();
        File::create(directory.path().join("order-feed-agent.2026-01-01.log")).unwrap();
        output.write_line(day(1), b"two\n").unwrap();
        assert_eq!(contents(&directory)[0].1, "two\n");
    }

    #[test]
    fn a_directory_that_was_removed_is_made_anew() {
        let (directory, mut output) = daily(14);
        output.write_line(day(1), b"one\n").unwrap();
        fs::remove_dir_all(directory.path()).unwrap();
        output.write_line(day(1), b"two\n").unwrap();
        assert_eq!(contents(&directory)[0].1, "two\n");
    }

    #[test]
    fn a_directory_that_cannot_be_made_costs_lines_until_it_can() {
        let (directory, mut output) = daily(14);
        let blocked = directory.path().join("logs");
        fs::write(&blocked, "a file where a directory should be").unwrap();
        output.settings.directory = blocked.clone();
        output.write_line(day(1), b"one\n").unwrap_err();
        fs::remove_file(&blocked).unwrap();
        output.write_line(day(1), b"two\n").unwrap();
        assert_eq!(fs::read_to_string(blocked.join("order-feed-agent.2026-01-01.log")).unwrap(), "two\n");
    }

    #[test]
    fn half_a_line_left_by_a_crash_is_ended_before_the_next() {
        let (directory, mut output) = daily(14);
        fs::write(directory.path().join("order-feed-agent.2026-01-01.log"), "whole\nhal").unwrap();
        output.write_line(day(1), b"one\n").unwrap();
        assert_eq!(contents(&directory)[0].1, "whole\nhal\none\n");
    }

    #[test]
    fn a_line_that_could_not_be_finished_is_taken_back_unless_somebody_wrote_after_it() {
        let (directory, mut output) = daily(14);
        output.write_line(day(1), b"one\n").unwrap();
        let current = output.current(day(1)).unwrap();
        current.file.write_all(b"tw").unwrap();
        current.take_back(2, io::Error::other("full")).unwrap_err();
        assert!(!current.torn);
        current.file.write_all(b"thr").unwrap();
        let foreign = directory.path().join("order-feed-agent.2026-01-01.log");
        OpenOptions::new().append(true).open(foreign).unwrap().write_all(b"foreign").unwrap();
        current.take_back(3, io::Error::other("full")).unwrap_err();
        output.write_line(day(1), b"four\n").unwrap();
        assert_eq!(contents(&directory)[0].1, "one\nthrforeign\nfour\n");
    }

    #[test]
    fn a_special_file_at_the_path_is_refused() {
        let (directory, mut output) = daily(14);
        std::os::unix::fs::symlink("/dev/null", directory.path().join("order-feed-agent.2026-01-01.log"))
            .unwrap();
        output.write_line(day(1), b"one\n").unwrap_err();
    }

    fn daily(max_files: u32) -> (TempDir, RollingFile) {
        let directory = tempfile::tempdir().unwrap();
        let settings =
            LogFiles { directory: directory.path().to_owned(), rotation: Rotation::Daily, max_files };
        (directory, RollingFile::new(settings))
    }

    /// Noon of a day in January 2026.
    fn day(day: u64) -> Timestamp {
        let noon: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        noon + Duration::from_secs((day - 1) * 86_400)
    }

    /// The regular files of a directory by name, with their contents.
    fn contents(directory: &TempDir) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(Result::unwrap)
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }
}
