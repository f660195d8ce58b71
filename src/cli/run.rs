//! `run`: the agent itself.

use std::path::Path;

use tracing::{error, info, warn};

use super::{Failure, block_on, load};
use crate::observe::logging;
use crate::observe::metrics::{Metrics, Totals};
use crate::run::{self, Hangups, Reload};

pub(super) fn run(path: &Path) -> Result<(), Failure> {
    let metrics = Metrics::default();
    // Dropped last: it writes out the lines that still wait.
    let mut guard = None;
    let done = block_on(async |shutdown| {
        // From here on a reload that comes early is remembered.
        let hangups = Hangups::listen()?;
        let loaded = load(path)?;
        let level = guard.insert(logging::init(&loaded.config.log)?).level_switch();
        for warning in &loaded.warnings {
            warn!(event = "config.warning", "{warning}");
        }
        let reload = Reload::new(path.to_owned(), level, hangups);
        Ok(run::run(loaded.config, Some(reload), metrics.clone(), shutdown).await?)
    });
    if guard.is_some() {
        tell_end(&done, metrics.totals());
    }
    done
}

fn tell_end(done: &Result<(), Failure>, totals: Totals) {
    let Totals { requests, throttled, retried_well, given_up } = totals;
    match done {
        Ok(()) => info!(
            event = "shutdown.completed",
            requests, throttled, retried_well, given_up, "everything in hand is finished"
        ),
        Err(failure) => error!(
            event = "shutdown.completed",
            requests,
            throttled,
            retried_well,
            given_up,
            error = failure.to_string(),
            "ended with an error"
        ),
    }
}
