//! The lines that wait for an output.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

use super::Ending;
use super::lines::{Lines, Output};
use crate::config::LogFormat;

/// Lines that may wait for an output; a burst above it is dropped and counted rather than held in memory.
const MAX_WAITING_LINES: usize = 8_192;

/// Starts the thread that writes to `output`, and the queue before it.
pub(super) fn open<O: Output>(output: O, format: LogFormat, ending: Ending) -> (Queue, WorkerGuard) {
    let counts = Arc::<Counts>::default();
    let (writer, worker) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_WAITING_LINES)
        .thread_name(O::THREAD)
        .finish(Lines::new(output, format, Arc::clone(&counts), ending));
    // Nothing has been sent yet, so nothing can have been dropped before the counter is in its place.
    let dropped = counts.dropped.get_or_init(|| writer.error_counter()).clone();
    (Queue { writer, counts, dropped }, worker)
}

/// The way to one output; never blocks who writes to it.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    writer: NonBlocking,
    counts: Arc<Counts>,
    dropped: ErrorCounter,
}

/// What is known on both sides of a queue.
#[derive(Debug, Default)]
pub(super) struct Counts {
    sent: AtomicUsize,
    handled: AtomicUsize,
    dropped: OnceLock<ErrorCounter>,
}

/// All outputs; what is written to one is written to each.
#[derive(Debug)]
pub(super) struct Queues(pub(super) Vec<Queue>);

impl Queue {
    /// Whether every line sent so far was written, lost by its output, or dropped because the queue was full.
    pub(super) fn is_drained(&self) -> bool {
        let handled = self.counts.handled.load(Ordering::SeqCst);
        self.counts.sent.load(Ordering::SeqCst) <= handled + self.dropped.dropped_lines()
    }

    fn send(&self, line: &[u8]) -> io::Result<()> {
        self.counts.sent.fetch_add(1, Ordering::SeqCst);
        self.writer.make_writer().write_all(line)
    }
}

impl Counts {
    /// A line left the queue.
    pub(super) fn handled(&self) {
        self.handled.fetch_add(1, Ordering::SeqCst);
    }

    /// Lines dropped so far because the queue was full.
    pub(super) fn dropped(&self) -> usize {
        self.dropped.get().map_or(0, ErrorCounter::dropped_lines)
    }
}

impl Write for &Queues {
    /// Takes one line in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.iter().try_for_each(|queue| queue.send(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queues {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}
