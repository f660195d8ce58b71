//! The binary as a user runs it: a configuration, a process, its lines, its end.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::TOKEN;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_order-feed-agent");

/// Longer than anything that ends at all takes on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with a configuration, a journal and a file sink.
pub(crate) struct Workplace {
    directory: tempfile::TempDir,
}

impl Workplace {
    /// One feed at `base_url`; `more` is TOML that follows the tables of account, journal and sink.
    pub(crate) fn new(base_url: &str, more: &str) -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        let text = format!(
            "[accounts.store]\nbase_url = \"{base_url}\"\napp_key = \"vtexappkey-store-ABCDEF\"\napp_token = \"{TOKEN}\"\n\
             [journal]\npath = {journal:?}\n[sinks.file]\ntype = \"file\"\npath = {sink:?}\n{more}",
            journal = place.journal(),
            sink = place.sink(),
        );
        std::fs::write(place.config(), text).unwrap();
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("config.toml")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path().join("journal.db")
    }

    pub(crate) fn sink(&self) -> PathBuf {
        self.path().join("orders.jsonl")
    }

    /// The envelopes in the sink's file, in order; a line that is no envelope fails the test.
    pub(crate) fn envelopes(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.sink()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    pub(crate) fn start(&self) -> Agent {
        Agent::start(Command::new(BINARY).arg("run").arg("-c").arg(self.config()))
    }
}

/// A running process whose stdout is read line by line.
pub(crate) struct Agent {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
}

impl Agent {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a log record with this `event` that satisfies `is_it`.
    pub(crate) async fn wait_for(&mut self, event: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                let record: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                self.seen.push(line);
                if record["event"] == event && is_it(&record) {
                    return record;
                }
            }
            panic!("the process ended before `{event}`: {:#?}", self.seen);
        };
        timeout(PATIENCE, waiting).await.unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end; returns the status, all of stdout line by line, and stderr.
    pub(crate) async fn end(mut self) -> (ExitStatus, Vec<String>, String) {
        let ending = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.seen.push(line);
            }
            let mut stderr = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
            (self.child.wait().await.unwrap(), stderr)
        };
        let (status, stderr) = timeout(PATIENCE, ending).await.unwrap();
        (status, self.seen, stderr)
    }
}
