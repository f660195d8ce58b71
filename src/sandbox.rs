//! A local VTEX for rehearsals and tests: a feed that leases, redelivers and forgets like the real one.
//!
//! [`queue`] is the model, a value that also serves in-memory feeds; `world` adds app keys, made-up orders and the
//! ledger; `api` turns requests into answers; `server` puts that on a socket. Only [`Sandbox`] knows a clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Request, Response};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::config::Secret;
pub use ledger::{Ledger, Record};
use world::World;

mod api;
pub mod handle;
pub mod items;
mod ledger;
pub mod life;
pub mod memory;
pub mod queue;
mod server;
mod world;

/// What a sandbox is like.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Events that wait for each app key at its first contact.
    pub count: u64,
    /// Events per second made for each app key from then on; 0 makes none. At most 10,000.
    pub rate: f64,
    /// The same seed makes the same orders, the same shuffles and the same handles.
    pub seed: u64,
    /// How long a received event stays hidden.
    pub visibility: Duration,
    /// The only key pairs that are let in; empty lets in any.
    pub keys: Vec<KeyPair>,
}

impl Default for Options {
    fn default() -> Self {
        let visibility = queue::Rules::default().visibility;
        Self { count: 0, rate: 0.0, seed: 0, visibility, keys: Vec::new() }
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

#[derive(Debug)]
struct Inner {
    world: Mutex<World>,
    start: Instant,
}

impl Sandbox {
    pub fn new(options: Options) -> Self {
        let world = Mutex::new(World::new(options, Timestamp::now()));
        Self(Arc::new(Inner { world, start: Instant::now() }))
    }

    /// What was enqueued, received and committed so far, and how much waits.
    pub fn ledger(&self) -> Ledger {
        let mut world = self.world();
        world.ledger(self.now())
    }

    fn answer(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let mut world = self.world();
        // Read under the lock: time must not go back from one call to the next.
        let now = self.now();
        api::answer(&mut world, now, request)
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
