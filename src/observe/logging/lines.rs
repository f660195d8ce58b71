//! Lines on the way to an output: what is lost is counted, and said once writing works again.

use std::io::{self, Write};
use std::sync::Arc;

use jiff::Timestamp;
use tracing::{Level, warn};

use super::line::{self, Head};
use super::queue::Counts;
use super::record::{Record, Value};
use super::{Ending, ErrorChain};
use crate::config::LogFormat;

/// A place where lines end up.
pub(super) trait Output: Send + 'static {
    /// Its name in `log.lost` and `log.blocked`.
    const NAME: &'static str;
    /// The name of the thread that writes to it.
    const THREAD: &'static str;

    /// Writes one line, its newline included, whole or not at all.
    fn write_line(&mut self, now: Timestamp, line: &[u8]) -> io::Result<()>;
}

/// What `tracing_appender` writes to. It never fails: `tracing_appender` would swallow the error, and the count with it.
pub(super) struct Lines<O> {
    output: O,
    format: LogFormat,
    counts: Arc<Counts>,
    ending: Ending,
    /// Lines that the output refused since it last worked, and why it refused the last of them.
    refused: usize,
    reason: Option<String>,
    /// Lines dropped before the queue that have been said.
    dropped_said: usize,
}

impl<O: Output> Lines<O> {
    pub(super) fn new(output: O, format: LogFormat, counts: Arc<Counts>, ending: Ending) -> Self {
        Self { output, format, counts, ending, refused: 0, reason: None, dropped_said: 0 }
    }

    fn put(&mut self, now: Timestamp, line: &[u8]) {
        // The gap is said where it is, before the lines that follow it; while that fails, so would they.
        if 0 < self.refused && !self.say_lost(now) {
            self.refused += 1;
            return;
        }
        let Err(error) = self.output.write_line(now, line) else { return };
        self.refused += 1;
        let reason = ErrorChain(&error).to_string();
        if self.reason.replace(reason).is_none() && !self.ending.has_begun() {
            // Once an outage; another output may still be read. At the end the last word is not about the logs.
            warn!(event = "log.blocked", output = O::NAME, error = %ErrorChain(&error), "log lines are being lost");
        }
    }

    /// Says how many lines were lost; `false` when that cannot be written either.
    fn say_lost(&mut self, now: Timestamp) -> bool {
        let dropped = self.counts.dropped();
        let lines = self.refused + (dropped - self.dropped_said);
        let said = lost_line(self.format, now, O::NAME, lines, self.reason.as_deref());
        if let Err(error) = self.output.write_line(now, said.as_bytes()) {
            self.reason = Some(ErrorChain(&error).to_string());
            return false;
        }
        (self.refused, self.reason, self.dropped_said) = (0, None, dropped);
        true
    }
}

impl<O: Output> Write for Lines<O> {
    /// Takes one line in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(Timestamp::now(), line);
        self.counts.handled();
        Ok(line.len())
    }

    /// Called when no line waits any more: only then is said what the full queue dropped, because while lines are being
    /// dropped it would be another one of too many.
    fn flush(&mut self) -> io::Result<()> {
        if self.refused == 0 && self.dropped_said < self.counts.dropped() {
            self.say_lost(Timestamp::now());
        }
        Ok(())
    }
}

fn lost_line(
    format: LogFormat,
    timestamp: Timestamp,
    output: &str,
    lines: usize,
    reason: Option<&str>,
) -> String {
    let mut fields = vec![
        ("output".to_owned(), Value::Text(output.to_owned())),
        ("lines".to_owned(), Value::Bare(lines.to_string())),
    ];
    fields.extend(reason.map(|reason| ("error".to_owned(), Value::Text(reason.to_owned()))));
    let record =
        Record { message: "log lines were lost".to_owned(), event: Some("log.lost".to_owned()), fields };
    line::print(format, &Head { timestamp, level: Level::WARN, target: module_path!() }, &record)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Condvar, Mutex};

    use super::super::queue;
    use super::*;

    #[test]
    fn a_gap_is_said_once_where_it_is_and_with_its_length() {
        let (output, written) = Breakable::new();
        let works = Arc::clone(&output.works);
        let mut lines = Lines::new(output, LogFormat::Text, Arc::default(), Ending::default());
        for (line, works_now) in [("a\n", true), ("b\n", false), ("c\n", false), ("d\n", true), ("e\n", true)]
        {
            *works.lock().unwrap() = works_now;
            lines.write_all(line.as_bytes()).unwrap();
            lines.flush().unwrap();
        }
        let written: Vec<String> = written.try_iter().collect();
        assert_eq!((&*written[0], &*written[2], &*written[3]), ("a\n", "d\n", "e\n"));
        assert!(
            written[1]
                .ends_with("log lines were lost event=log.lost output=breakable lines=2 error=broken\n"),
            "{written:?}"
        );
        assert_eq!(written.len(), 4);
    }

    #[test]
    fn what_a_full_queue_drops_is_said_when_it_has_drained() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (sender, written) = channel();
        let output = Gated { gate: Arc::clone(&gate), written: sender };
        let (queue, worker) = queue::open(output, LogFormat::Text, Ending::default());
        let queues = queue::Queues(vec![queue]);
        for n in 0..10_000 {
            (&queues).write_all(format!("{n}\n").as_bytes()).unwrap();
        }
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        while !queues.0[0].is_drained() {
            std::thread::yield_now();
        }
        drop(worker);

        let written: Vec<String> = written.iter().collect();
        let (last, lines) = written.split_last().unwrap();
        let lost = 10_000 - lines.len();
        assert!(0 < lost && last.contains(&format!("event=log.lost output=gated lines={lost}\n")), "{last}");
    }

    struct Breakable {
        works: Arc<Mutex<bool>>,
        written: Sender<String>,
    }

    impl Breakable {
        fn new() -> (Self, Receiver<String>) {
            let (sender, receiver) = channel();
            (Self { works: Arc::new(Mutex::new(true)), written: sender }, receiver)
        }
    }

    impl Output for Breakable {
        const NAME: &'static str = "breakable";
        const THREAD: &'static str = "log-breakable";

        fn write_line(&mut self, _: Timestamp, line: &[u8]) -> io::Result<()> {
            if !*self.works.lock().unwrap() {
                return Err(io::Error::other("broken"));
            }
            self.written.send(String::from_utf8(line.to_vec()).unwrap()).unwrap();
            Ok(())
        }
    }

    /// Writes nothing until its gate is opened.
    struct Gated {
        gate: Arc<(Mutex<bool>, Condvar)>,
        written: Sender<String>,
    }

    impl Output for Gated {
        const NAME: &'static str = "gated";
        const THREAD: &'static str = "log-gated";

        fn write_line(&mut self, _: Timestamp, line: &[u8]) -> io::Result<()> {
            let _open = self.gate.1.wait_while(self.gate.0.lock().unwrap(), |open| !*open).unwrap();
            self.written.send(String::from_utf8(line.to_vec()).unwrap()).unwrap();
            Ok(())
        }
    }
}
