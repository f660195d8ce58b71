//! The file sink's own rotation by the binary, killed again and again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use order_feed_agent::sandbox::Options;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::support::agent::{PATIENCE, Workplace};
use crate::support::sandbox;

const MAX_BYTES: usize = 8 * 1024;

/// 500 events; the seed is printed by the failing assertion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_ten_moments_every_event_is_in_one_file_once_and_no_file_is_too_long() {
    let seed: u64 = rand::random();
    let mut rng = StdRng::seed_from_u64(seed);
    let options = Options { count: 500, visibility: Duration::from_secs(1), ..Options::default() };
    let (_sandbox, address) = sandbox(options).await;
    let settings = "max_bytes = \"8KiB\"\nrotate = \"hourly\"\n[poll]\ninterval = \"5s\"\n[requests]\nper_second = 300\n";
    let place = Workplace::new(&format!("http://{address}"), settings);
    for _ in 0..10 {
        let mut agent = place.start();
        agent.wait_for("agent.ready", |_| true).await;
        sleep(Duration::from_millis(rng.random_range(0..200))).await;
        agent.signal(Signal::KILL);
        agent.end().await;
    }
    let mut agent = place.start();
    agent.wait_for("agent.ready", |_| true).await;
    let deadline = Instant::now() + PATIENCE;
    while distinct(&place).len() < 500 {
        assert!(Instant::now() < deadline, "seed {seed}: {} arrived", distinct(&place).len());
        sleep(Duration::from_millis(50)).await;
    }
    agent.signal(Signal::TERM);
    let (status, _, _) = agent.end().await;
    assert_eq!(status.code(), Some(0), "seed {seed}");

    let texts: Vec<String> =
        files(&place).iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(10 < texts.len() && texts.iter().all(|text| text.len() <= MAX_BYTES), "seed {seed}");
    let sequences: Vec<String> = texts.iter().flat_map(|text| text.lines()).map(sequence).collect();
    assert!(sequences.is_sorted_by(|one, next| one < next), "seed {seed}: {sequences:?}");
    assert_eq!(sequences.len(), 500, "seed {seed}");
}

/// All files of the sink, oldest first.
fn files(place: &Workplace) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    // `-` comes before the dot of the current file.
    files.sort();
    files
}

/// The sequences of whole lines, while the files may be renamed and written to.
fn distinct(place: &Workplace) -> BTreeSet<String> {
    let texts: Vec<String> = files(place).iter().flat_map(std::fs::read_to_string).collect();
    let lines = texts.iter().flat_map(|text| text.split_inclusive('\n'));
    lines.filter(|line| line.ends_with('\n')).map(sequence).collect()
}

fn sequence(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    line["sequence"].as_str().unwrap().to_owned()
}
