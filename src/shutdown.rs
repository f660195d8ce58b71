//! The wish to stop: SIGTERM and SIGINT become one cancelled token.

use std::future::Future;
use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Listens for SIGTERM and SIGINT from now on. The first of them cancels `shutdown`; the future that is returned
/// ends with the second. It must be polled for either to be noticed.
///
/// # Errors
/// The signal handlers could not be installed.
pub fn on_signals(shutdown: CancellationToken) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            shutdown.cancel();
        }
    })
}
