//! One agent, put together as `run` does it, from its start to its end.

use std::sync::Arc;
use std::sync::PoisonError;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::coverage::Met;
use super::disk::Medium;
use super::inline;
use super::journal::{Shared, SimulatedJournal, User};
use super::operator;
use super::plan::{GRACE, REQUEST_TIMEOUT};
use super::receiver::SimulatedReceiver;
use super::sink::SimulatedSink;
use super::storage::Storage;
use super::trace::Step;
use super::vtex::SimulatedFeed;
use super::world::World;
use crate::account::{Account, Gate, Memory};
use crate::config::{self, SecretSource};
use crate::delivery;
use crate::journal::JournalError;
use crate::observe::liveness::Liveness;
use crate::observe::status::Status;
use crate::policy::schedule;
use crate::sink::FileSink;

/// How an agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    Crash,
    Shutdown,
    /// A shutdown that took longer than the grace period, so it was a crash in the end.
    GraceExceeded,
}

pub(super) struct Agent {
    world: Arc<World>,
    storage: Arc<Storage>,
    /// Which one of this simulation's.
    run: u32,
    feeds: JoinSet<()>,
    sinks: JoinSet<()>,
    stop_feeds: CancellationToken,
    stop_sinks: CancellationToken,
    /// Cancelled when the storage wants the power to go.
    pub(super) crash: CancellationToken,
    pub(super) liveness: Liveness,
    /// What was left of stored pauses at the start.
    pub(super) longest_pause: Duration,
    pub(super) journal: Arc<Shared>,
}

impl Agent {
    /// # Errors
    /// The journal could not be opened or read; nothing was sent.
    pub(super) async fn start(
        world: &Arc<World>,
        storage: &Arc<Storage>,
        run: u32,
        rng: &mut StdRng,
    ) -> Result<Self, JournalError> {
        let crash = CancellationToken::new();
        let journal = Arc::new(Shared::open(world, storage, crash.clone())?);
        let sinks = (0..world.plan.n_sinks).map(sink_name);
        let receivers = (0..world.plan.receivers.len()).map(operator::name);
        // As the agent does it, before anything is received: all of them begin with the first event.
        inline::to_its_end(journal.inner.know_sinks(sinks.chain(receivers).collect(), world.wall.now()))?;
        note_records(world, storage);
        let mut agent = Self {
            world: Arc::clone(world),
            storage: Arc::clone(storage),
            run,
            feeds: JoinSet::new(),
            sinks: JoinSet::new(),
            stop_feeds: CancellationToken::new(),
            stop_sinks: CancellationToken::new(),
            crash,
            liveness: Liveness::default(),
            longest_pause: Duration::ZERO,
            journal,
        };
        let (mut gates, mut restored) = (Vec::new(), Vec::new());
        for account in 0..world.plan.n_accounts {
            let gate = Gate::new(format!("account-{account}"), world.plan.gate.clone(), rng.random());
            let wall = world.wall.now();
            restored.push(world.with(|state, now| state.oracle.accounts[account].started(now, wall)));
            gate.restore(&agent.journal(User::Gates), &world.wall).await?;
            gates.push(Arc::new(gate));
        }
        world.with(|state, now| {
            state.oracle.started();
            if restored.iter().any(|left| Duration::ZERO < *left) {
                state.coverage.meet(Met::PauseRestored);
            }
            state.trace.note(now, Step::Started { run, restored });
        });
        agent.longest_pause = gates.iter().filter_map(|gate| gate.pause_left()).max().unwrap_or_default();
        for feed in 0..world.plan.feeds.len() {
            let gate = Arc::clone(&gates[world.plan.feeds[feed].account]);
            agent.start_feed(feed, gate, rng.random());
        }
        for sink in 0..world.plan.n_sinks {
            agent.start_sink(sink, rng.random());
        }
        for receiver in 0..world.plan.receivers.len() {
            agent.start_receiver(receiver, rng.random());
        }
        Ok(agent)
    }

    /// Waits for a loop that ends although nobody asked it to. Cancel safe.
    pub(super) async fn ended_early(&mut self) -> String {
        let ended = tokio::select! {
            biased;
            Some(ended) = self.feeds.join_next() => ended,
            Some(ended) = self.sinks.join_next() => ended,
        };
        match ended {
            Ok(()) => "a loop ended by itself".to_owned(),
            Err(error) => format!("a loop ended by itself: {error}"),
        }
    }

    /// Stops as a signal stops it, or as the service manager does after that. Returns how it ended.
    pub(super) async fn stop(mut self, rng: &mut StdRng) -> Ending {
        self.world.with(|state, now| {
            state.oracle.stop_asked(now);
            if state.oracle.busy_for(now).is_some() {
                state.coverage.meet(Met::ShutdownInPoll);
            }
        });
        self.stop_feeds.cancel();
        let finishing = async {
            while let Some(ended) = self.feeds.join_next().await {
                self.world.with(|state, _| state.expect(ended.map_err(|error| error.to_string())));
            }
            self.world.with(|state, now| {
                state.oracle.receivers.iter_mut().for_each(|receiver| receiver.stop_asked(now));
            });
            self.stop_sinks.cancel();
            while let Some(ended) = self.sinks.join_next().await {
                self.world.with(|state, _| state.expect(ended.map_err(|error| error.to_string())));
            }
        };
        let finished = tokio::select! {
            biased;
            () = self.crash.cancelled() => return self.end(Ending::Crash, rng).await,
            finished = timeout(GRACE, finishing) => finished,
        };
        match finished {
            Ok(()) => self.end(Ending::Shutdown, rng).await,
            Err(_) => self.end(Ending::GraceExceeded, rng).await,
        }
    }

    /// Ends without a word.
    pub(super) async fn power_cut(self, rng: &mut StdRng) {
        self.end(Ending::Crash, rng).await;
    }

    async fn end(mut self, how: Ending, rng: &mut StdRng) -> Ending {
        let untold = self.journal.untold.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.world.with(|state, now| {
            state.note_end(now, how);
            state.trace.note(now, Step::Ended { run: self.run, how });
        });
        // At once for all: what one of them held, another would take and go on with although the power is gone.
        self.crash.cancel();
        self.feeds.abort_all();
        self.sinks.abort_all();
        self.feeds.shutdown().await;
        self.sinks.shutdown().await;
        match how {
            Ending::Shutdown => drop(self.journal),
            Ending::Crash | Ending::GraceExceeded => {
                let torn = self.storage.copy_journal(untold, rng.random());
                drop(self.journal);
                let torn = torn.and_then(|n_bytes| self.storage.put_copy_back().map(|()| n_bytes));
                self.world.with(|state, now| match torn {
                    Ok(0) => {}
                    Ok(n_bytes) => {
                        state.coverage.meet(Met::TornJournal);
                        state.trace.note(now, Step::Torn { medium: Medium::Journal, n_bytes });
                    }
                    Err(error) => state.expect(Err(format!("the simulation's storage failed: {error}"))),
                });
                for sink in 0..self.world.plan.n_sinks {
                    tear_sink(&self.world, &self.storage, sink, rng.random());
                }
            }
        }
        how
    }

    fn journal(&self, user: User) -> SimulatedJournal {
        SimulatedJournal::new(Arc::clone(&self.journal), user)
    }

    fn start_feed(&mut self, feed: usize, gate: Arc<Gate>, seed: u64) {
        let plan = &self.world.plan.feeds[feed];
        let (world, stop) = (Arc::clone(&self.world), self.stop_feeds.clone());
        let polling = self.liveness.register(format!("polling of feed {feed}"));
        let learning = self.liveness.register(format!("learning of feed {feed}"));
        let first_poll =
            Instant::now() + schedule::first_poll_in(feed, world.plan.feeds.len(), plan.poll.interval);
        let (name, poll, journal) = (plan.name.clone(), plan.poll.clone(), self.journal(User::Feed(feed)));
        self.feeds.spawn(async move {
            let memory = Memory::new(polling, learning, first_poll, seed);
            let account = Account {
                name,
                source: "simulation:/api/orders/feed".to_owned(),
                poll,
                retry: world.plan.retry,
                request_timeout: REQUEST_TIMEOUT,
                app_token_source: SecretSource::Literal,
                wall: world.wall.clone(),
                feed: SimulatedFeed { feed, world },
                journal: Arc::new(journal),
                gate,
                status: Status::default(),
                memory: &memory,
            };
            account.run(&stop).await;
        });
    }

    fn start_sink(&mut self, sink: usize, seed: u64) {
        let file = config::FileSink { path: self.storage.sink(sink), mode: 0o600, rotation: None };
        let (journal, stop) = (self.journal(User::Sink(sink)), self.stop_sinks.clone());
        let heartbeat = self.liveness.register(format!("sink {sink}"));
        let simulated = SimulatedSink {
            sink,
            inner: FileSink::new(&file, self.world.wall.clone()),
            storage: Arc::clone(&self.storage),
            world: Arc::clone(&self.world),
            crash: self.crash.clone(),
        };
        self.sinks.spawn(async move {
            let name = sink_name(sink);
            let worker = delivery::LineWorker {
                name: &name,
                wanted: config::Wanted::default(),
                sink: simulated,
                journal: &journal,
                heartbeat: &heartbeat,
            };
            worker.run(seed, &stop).await;
        });
    }

    fn start_receiver(&mut self, receiver: usize, seed: u64) {
        let plan = &self.world.plan.receivers[receiver];
        let (limits, breaker, wanted) = (plan.limits.clone(), plan.breaker, plan.wanted.clone());
        let (journal, stop) = (self.journal(User::Receiver(receiver)), self.stop_sinks.clone());
        let heartbeat = self.liveness.register(format!("receiver {receiver}"));
        let (world, crash) = (Arc::clone(&self.world), self.crash.clone());
        self.sinks.spawn(async move {
            let worker = delivery::EventWorker {
                name: &operator::name(receiver),
                wanted,
                limits,
                breaker,
                wall: world.wall.clone(),
                sink: Arc::new(SimulatedReceiver { receiver, world, crash }),
                journal: Arc::new(journal),
                heartbeat: &heartbeat,
                keeps_wait: true,
            };
            worker.run(seed, &stop).await;
        });
    }
}

/// What a new agent will find of the receivers' deliveries.
fn note_records(world: &World, storage: &Storage) {
    for receiver in 0..world.plan.receivers.len() {
        let records = operator::records(storage, receiver);
        world.with(|state, _| {
            let kept = match records {
                Ok(found) => state.oracle.receivers[receiver].started(found.as_ref()),
                Err(error) => Err(format!("the journal cannot be read: {error}")),
            };
            state.expect(kept.map_err(|text| format!("receiver {receiver}: {text}")));
        });
    }
}

/// Takes back a share (from 0 to 1) of what a sink was given but had not synced.
fn tear_sink(world: &World, storage: &Storage, sink: usize, share: f64) {
    let Some(before) = world.with(|state, _| state.sinks[sink].unsynced.take()) else { return };
    let now = storage.sink_length(sink);
    if now <= before {
        return;
    }
    let n_bytes = ((now - before) as f64 * share) as u64;
    let torn = storage.tear_sink(sink, now - n_bytes);
    world.with(|state, at| {
        state.coverage.meet(Met::TornSink);
        state.trace.note(at, Step::Torn { medium: Medium::Sink(sink), n_bytes });
        state.expect(torn.map_err(|error| format!("the simulation's storage failed: {error}")));
    });
}

fn sink_name(sink: usize) -> String {
    format!("sink-{sink}")
}
