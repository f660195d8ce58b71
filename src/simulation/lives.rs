//! Agents come and go for as long as the plan says; then the faults end, and the last one must bring everything home.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, sleep_until};

use super::agent::{Agent, Ending};
use super::audit::{self, CALM_FOR};
use super::disk::{Disk, Medium};
use super::happenings;
use super::operator;
use super::plan::{Plan, about, generator};
use super::storage::Storage;
use super::trace::Step;
use super::world::World;

/// How often it is looked at whether all is done, and whether a loop hangs.
const LOOK: Duration = Duration::from_secs(60);

/// What is left becomes less in this time: after a slow poll, the longest lease, backoff, the breaker. Poison takes longest
/// where few of the events that keep it company are for its receiver.
const QUIET_WITHIN: Duration = Duration::from_secs(12 * 3600);

/// A hint of a day, and its jitter.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600 + 60);

/// Events of each feed that come all at once when the last but one agent is about to be stopped.
const RUSH: u32 = 30;

/// Between an agent that could not start and the next one.
const RESTART: Duration = Duration::from_secs(10);

/// Runs the whole simulation; it ends early at the first violation, which the world has noted then.
pub(super) async fn live(world: &Arc<World>, storage: &Arc<Storage>) {
    let mut lives = Lives {
        world: Arc::clone(world),
        storage: Arc::clone(storage),
        rng: generator(world.plan.seed, "lives"),
        operator_rng: generator(world.plan.seed, "operator"),
        n_runs: 0,
        until: Instant::now() + world.plan.span,
    };
    let all = async {
        tokio::select! {
            biased;
            () = lives.bad_days() => {}
            never = happenings::happen(world, storage) => match never {},
        }
        lives.last_day().await;
    };
    world.violated.run_until_cancelled(all).await;
}

struct Lives {
    world: Arc<World>,
    storage: Arc<Storage>,
    rng: StdRng,
    operator_rng: StdRng,
    n_runs: u32,
    until: Instant,
}

impl Lives {
    async fn bad_days(&mut self) {
        while Instant::now() < self.until {
            let Some(mut agent) = self.start().await else { continue };
            let end = (Instant::now() + about(self.world.plan.mean_life, &mut self.rng)).min(self.until);
            let journal = Arc::clone(&agent.journal);
            let operating = operator::operate(&self.world, &self.storage, &journal, &mut self.operator_rng);
            let crashes = tokio::select! {
                biased;
                () = agent.crash.clone().cancelled_owned() => true,
                why = run(&self.world, &mut agent) => {
                    self.world.with(|state, _| state.expect(Err(why)));
                    true
                }
                () = sleep_until(end) => self.rng.random_bool(0.5),
                never = operating => match never {},
            };
            // It is closed with the agent.
            drop(journal);
            self.end(agent, crashes).await;
            self.audit_journal();
            self.stay_down().await;
        }
    }

    async fn end(&mut self, agent: Agent, crashes: bool) {
        if crashes {
            agent.power_cut(&mut self.rng).await;
            return;
        }
        self.wait_for_a_bad_moment().await;
        if agent.stop(&mut self.rng).await == Ending::Shutdown {
            self.world.with(|state, now| state.audit_shutdown(now));
        }
    }

    /// No more faults: all that is owed must arrive, also when the agent is stopped in the middle of its work.
    async fn last_day(&mut self) {
        self.world.with(|state, now| state.end_faults(now));
        operator::tidy_up(&self.world, &self.storage, &mut self.operator_rng);
        self.good_day(true).await;
        self.good_day(false).await;
        let kept = audit::journal_bytes(&self.storage);
        self.world.with(|state, _| state.expect(kept));
        audit::sinks(&self.world, &self.storage);
        audit::receivers(&self.world, &self.storage);
    }

    async fn good_day(&mut self, ends_in_a_rush: bool) {
        let Some(mut agent) = self.start().await else {
            self.world.with(|state, _| state.expect(Err("the agent does not start".to_owned())));
            return;
        };
        let first_look = agent.longest_pause.min(LONGEST_PAUSE);
        let mut rng = generator(self.world.plan.seed, "company");
        let quiet = rest(&self.world, first_look, &mut rng);
        let came_to_rest = tokio::select! {
            biased;
            why = run(&self.world, &mut agent) => Err(why),
            came_to_rest = quiet => came_to_rest,
        };
        self.world.with(|state, now| {
            state.trace.note(now, Step::Quiet);
            state.expect(came_to_rest);
        });
        if ends_in_a_rush {
            self.rush().await;
        }
        if agent.stop(&mut self.rng).await != Ending::Shutdown {
            self.world
                .with(|state, _| state.expect(Err("the grace period ran out on a good day".to_owned())));
        }
        self.world.with(|state, now| state.audit_shutdown(now));
        self.audit_journal();
    }

    /// Waits until a shutdown owes everything, then gives the agent plenty to do and the sinks a slow disk, and returns
    /// in the middle of it.
    async fn rush(&mut self) {
        sleep(CALM_FOR).await;
        let Plan { n_sinks, feeds, .. } = &self.world.plan;
        self.world.with(|state, now| {
            state.disks.extend((0..*n_sinks).map(|sink| (Medium::Sink(sink), Disk::Slow)));
            for feed in 0..feeds.len() {
                for _ in 0..RUSH {
                    state.enqueue(now, feed, &mut self.rng);
                }
            }
        });
        self.wait_until_busy_for(Duration::ZERO).await;
        sleep(Duration::from_millis(self.rng.random_range(0..1_000))).await;
    }

    /// Most of the time nothing is under way; a shutdown is worth more when something is, or even hangs.
    async fn wait_for_a_bad_moment(&mut self) {
        let least = [None, Some(Duration::ZERO), Some(Duration::from_secs(2))][self.rng.random_range(0..3)];
        if let Some(least) = least {
            self.wait_until_busy_for(least).await;
        }
    }

    /// Waits for a request that has been under way for so long; in the end without one.
    async fn wait_until_busy_for(&self, least: Duration) {
        for _ in 0..10_000 {
            if self.world.with(|state, now| state.oracle.busy_for(now)).is_some_and(|busy| least <= busy) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn start(&mut self) -> Option<Agent> {
        self.n_runs += 1;
        let started = Agent::start(&self.world, &self.storage, self.n_runs, &mut self.rng).await;
        if started.is_err() {
            sleep(RESTART).await;
        }
        started.ok()
    }

    /// Mostly a restart, now and then hours.
    async fn stay_down(&mut self) {
        let longest_s = [2.0, 300.0, 300.0, 7_200.0][self.rng.random_range(0..4)];
        let down = Duration::from_secs_f64(self.rng.random_range(0.0..longest_s));
        sleep(down / 2).await;
        if self.operator_rng.random_bool(0.3) {
            operator::act(&self.world, &self.storage, false, &mut self.operator_rng);
        }
        sleep(down / 2).await;
    }

    fn audit_journal(&self) {
        let kept = audit::journal(&self.world, &self.storage);
        self.world.with(|state, _| state.expect(kept));
    }
}

/// Waits until nothing is left to be done.
///
/// # Errors
/// What is left, when it has not become less for too long.
async fn rest(world: &World, first_look: Duration, rng: &mut StdRng) -> Result<(), String> {
    sleep(first_look).await;
    let (mut least, mut less_at) = (usize::MAX, Instant::now());
    loop {
        sleep(LOOK).await;
        world.with(|state, now| state.keep_company(now, rng));
        match world.with(|state, now| state.unquiet(now)) {
            None => return Ok(()),
            Some((n_left, _)) if n_left < least => (least, less_at) = (n_left, Instant::now()),
            Some((_, what)) if QUIET_WITHIN <= less_at.elapsed() => return Err(format!("not alive: {what}")),
            Some(_) => {}
        }
    }
}

/// Returns why the agent does not run as it should, if it ever does not.
async fn run(world: &World, agent: &mut Agent) -> String {
    let liveness = agent.liveness.clone();
    let hangs = async {
        loop {
            sleep(LOOK).await;
            if let Some(overdue) = liveness.overdue(Instant::now()).first() {
                return format!("the loop `{}` would be restarted by the watchdog", overdue.name);
            }
            if let Some(why) = world.with(|state, now| state.overlooked(now)) {
                return why;
            }
            if let Some(feed) = world.with(|state, now| state.oracle.has_not_probed(now)) {
                return format!("feed {feed} does not probe the journal that failed");
            }
        }
    };
    tokio::select! {
        biased;
        () = world.violated.cancelled() => "stopped".to_owned(),
        why = agent.ended_early() => why,
        why = hangs => why,
    }
}
