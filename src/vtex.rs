//! The client of VTEX: one attempt a call, never a retry, never a wait.

pub mod feed;
pub mod http;
pub(crate) mod wire;
