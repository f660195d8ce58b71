//! The standard output as a place for lines: closed, full or stalled, it costs lines and never the agent.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Ending;
use super::lines::Output;

/// What a pipe that is said to be writable takes without blocking (`PIPE_BUF`, pipe(7)).
const CHUNK: usize = 4096;

/// How often a writer that waits for a stalled reader looks whether the process wants to end.
const GLANCE: Duration = Duration::from_millis(50);

/// Not `std::io::Stdout`, whose lock and buffer are shared with whatever else prints.
pub(super) struct Stdout {
    file: File,
    /// The rest of a line whose beginning is written; it goes first, so that lines stay whole.
    rest: Vec<u8>,
    ending: Ending,
}

impl Stdout {
    pub(super) fn open(ending: Ending) -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self::writing_to(file, ending))
    }

    fn writing_to(file: File, ending: Ending) -> Self {
        Self { file, rest: Vec::new(), ending }
    }

    /// Writes until all is written or an error comes; returns how much was written.
    fn push(&self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut n_written = 0;
        while n_written < bytes.len() {
            let chunk = &bytes[n_written..bytes.len().min(n_written + CHUNK)];
            match self.wait_writable().and_then(|()| (&self.file).write(chunk)) {
                Ok(0) => return (n_written, Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => n_written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (n_written, Err(error)),
            }
        }
        (n_written, Ok(()))
    }

    /// Waits for the reader, as long as it takes: the lines wait in their queue. Not any more once the process is [`Ending`].
    fn wait_writable(&self) -> io::Result<()> {
        loop {
            let ending = self.ending.has_begun();
            let patience = if ending { Duration::ZERO } else { GLANCE };
            let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&patience)) {
                Ok(0) if ending => return Err(io::ErrorKind::TimedOut.into()),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // A closed reader counts as ready; the write then tells.
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Output for Stdout {
    const NAME: &'static str = "stdout";
    const THREAD: &'static str = "log-stdout";

    fn write_line(&mut self, _: Timestamp, line: &[u8]) -> io::Result<()> {
        let (n_written, result) = self.push(&self.rest);
        self.rest.drain(..n_written);
        result?;
        let (n_written, result) = self.push(line);
        if 0 < n_written {
            self.rest.extend_from_slice(&line[n_written..]);
            return Ok(());
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_line_that_a_stalled_reader_took_in_part_is_finished_first() {
        let (mut reader, writer) = io::pipe().unwrap();
        let ending = Ending::default();
        ending.begin();
        let mut stdout = Stdout::writing_to(File::from(OwnedFd::from(writer)), ending);
        // Three chunks each: a pipe has no multiple of that.
        let long = "x".repeat(3 * CHUNK - 1) + "\n";
        let mut n_taken = 0;
        while stdout.write_line(Timestamp::UNIX_EPOCH, long.as_bytes()).is_ok() {
            n_taken += 1;
        }
        let mut read = vec![0; 1 << 22];
        let n_read = reader.read(&mut read).unwrap();
        read.truncate(n_read);
        stdout.write_line(Timestamp::UNIX_EPOCH, b"last\n").unwrap();
        drop(stdout);
        reader.read_to_end(&mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), long.repeat(n_taken) + "last\n");
    }

    #[test]
    fn a_closed_reader_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut stdout = Stdout::writing_to(File::from(OwnedFd::from(writer)), Ending::default());
        let error = stdout.write_line(Timestamp::UNIX_EPOCH, b"lost\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
