//! Decisions, and nothing else: values in, a value out. No clock, no generator, no IO, no logging; time and
//! jitter are arguments (invariant 4).

pub mod backoff;
pub mod classify;
pub mod pace;
