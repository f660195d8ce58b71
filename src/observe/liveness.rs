//! Whether every loop of the agent still goes round, for the watchdog of the service manager.
//!
//! A loop says by when it will speak again ([`Heartbeat::due_within`]): seconds while it works, hours while it waits out a
//! pause. One timer ([`watch`]) gives a sign of life only while no loop is overdue, so a single loop that hangs gets the
//! whole agent restarted, and a loop that rightly waits does not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{error, info};

/// What a loop may be late by, because the machine was busy.
pub const SLACK: Duration = Duration::from_secs(60);

/// How often the loops are looked at when no service manager watches.
const UNWATCHED_INTERVAL: Duration = Duration::from_secs(30);

/// Looks per watchdog timeout; one that comes late does not matter.
const LOOKS_PER_TIMEOUT: u32 = 4;

/// What is announced at most; no clock counts further.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The loops that are watched. Clones watch the same ones.
#[derive(Debug, Clone, Default)]
pub struct Liveness {
    loops: Arc<Mutex<Loops>>,
}

#[derive(Debug, Default)]
struct Loops {
    next_id: u64,
    by_id: BTreeMap<u64, Watched>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Watched {
    name: String,
    due: Instant,
}

/// A loop's side of the watch. Dropping it ends the watch of this loop, unless a panic drops it: then the loop is gone
/// without having ended, and stays to be missed.
#[must_use = "a heartbeat that is dropped is watched no longer"]
#[derive(Debug)]
pub struct Heartbeat {
    id: u64,
    loops: Arc<Mutex<Loops>>,
}

/// A loop that has not spoken by the time it announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    pub name: String,
    /// Since the announced time, [`SLACK`] included.
    pub by: Duration,
}

impl Liveness {
    /// Begins to watch a loop, which has to speak within [`SLACK`].
    pub fn register(&self, name: impl Into<String>) -> Heartbeat {
        let mut loops = lock(&self.loops);
        let id = loops.next_id;
        loops.next_id += 1;
        loops.by_id.insert(id, Watched { name: name.into(), due: Instant::now() });
        Heartbeat { id, loops: Arc::clone(&self.loops) }
    }

    /// The loops that are overdue at `now`, in the order they were registered.
    pub fn overdue(&self, now: Instant) -> Vec<Overdue> {
        overdue(lock(&self.loops).by_id.values(), now)
    }
}

impl Heartbeat {
    /// Says: alive, and again within `delay` at the latest. Called before each wait and each piece of work, with the
    /// longest time that this may take when all is well.
    pub fn due_within(&self, delay: Duration) {
        let due = Instant::now() + delay.min(FOREVER);
        if let Some(watched) = lock(&self.loops).by_id.get_mut(&self.id) {
            watched.due = due;
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            lock(&self.loops).by_id.remove(&self.id);
        }
    }
}

/// Calls `alive` several times per `timeout` while no loop is overdue, and logs once when one is and when it recovers.
///
/// `timeout` is that of the service manager; without one the loops are watched for the log only. Runs until dropped;
/// cancel safe.
pub async fn watch(liveness: &Liveness, timeout: Option<Duration>, mut alive: impl FnMut()) {
    let period = timeout.map_or(UNWATCHED_INTERVAL, |timeout| timeout / LOOKS_PER_TIMEOUT);
    let mut looks = interval(period.max(Duration::from_millis(1)));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut said = BTreeSet::new();
    loop {
        let now = looks.tick().await;
        let overdue = liveness.overdue(now);
        said = say(said, &overdue);
        if overdue.is_empty() {
            alive();
        }
    }
}

/// Logs the loops that are overdue now and were not before, and the other way round; returns those overdue now.
fn say(before: BTreeSet<String>, overdue: &[Overdue]) -> BTreeSet<String> {
    for Overdue { name, by } in overdue.iter().filter(|overdue| !before.contains(&overdue.name)) {
        let overdue_s = by.as_secs();
        error!(event = "loop.overdue", name, overdue_s, "a loop hangs, the watchdog is not fed any more");
    }
    let now: BTreeSet<String> = overdue.iter().map(|overdue| overdue.name.clone()).collect();
    for name in before.difference(&now) {
        info!(event = "loop.recovered", name, "a loop goes on");
    }
    now
}

fn overdue<'a>(loops: impl Iterator<Item = &'a Watched>, now: Instant) -> Vec<Overdue> {
    loops
        .filter_map(|Watched { name, due }| {
            let by = now.saturating_duration_since(*due);
            (SLACK < by).then(|| Overdue { name: name.clone(), by })
        })
        .collect()
}

/// A loop that panicked in here left the table whole, as no step in here can fail half-way.
fn lock(loops: &Mutex<Loops>) -> MutexGuard<'_, Loops> {
    loops.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{sleep, timeout};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_overdue_only_after_its_time_and_the_slack() {
        let now = Instant::now();
        let watched = |name: &str, due| Watched { name: name.to_owned(), due };
        let loops = [watched("late", now + SECOND), watched("waiting", now + HOUR)];
        let names = |now| overdue(loops.iter(), now).into_iter().map(|late| late.name).collect::<Vec<_>>();
        assert_eq!(names(now + SECOND + SLACK), [""; 0]);
        assert_eq!(names(now + SECOND * 2 + SLACK), ["late"]);
        assert_eq!(names(now + HOUR + SECOND + SLACK), ["late", "waiting"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_hours_does_not_starve_the_watchdog() {
        let liveness = Liveness::default();
        let heartbeat = liveness.register("account main");
        heartbeat.due_within(10 * HOUR);
        assert_eq!(fed_for(&liveness, 10 * HOUR).await, 10 * 120 + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_loop_that_hangs_starves_the_watchdog_for_all() {
        let liveness = Liveness::default();
        let hanging = liveness.register("account hanging");
        let well = liveness.register("account well");
        hanging.due_within(10 * SECOND);
        well.due_within(10 * HOUR);
        // Fed at 0, 30 and 60 seconds; at 90 the loop is more than the slack behind its 10 seconds.
        assert_eq!(fed_for(&liveness, HOUR).await, 3);
        hanging.due_within(10 * HOUR);
        assert_eq!(fed_for(&liveness, HOUR).await, 121, "it recovered");
        drop(well);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_ended_is_not_missed_and_one_that_panicked_is() {
        let liveness = Liveness::default();
        drop(liveness.register("ended"));
        let heartbeat = liveness.register("panicked");
        tokio::spawn(async move {
            heartbeat.due_within(SECOND);
            panic!("on purpose");
        })
        .await
        .unwrap_err();
        sleep(HOUR).await;
        let missed = liveness.overdue(Instant::now());
        assert_eq!(missed.iter().map(|late| &*late.name).collect::<Vec<_>>(), ["panicked"]);
    }

    #[tokio::test(start_paused = true)]
    async fn any_time_may_be_announced() {
        let liveness = Liveness::default();
        let heartbeat = liveness.register("account main");
        heartbeat.due_within(Duration::MAX);
        sleep(1_000 * HOUR).await;
        assert_eq!(liveness.overdue(Instant::now()), []);
    }

    /// How often a watchdog of two minutes is fed during this time.
    async fn fed_for(liveness: &Liveness, time: Duration) -> u32 {
        let n_fed = Cell::new(0);
        let watching = watch(liveness, Some(Duration::from_secs(120)), || n_fed.set(n_fed.get() + 1));
        timeout(time, watching).await.unwrap_err();
        n_fed.get()
    }
}
