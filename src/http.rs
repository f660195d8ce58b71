//! One HTTP attempt, whoever is asked: its connection, its answer and what that asks of the pace. Never a retry, never
//! a redirect, nothing without a limit.

pub use answer::{Answer, Hints, NoAnswer, redact, send};

mod answer;
pub mod client;
