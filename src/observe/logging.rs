//! Structured logs: one record is one line, and the line is whole, bounded and machine-readable.
//!
//! [`init`] is called once, by `main`, which keeps the [`LogGuard`] until everything else is gone. How a line looks is
//! decided in `line`; what may be printed at all in [`parse_level`] and in the cap that `subscriber` puts on the
//! libraries.
//!
//! A line goes through a `queue` to a thread of its own, where `lines` counts what is lost on the way to the outputs,
//! `stdout` and `files`. No task ever waits for an output.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use tracing::{Level, Metadata, Subscriber};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, reload};

pub use error_chain::ErrorChain;
pub use level::{LevelError, parse_level};
pub(crate) use line::escape_into;
pub(super) use record::prefix;

use crate::config::{Log, LogFormat};
use files::RollingFile;
use queue::{Queue, Queues};
use stdout::Stdout;

mod error_chain;
mod files;
mod level;
mod line;
mod lines;
mod queue;
mod record;
mod stdout;

/// How long the end of the process waits for lines that are still to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);
const FLUSH_GLANCE: Duration = Duration::from_millis(10);

/// Writes out the waiting lines when it is dropped: keep it in `main` and drop it last.
///
/// That takes a moment, or a few seconds where stdout or the disk is stuck. `std::process::exit` and `panic = "abort"`
/// skip the drop, and with it the last lines.
#[must_use = "dropping the guard ends the logs"]
#[derive(Debug)]
pub struct LogGuard {
    queues: Vec<Queue>,
    ending: Ending,
    level: LevelSwitch,
    /// Dropped after the body of [`LogGuard::drop`].
    _workers: Vec<WorkerGuard>,
}

/// Changes what is logged while the process runs.
#[derive(Debug, Clone)]
pub struct LevelSwitch(reload::Handle<EnvFilter, Registry>);

/// The wish of the ending process that no output waits for anybody any more.
#[derive(Debug, Clone, Default)]
struct Ending(Arc<AtomicBool>);

#[derive(Debug, Error)]
pub enum LogError {
    #[error("log.level is refused")]
    Level(#[from] LevelError),
    #[error("stdout cannot be opened for the logs")]
    Stdout(#[source] io::Error),
    #[error("logs are already being written by this process")]
    AlreadySet(#[from] TryInitError),
}

/// Starts the logs of this process: lines of `log.format` to stdout and, where `log.files` asks for it, to rolling
/// files; each is written by a thread of its own.
///
/// A log directory that cannot be written is no error: the lines are counted as lost there, stdout says so, and writing
/// begins as soon as it can.
///
/// # Errors
/// [`LogError`] when the filter is refused, when stdout cannot be duplicated, or when called a second time.
pub fn init(log: &Log) -> Result<LogGuard, LogError> {
    let filter = parse_level(&log.level)?;
    let ending = Ending::default();
    let stdout = Stdout::open(ending.clone()).map_err(LogError::Stdout)?;
    let mut outputs = vec![queue::open(stdout, log.format, ending.clone())];
    if let Some(files) = &log.files {
        outputs.push(queue::open(RollingFile::new(files.clone()), log.format, ending.clone()));
    }
    let (queues, workers): (Vec<_>, Vec<_>) = outputs.into_iter().unzip();
    let (subscriber, level) = subscriber(filter, log.format, Queues(queues.clone()));
    subscriber.try_init()?;
    Ok(LogGuard { queues, ending, level, _workers: workers })
}

impl LogGuard {
    /// The switch of the running logs, for a configuration that is read anew.
    pub fn level_switch(&self) -> LevelSwitch {
        self.level.clone()
    }
}

impl LevelSwitch {
    /// Puts another `log.level` in force at once.
    ///
    /// # Errors
    /// [`LevelError`], and the level stays as it is.
    pub fn set(&self, level: &str) -> Result<(), LevelError> {
        Ok(self.0.reload(parse_level(level)?)?)
    }
}

impl Drop for LogGuard {
    /// Waits for the queues by itself, because a [`WorkerGuard`] that finds its queue full prints to stdout, which
    /// blocks or panics when stdout is the reason.
    #[expect(clippy::disallowed_methods, reason = "the runtime has ended, no task is stalled by this sleep")]
    fn drop(&mut self) {
        let mut waited = Duration::ZERO;
        while waited < FLUSH_PATIENCE && !self.queues.iter().all(Queue::is_drained) {
            std::thread::sleep(FLUSH_GLANCE);
            waited += FLUSH_GLANCE;
        }
        self.ending.begin();
    }
}

impl Ending {
    fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// The subscriber that [`init`] makes global, and the switch of its level.
fn subscriber<W>(
    filter: EnvFilter,
    format: LogFormat,
    writer: W,
) -> (impl Subscriber + Send + Sync, LevelSwitch)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .event_format(line::Line { format })
        // It would print to stderr, which panics where stderr is closed.
        .log_internal_errors(false)
        .with_writer(writer);
    let (filter, handle) = reload::Layer::new(filter);
    let lines = lines.with_filter(filter.and(filter_fn(may_be_printed)));
    (Registry::default().with(lines), LevelSwitch(handle))
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
    use std::sync::Mutex;

    use tracing::{debug, error, info, warn};

    use super::*;

    #[test]
    fn a_library_prints_no_header_even_at_trace() {
        let printed = print_all("trace", LogFormat::Json, || {
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
        let printed = print_all("warn,order_feed_agent::account=debug", LogFormat::Json, || {
            debug!(target: "order_feed_agent::account", "one");
            info!(target: "order_feed_agent::journal", "two");
            error!(target: "order_feed_agent::journal", "three");
        });
        assert_eq!(printed.lines().count(), 2, "{printed}");
    }

    #[test]
    fn off_prints_nothing() {
        assert_eq!(print_all("off", LogFormat::Json, || error!(target: "order_feed_agent", "lost")), "");
    }

    #[test]
    fn a_level_is_changed_while_the_logs_run_and_the_cap_on_libraries_stays() {
        let sink = Sink::default();
        let (subscriber, level) = subscriber(parse_level("info").unwrap(), LogFormat::Text, sink.clone());
        tracing::subscriber::with_default(subscriber, || {
            for (n, text) in ["info", "trace", "inffo", "warn"].into_iter().enumerate() {
                assert_eq!(level.set(text).is_ok(), text != "inffo");
                debug!(target: "order_feed_agent", n, "own");
                debug!(target: "hyper", n, "canary");
            }
        });
        let printed = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let seen: Vec<_> = printed.lines().map(|line| &line[line.len() - 7..]).collect();
        assert_eq!(seen, ["own n=1", "own n=2"], "{printed}");
    }

    /// What `records` leave behind when they are logged with this level and format.
    pub(super) fn print_all(level: &str, format: LogFormat, records: impl FnOnce()) -> String {
        let sink = Sink::default();
        let (subscriber, _) = subscriber(parse_level(level).unwrap(), format, sink.clone());
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
