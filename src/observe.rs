//! What the agent tells the world about itself.
//!
//! [`logging`] writes one line for each record; [`systemd`] tells the service manager where the agent stands.

pub mod logging;
pub mod systemd;
