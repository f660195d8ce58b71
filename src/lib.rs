//! An agent that reads the VTEX order feed (Feed v3), makes every event durable, commits it, and delivers it.
//!
//! # The one idea: journal first
//!
//! ```text
//! VTEX feed ──receive──► journal ──commit──► VTEX feed
//!                           └──deliver──► sinks
//! ```
//!
//! A received event is leased: hidden from other readers until its lease lapses, then it comes back. It is journaled
//! in a synced transaction, and only then is its handle committed. Delivery reads the journal, never the feed.
//!
//! # The map, in reading order
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | the words: event, key, handle, leased item |
//! | [`policy`] | every decision, pure: what a failure means, how long to wait, how fast to go |
//! | [`http`] | one attempt over HTTP, whoever is asked |
//! | [`vtex`] | VTEX as it is asked: its addresses, credentials and feed |
//! | [`account`] | one feed's loop (receive → journal → commit → wait), and the gate of its VTEX account |
//! | [`journal`] | what is kept for good, and the only maker of [`journal::Journaled`] |
//! | [`delivery`] | one worker a sink, reading the journal |
//! | [`sink`] | where events go |
//! | [`run`] | the composition root: starting, reloading, stopping |
//! | [`config`], [`cli`], [`shutdown`] | what the user says |
//! | [`observe`] | what the agent says: logs, systemd, the watchdog |
//! | [`sandbox`] | a local VTEX, and the in-memory feed of the tests |
//! | [`simulation`] | years of bad days of all of the above, from one seed |
//! | `tidy` | which of the files that we made are too many |
//! | [`wall`] | wall time, which jumps |
//!
//! Follow one event: `account/poll` → `account/receive` → [`vtex::feed`] → [`journal`] (`sqlite/append`) →
//! [`delivery`] (`lines`, `events`) → [`sink`] (`file`, `webhook`, `command`); its handle goes `account/poll` → `account/commit` → [`vtex::feed`].
//!
//! The pause after a 429 is decided in [`policy::pause`], enforced in [`account::gate`], and stored by
//! `account/attempt` in the [`journal`].
//!
//! # Invariants
//!
//! 1. Only what is journaled and synced is committed: [`vtex::feed::Feed::commit`] takes only
//!    [`journal::Journaled`].
//! 2. No request of an account leaves before its gate opens; none within a pause.
//! 3. No two polls of a feed start closer than `poll.interval`, counted from the end of the last.
//! 4. [`policy`] is pure: no clock, no generator, no IO, no logging.
//! 5. Nothing is unbounded: bodies, batches, retries, hints, drains, log fields, files.
//! 6. A secret has no `Display` and a redacted `Debug`; app token, handles and order contents are in no log, error or
//!    journal.
//! 7. Shutdown races the waiting, never the work: a received batch is journaled and its commit tried.
//! 8. Every loop that can fail waits before it goes round.

pub mod account;
pub mod cli;
pub mod config;
pub mod delivery;
pub mod event;
pub mod http;
pub mod journal;
pub mod observe;
pub mod policy;
pub mod run;
pub mod sandbox;
pub mod shutdown;
pub mod simulation;
pub mod sink;
mod tidy;
pub mod vtex;
pub mod wall;
