//! A local VTEX for rehearsals and tests: a feed that leases, redelivers and forgets like the real one.
//!
//! [`queue`] is the model, a value that also serves in-memory feeds. `world` adds accounts with feeds, made-up orders
//! and the ledger; `api` turns requests into answers, [`faults`] decides which of them go wrong; `server`, `wire` and
//! `oracle` put that on sockets. Only [`Sandbox`] knows a clock, and a seed repeats all the rest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::config::Secret;
pub use document::DECOY;
pub use ledger::{Ledger, Penalized, Record};
pub use route::Operation;
pub use settings::{Settings, SettingsError};
pub use throttle::{LimitHeaders, RateLimit, RetryAfter};
use wire::Reply;
use world::World;

mod account;
mod api;
pub mod behaviour;
mod document;
pub mod faults;
mod feed;
mod feed_config;
mod flow;
pub mod handle;
pub mod items;
mod jsonata;
mod ledger;
mod life;
pub mod memory;
mod oracle;
mod order_ids;
pub mod queue;
mod route;
mod server;
mod settings;
mod strict;
pub mod text;
mod throttle;
mod wire;
mod world;

/// What a sandbox is like.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Events that wait for each app key at its first contact; at most 1,000,000.
    pub count: u64,
    /// Events per second that the orders of an account make, on average; 0 makes none. At most 10,000.
    pub rate: f64,
    /// The same seed makes the same orders, shuffles and faults; dates, and with them event ids and handles, follow the
    /// clock.
    pub seed: u64,
    /// How long a received event stays hidden, until a posted configuration says otherwise.
    pub visibility: Duration,
    /// The only key pairs that are let in; empty lets in any.
    pub keys: Vec<KeyPair>,
    /// Feeds have no configuration until one is posted.
    pub unconfigured: bool,
    pub settings: Settings,
}

impl Default for Options {
    fn default() -> Self {
        let visibility = queue::Rules::default().visibility;
        Self {
            count: 0,
            rate: 0.0,
            seed: 0,
            visibility,
            keys: Vec::new(),
            unconfigured: false,
            settings: Settings::default(),
        }
    }
}

/// What a caller sends as `X-VTEX-API-AppKey` and `X-VTEX-API-AppToken`.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyPair {
    pub app_key: String,
    pub app_token: Secret,
}

/// A running sandbox; clones are the same one.
#[derive(Debug, Clone)]
pub struct Sandbox(Arc<Inner>);

/// A feed takes no items because it has no configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the feed has no configuration")]
pub struct Unconfigured;

#[derive(Debug)]
struct Inner {
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    world: World,
    /// What the world's time was at `start`, and by how much it was moved since.
    offset: Duration,
}

impl Sandbox {
    pub fn new(options: Options) -> Self {
        let now = Timestamp::now();
        // Whole seconds, so that the fractions of the dates are those that were drawn.
        let epoch = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let offset = Duration::try_from(now.duration_since(epoch)).unwrap_or_default();
        let state = Mutex::new(State { world: World::new(options, epoch), offset });
        Self(Arc::new(Inner { start: Instant::now(), state }))
    }

    /// What was enqueued, received and committed so far, and how much waits.
    pub fn ledger(&self) -> Ledger {
        self.with_world(|world, now| world.ledger(now))
    }

    /// The ledger without its list of events, which costs little however long the sandbox has been running.
    pub fn counts(&self) -> Ledger {
        self.with_world(|world, now| world.counts(now))
    }

    /// Puts items into the queue of an app key: JSON of any shape, normally an object without `handle`.
    ///
    /// # Errors
    /// [`Unconfigured`]
    pub fn push(&self, app_key: &str, items: &[Value]) -> Result<(), Unconfigured> {
        self.with_world(|world, now| world.push(now, app_key, items)).map_err(|_| Unconfigured)
    }

    /// The sandbox's time since its start, in milliseconds.
    fn now_ms(&self) -> u64 {
        self.with_world(|_, now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    }

    /// Moves the sandbox's clock forward: leases lapse, messages expire, orders go their way.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.offset = state.offset.saturating_add(by);
    }

    fn answer(&self, request: &Request<Bytes>) -> Reply {
        self.with_world(|world, now| api::answer(world, now, request))
    }

    /// The time is read under the lock, as it must not go back from one call to the next.
    fn with_world<T>(&self, ask: impl FnOnce(&mut World, Duration) -> T) -> T {
        let mut state = self.state();
        let now = state.offset.saturating_add(self.0.start.elapsed());
        ask(&mut state.world, now)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
