//! Runs the simulation for as long as one likes: `cargo run --release --example simulate -- --hours 1000000`.
//!
//! Prints what it covered and how fast; at the first broken invariant the seed and the last simulated hour, exit 1.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use clap::Parser;
use order_feed_agent::simulation::{self, Coverage, Outcome};
use tokio::time::Instant;

#[derive(Parser)]
struct Arguments {
    /// Simulated hours, in all.
    #[arg(long, default_value_t = 1_000)]
    hours: u64,
    /// The first seed; the next ones follow.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// What all threads share.
struct Total {
    next_seed: u64,
    time: Duration,
    coverage: Coverage,
    failed: Option<Outcome>,
    said_at: Duration,
}

fn main() -> ExitCode {
    let Arguments { hours, seed } = Arguments::parse();
    let wanted = Duration::from_secs(hours.saturating_mul(3600));
    let total = Mutex::new(Total {
        next_seed: seed,
        time: Duration::ZERO,
        coverage: Coverage::default(),
        failed: None,
        said_at: Duration::ZERO,
    });
    let started = Instant::now();
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| work(&total, wanted, started));
        }
    });
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    say(&total, seed, started);
    print!("{}", total.coverage);
    match total.failed.as_ref().and_then(|outcome| outcome.violation.as_ref().map(|why| (outcome.seed, why)))
    {
        None => {
            println!("no violation");
            ExitCode::SUCCESS
        }
        Some((seed, violation)) => {
            eprintln!("{}", violation.trace.join("\n"));
            eprintln!("error: seed {seed}: {}", violation.what);
            ExitCode::FAILURE
        }
    }
}

/// Simulates seed after seed until enough time is covered or one has failed.
fn work(total: &Mutex<Total>, wanted: Duration, started: Instant) {
    loop {
        let seed = {
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            if wanted <= total.time || total.failed.is_some() {
                return;
            }
            total.next_seed += 1;
            total.next_seed - 1
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let outcome = match runtime.and_then(|runtime| runtime.block_on(simulation::run(seed))) {
            Ok(outcome) => outcome,
            Err(error) => {
                eprintln!("error: seed {seed} cannot be simulated: {error}");
                return;
            }
        };
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.time += outcome.time;
        total.coverage.add(&outcome.coverage);
        if total.said_at + wanted / 20 < total.time {
            total.said_at = total.time;
            say(&total, seed, started);
        }
        if outcome.violation.is_some() {
            total.failed.get_or_insert(outcome);
        }
    }
}

fn say(total: &Total, seed: u64, started: Instant) {
    let (hours, elapsed) = (total.time.as_secs_f64() / 3600.0, started.elapsed().as_secs_f64());
    println!(
        "{hours:.0} h simulated up to seed {seed} in {elapsed:.0} s: {:.0} h/s",
        hours / elapsed.max(1e-3)
    );
}
