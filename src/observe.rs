//! What the agent tells the world about itself.
//!
//! [`logging`] writes one line for each record. [`systemd`] tells the service manager where the agent stands: that it
//! lives, while [`liveness`] finds every loop going round, and the line that [`status`] makes of the facts. [`metrics`]
//! counts.

pub mod liveness;
pub mod logging;
pub mod metrics;
pub mod status;
pub mod systemd;
pub mod thinning;
