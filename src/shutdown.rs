//! The wish to stop: SIGTERM and SIGINT become one cancelled token.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A second signal that comes sooner is the same wish: `timeout` signals the process and then its group.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Listens for SIGTERM and SIGINT from now on. The first of them cancels `shutdown`; the future that is returned
/// ends with the second. It must be polled for either to be noticed.
///
/// # Errors
/// The signal handlers could not be installed.
pub fn on_signals(shutdown: CancellationToken) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let mut asked = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        asked().await;
        shutdown.cancel();
        let first = Instant::now();
        loop {
            asked().await;
            if SAME_WISH <= first.elapsed() {
                return;
            }
        }
    })
}
