//! The client of VTEX: one attempt a call, never a retry, never a wait.

pub mod ask;
pub mod feed;
pub mod http;
pub mod path;
pub(crate) mod wire;
