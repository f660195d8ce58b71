//! The sink as its worker drives it, over a real journal, with crashes, restarts and a clock that jumps.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::Wanted;
use crate::delivery::LineWorker;
use crate::event::{Event, EventKey, Handle, Item, Leased, Reach};
use crate::journal::{Batch, Journal, SqliteJournal};
use crate::observe::liveness::Liveness;
use crate::policy::rotation::{Rotation, Settings};
use crate::wall::SimulatedWall;

const MAX_BYTES: u64 = 4_000;

/// The real sink on a machine that may stop before and after each step, and in the middle of a write.
struct Crashing {
    inner: FileSink,
    path: PathBuf,
    wall: Wall,
    rng: Mutex<StdRng>,
    crash: CancellationToken,
    /// 0 to 1.
    chance: f64,
}

impl Crashing {
    fn draw(&self) -> (bool, f64) {
        let mut rng = self.rng.lock().unwrap();
        (rng.random_bool(self.chance), rng.random())
    }

    fn length(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len())
    }
}

impl Sink for Crashing {
    async fn deliver(
        &mut self,
        envelopes: Vec<Envelope>,
        mark: Option<Mark>,
    ) -> Result<Delivered, SinkError> {
        let before = self.length();
        let result = self.inner.deliver(envelopes, mark).await;
        let file = OpenOptions::new().append(true).open(&self.path).unwrap();
        let (crashes, share) = self.draw();
        if crashes {
            // What was written a moment ago is there in part, and nobody has recorded it.
            let n_new = self.length().saturating_sub(before);
            if !matches!(result, Ok(Delivered::Anchored(_))) && 0 < n_new {
                file.set_len(before + ((n_new as f64) * share) as u64).unwrap();
            }
        }
        file.set_modified(self.wall.now().try_into().unwrap()).unwrap();
        if crashes {
            self.crash.cancel();
            std::future::pending().await
        }
        result
    }
}

/// 30 lives of which most end in a crash, and some that do not, each of which takes 500 events at most.
#[tokio::test]
async fn every_event_is_in_one_file_once_and_in_order_whenever_the_machine_stops() {
    for seed in 0..3 {
        let mut rng = StdRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("orders.jsonl");
        let rotation =
            Settings { every: Some(Rotation::Hourly), max_bytes: Some(MAX_BYTES), max_files: None };
        let file = config::FileSink { path: path.clone(), mode: MODE, rotation: Some(rotation) };
        let simulated = SimulatedWall::new("2026-11-30T15:00:00Z".parse().unwrap());
        let wall = Wall::Simulated(simulated.clone());
        let journal = SqliteJournal::in_memory().unwrap();
        let mut n_events = 0;
        for life in 0..34 {
            let n_new = if life < 30 { rng.random_range(0..40) } else { 0 };
            append(&journal, n_events..n_events + n_new).await;
            n_events += n_new;
            simulated.jump(rng.random_range(-3_600_000..7_200_000));
            let crash = CancellationToken::new();
            let sink = Crashing {
                inner: FileSink::new(&file, wall.clone()),
                path: path.clone(),
                wall: wall.clone(),
                rng: Mutex::new(StdRng::seed_from_u64(rng.random())),
                crash: crash.clone(),
                chance: if life < 30 { 0.3 } else { 0.0 },
            };
            live(&journal, sink, &crash).await;
        }
        let (lines, longest, n_files) = read(directory.path());
        let expected: Vec<String> = (1..=n_events).map(|seq| format!("{seq:020}")).collect();
        assert_eq!(lines, expected, "seed {seed}");
        assert!(longest <= MAX_BYTES && 10 < n_files, "seed {seed}: {longest} bytes, {n_files} files");
    }
}

/// Delivers what is journaled, until all of it is delivered or the machine stops.
async fn live(journal: &SqliteJournal, sink: Crashing, crash: &CancellationToken) {
    let (liveness, shutdown) = (Liveness::default(), CancellationToken::new());
    let heartbeat = liveness.register("sink");
    let worker =
        LineWorker { name: "orders", wanted: Wanted::default(), sink, journal, heartbeat: &heartbeat };
    // What was journaled before the shutdown is delivered.
    shutdown.cancel();
    crash.run_until_cancelled(worker.run(0, &shutdown)).await;
}

async fn append(journal: &SqliteJournal, range: Range<u64>) {
    let items = range.map(|n| {
        let event = Event {
            key: EventKey { hour: 0, hash: u128::from(n).to_be_bytes(), reach: Reach::Always },
            state: "handling".to_owned(),
            current_change: None,
            item: format!(r#"{{"orderId":"order-{n}"}}"#),
            order_id: format!("order-{n}"),
        };
        Item::Leased(Leased { handle: Handle::new("h".into()), event })
    });
    let batch = Batch {
        account: "store".into(),
        source: "http://127.0.0.1/api/orders/feed".into(),
        items: items.collect(),
        received_at: Timestamp::UNIX_EPOCH,
        lease: Duration::from_secs(30),
    };
    journal.append(batch).await.unwrap();
}

/// The sequences of all lines, the length of the longest file and how many there are.
fn read(directory: &Path) -> (Vec<String>, u64, usize) {
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    // `-` comes before the dot of the current file.
    paths.sort();
    let texts: Vec<String> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let sequence = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["sequence"].as_str().unwrap().to_owned()
    };
    let lines = texts.iter().flat_map(|text| text.lines()).map(sequence).collect();
    let longest = texts.iter().map(|text| text.len() as u64).max().unwrap_or_default();
    (lines, longest, texts.len())
}
