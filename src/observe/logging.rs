//! Structured logs: one record is one line, and the line is whole, bounded and machine-readable.
//!
//! [`init`] is called once, by `main`, which keeps the [`LogGuard`] until everything else is gone. How a line looks is
//! decided in `line`; what may be printed at all in [`parse_level`] and in the cap that `subscriber` puts on the
//! libraries.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use thiserror::Error;
use tracing::{Level, Metadata, Subscriber};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Registry};

pub use error_chain::ErrorChain;
pub use level::{LevelError, parse_level};
pub(super) use record::prefix;

use crate::config::{Log, LogFormat};

mod error_chain;
mod level;
mod line;
mod record;

/// Lines that may wait for the writer; a burst above it is dropped rather than held in memory (32 KiB a line at most).
const MAX_WAITING_LINES: usize = 8_192;

/// Writes out the waiting lines when it is dropped: keep it in `main` and drop it last.
///
/// `std::process::exit` and `panic = "abort"` skip the drop, and with it the last lines.
#[must_use = "dropping the guard ends the logs"]
#[derive(Debug)]
pub struct LogGuard {
    _stdout: WorkerGuard,
}

#[derive(Debug, Error)]
pub enum LogError {
    #[error("log.level is refused")]
    Level(#[from] LevelError),
    #[error("stdout cannot be opened for the logs")]
    Stdout(#[source] io::Error),
    #[error("logs are already being written by this process")]
    AlreadySet(#[from] TryInitError),
}

/// Starts the logs of this process: lines of `log.format` to stdout, written by a thread of their own.
///
/// # Errors
/// [`LogError`] when the filter is refused, when stdout cannot be duplicated, or when called a second time.
pub fn init(log: &Log) -> Result<LogGuard, LogError> {
    let filter = parse_level(&log.level)?;
    // Not `io::Stdout`: its lock and its buffer are shared with whatever else prints.
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(LogError::Stdout)?);
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_WAITING_LINES)
        .thread_name("log-stdout")
        .finish(stdout);
    subscriber(filter, log.format, writer).try_init()?;
    Ok(LogGuard { _stdout: guard })
}

/// The subscriber that [`init`] makes global.
fn subscriber<W>(filter: EnvFilter, format: LogFormat, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .event_format(line::Line { format })
        // It would print to stderr, which panics where stderr is closed.
        .log_internal_errors(false)
        .with_writer(writer);
    Registry::default().with(lines.with_filter(filter.and(filter_fn(may_be_printed))))
}

/// Whether a record may be printed whatever the filter says.
///
/// The libraries below (reqwest, hyper, rustls) print headers and bodies at `debug` and `trace`, and with them the app
/// token and the handles: of theirs, only warnings and errors pass.
fn may_be_printed(record: &Metadata<'_>) -> bool {
    level::is_own_target(record.target()) || *record.level() <= Level::WARN
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing::{debug, error, info, warn};

    use super::*;

    #[test]
    fn a_library_prints_no_header_even_at_trace() {
        let printed = print("trace", LogFormat::Json, || {
            debug!(target: "hyper::proto::h1", "x-vtex-api-apptoken: canary");
            info!(target: "reqwest::connect", "x-vtex-api-apptoken: canary");
            warn!(target: "rustls", "certificate expired");
            debug!(target: "order_feed_agent_impostor", "canary");
            debug!(target: "order_feed_agent::account", "own");
        });
        assert!(!printed.contains("canary"), "{printed}");
        assert!(printed.contains("certificate expired") && printed.contains("own"), "{printed}");
    }

    #[test]
    fn a_filter_chooses_by_module() {
        let printed = print("warn,order_feed_agent::account=debug", LogFormat::Json, || {
            debug!(target: "order_feed_agent::account", "one");
            info!(target: "order_feed_agent::journal", "two");
            error!(target: "order_feed_agent::journal", "three");
        });
        assert_eq!(printed.lines().count(), 2, "{printed}");
    }

    #[test]
    fn off_prints_nothing() {
        assert_eq!(print("off", LogFormat::Json, || error!(target: "order_feed_agent", "lost")), "");
    }

    /// What `records` leave behind when they are logged with this level and format.
    pub(super) fn print(level: &str, format: LogFormat, records: impl FnOnce()) -> String {
        let sink = Sink::default();
        let subscriber = subscriber(parse_level(level).unwrap(), format, sink.clone());
        tracing::subscriber::with_default(subscriber, records);
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Sink {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }
}
