//! Years of bad days: see `docs/simulation.md`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use order_feed_agent::simulation::{self, Coverage, Outcome};

const SEEDS: u64 = 500;

#[test]
fn five_hundred_seeds_of_bad_days_break_no_invariant_and_meet_every_fault() {
    let (next, coverage) = (AtomicU64::new(0), Mutex::new(Coverage::default()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let seed @ 0..SEEDS = next.fetch_add(1, Ordering::Relaxed) {
                    let outcome = simulate(seed);
                    if let Some(violation) = &outcome.violation {
                        next.store(SEEDS, Ordering::Relaxed);
                        panic!("{}\nseed {seed}: {}", violation.trace.join("\n"), violation.what);
                    }
                    coverage.lock().unwrap().add(&outcome.coverage);
                }
            });
        }
    });
    let coverage = coverage.into_inner().unwrap();
    assert_eq!(coverage.missing(), [], "never met; all that was:\n{coverage}");
}

#[test]
fn the_same_seed_does_the_same_again() {
    for seed in [1, 7, 77] {
        let [first, second] = [simulate(seed), simulate(seed)];
        assert_eq!((first.hash, first.coverage), (second.hash, second.coverage), "seed {seed}");
    }
    assert_ne!(simulate(1).hash, simulate(2).hash);
}

fn simulate(seed: u64) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(simulation::run(seed)).unwrap()
}
