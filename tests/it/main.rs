//! The binary and the library, tried from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod binary;
mod command;
mod config;
mod contract;
mod dead_letters;
mod delivery;
mod events;
mod heartbeat;
mod logging;
mod policy_purity;
mod politeness;
mod price_notifications;
mod rotation;
mod sandbox;
mod sandbox_faults;
mod sandbox_oracle;
mod sandbox_python;
mod sandbox_rehearsal;
mod sandbox_support;
mod service;
mod simulation;
mod strace;
mod support;
mod unit;
mod vtex;
mod webhook;
