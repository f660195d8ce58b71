//! The logs of a whole process: its stdout, its log files, and what happens when these fail.
//!
//! A process has one global subscriber and one stdout, so each test runs this binary again as a child: one of the
//! `child_…` tests below, which do nothing unless [`CHILD`] gives them a directory to work in.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::time::Duration;

use order_feed_agent::config::{Log, LogFiles, LogFormat, Rotation};
use order_feed_agent::observe::logging;
use rustix::stdio::dup2_stdout;
use serde_json::Value;
use tracing::info;

/// Set for the children: the directory of their logs.
const CHILD: &str = "ORDER_FEED_AGENT_TEST_LOGGING_CHILD";

#[test]
fn the_last_line_is_there_a_hundred_times_of_a_hundred() {
    let directory = tempfile::tempdir().unwrap();
    for run in 0..100 {
        let output = child("child_ends_after_its_last_line", directory.path()).output().unwrap();
        let on_stdout = objects(&String::from_utf8(output.stdout).unwrap());
        for lines in [on_stdout, log_file(directory.path())] {
            assert_eq!(lines.len(), 201, "run {run}");
            assert_eq!(lines.last().unwrap()["event"], "shutdown.completed", "run {run}");
        }
        fs::remove_dir_all(directory.path()).unwrap();
    }
}

#[test]
fn child_ends_after_its_last_line() {
    let Some(directory) = child_directory() else { return };
    let guard = logging::init(&log_to(&directory)).unwrap();
    log_polls(0..200);
    info!(target: "order_feed_agent", event = "shutdown.completed", "shutdown completed");
    drop(guard);
    end_at_once();
}

#[test]
fn a_full_or_closed_stdout_costs_its_own_lines_only() {
    for test in ["child_writes_to_a_full_stdout", "child_writes_to_a_closed_stdout"] {
        let directory = tempfile::tempdir().unwrap();
        assert_success(&child(test, directory.path()).output().unwrap());
        let lines = log_file(directory.path());
        assert_eq!(polls(&lines), (0..500).collect());
        let blocked: Vec<_> = lines.iter().filter(|line| line["event"] == "log.blocked").collect();
        assert_eq!(blocked.len(), 1, "{test}");
        assert_eq!(blocked[0]["output"], "stdout", "{test}");
    }
}

#[test]
fn child_writes_to_a_full_stdout() {
    let Some(directory) = child_directory() else { return };
    dup2_stdout(File::options().write(true).open("/dev/full").unwrap()).unwrap();
    let guard = logging::init(&log_to(&directory)).unwrap();
    log_polls(0..500);
    drop(guard);
    end_at_once();
}

#[test]
fn child_writes_to_a_closed_stdout() {
    let Some(directory) = child_directory() else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    dup2_stdout(&writer).unwrap();
    drop(reader);
    let guard = logging::init(&log_to(&directory)).unwrap();
    log_polls(0..500);
    drop(guard);
    end_at_once();
}

#[test]
fn a_stalled_reader_of_stdout_stalls_neither_the_process_nor_its_end() {
    let directory = tempfile::tempdir().unwrap();
    assert_success(&child("child_writes_to_a_stalled_stdout", directory.path()).output().unwrap());
    let lines = log_file(directory.path());
    assert_eq!(polls(&lines).len() + lost(&lines), 30_000);
}

#[test]
fn child_writes_to_a_stalled_stdout() {
    let Some(directory) = child_directory() else { return };
    let (mut reader, writer) = std::io::pipe().unwrap();
    dup2_stdout(&writer).unwrap();
    let guard = logging::init(&log_to(&directory)).unwrap();
    log_polls(0..30_000);
    drop(guard);

    dup2_stdout(std::io::stderr()).unwrap();
    drop(writer);
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    let (whole, _unfinished) = printed.rsplit_once('\n').unwrap();
    assert!(polls(&objects(whole)).is_superset(&(0..100).collect()));
}

#[test]
fn a_full_disk_costs_lines_and_says_how_many_once_it_is_freed() {
    let directory = tempfile::tempdir().unwrap();
    let mount = ["--mount", "--propagation", "private", "sh", "-c"];
    let script = r#"mount -t tmpfs -o size=1m tmpfs "$1" && shift && exec "$@""#;
    let may_mount = Command::new("unshare").args(mount).arg("mount -t tmpfs tmpfs /mnt").output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        assert_ne!(
            std::env::var("CI").as_deref(),
            Ok("true"),
            "root and unshare(1) are needed to fill a disk"
        );
        eprintln!("skipped: root and unshare(1) are needed to fill a disk");
        return;
    }
    let child = child("child_fills_its_disk", directory.path());
    let output = Command::new("unshare")
        .args(mount)
        .args([script, "sh"])
        .arg(directory.path())
        .arg(child.get_program())
        .args(child.get_args())
        .env(CHILD, directory.path())
        .output()
        .unwrap();
    assert_success(&output);
}

#[test]
fn child_fills_its_disk() {
    let Some(directory) = child_directory() else { return };
    let (blocked_sender, blocked) = channel();
    let (reader, writer) = std::io::pipe().unwrap();
    dup2_stdout(&writer).unwrap();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map(Result::unwrap) {
            if line.contains("\"event\":\"log.blocked\"") {
                blocked_sender.send(line).unwrap();
            }
        }
    });

    let guard = logging::init(&log_to(&directory)).unwrap();
    log_polls(0..100);
    let current = directory.join("order-feed-agent.log");
    while !fs::read_to_string(&current).is_ok_and(|written| written.contains("\"n\":99}")) {
        std::thread::yield_now();
    }
    let filler = directory.join("filler");
    fill(&filler);
    let mut n = 100;
    let blocked = loop {
        log_polls(n..n + 1);
        n += 1;
        if let Ok(line) = blocked.recv_timeout(Duration::from_millis(1)) {
            break line;
        }
    };
    log_polls(n..n + 50);
    fs::remove_file(filler).unwrap();
    log_polls(n + 50..n + 100);
    drop(guard);

    assert!(blocked.contains("\"output\":\"file\"") && blocked.contains("No space left"), "{blocked}");
    let lines = log_file(&directory);
    let polls = polls(&lines);
    assert!(polls.is_superset(&(0..100).collect()), "lines from before the disk was full are missing");
    assert_eq!(lines.iter().filter(|line| line["event"] == "log.lost").count(), 1);
    // The line that said it on stdout was lost in the file like the others.
    assert_eq!(polls.len() + lost(&lines), n + 100 + 1);
    assert!(polls.contains(&(n + 99)), "no line came after the disk was freed");
}

/// Takes the last byte of the file system.
fn fill(path: &Path) {
    let mut filler = File::create(path).unwrap();
    for size in [65_536, 1] {
        while filler.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

fn log_polls(numbers: std::ops::Range<usize>) {
    for n in numbers {
        info!(target: "order_feed_agent::account", event = "poll.completed", n, "poll completed");
    }
}

fn log_to(directory: &Path) -> Log {
    let files = LogFiles { directory: directory.to_owned(), rotation: Rotation::Daily, max_files: 14 };
    Log { level: "info".to_owned(), format: LogFormat::Json, files: Some(files) }
}

/// This binary, to run one of its child tests with its logs in this directory.
fn child(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", &format!("logging::{test}")]).env(CHILD, directory);
    command
}

fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Ends the process without another instruction: only what the guard has flushed is there, and the test harness prints
/// nothing to the stdout that was broken on purpose.
#[expect(clippy::disallowed_methods, reason = "a return would give the writer more time")]
fn end_at_once() {
    std::process::exit(0);
}

fn assert_success(output: &Output) {
    let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said:#?}");
}

/// The log lines of all log files in a directory, oldest first; there is more than one file at midnight.
fn log_file(directory: &Path) -> Vec<Value> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut paths: Vec<_> = names
        .filter(|entry| entry.file_type().unwrap().is_file() && entry.file_name() != "filler")
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths.iter().flat_map(|path| objects(&fs::read_to_string(path).unwrap())).collect()
}

/// The log lines in a text; each must parse. The test harness adds lines of its own to a stdout.
fn objects(printed: &str) -> Vec<Value> {
    let is_of_harness = |line: &&str| {
        line.is_empty() || ["running ", "test ", "failures"].iter().any(|start| line.starts_with(start))
    };
    let lines = printed.lines().filter(|line| !is_of_harness(line));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The numbers of the polls among the lines.
fn polls(lines: &[Value]) -> BTreeSet<usize> {
    let polls = lines.iter().filter(|line| line["event"] == "poll.completed");
    polls.map(|line| usize::try_from(line["n"].as_u64().unwrap()).unwrap()).collect()
}

/// How many lines are said to be lost.
fn lost(lines: &[Value]) -> usize {
    let lost = lines.iter().filter(|line| line["event"] == "log.lost");
    lost.map(|line| usize::try_from(line["lines"].as_u64().unwrap()).unwrap()).sum()
}
