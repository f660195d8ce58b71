//! `run`: the agent itself.

use std::path::Path;

use tracing::{error, info, warn};

use super::{Failure, block_on, load};
use crate::observe::logging::{self, ErrorChain};
use crate::run::Reload;

pub(super) fn run(path: &Path) -> Result<(), Failure> {
    let loaded = load(path)?;
    // Dropped last: it writes out the lines that still wait.
    let guard = logging::init(&loaded.config.log)?;
    for warning in &loaded.warnings {
        warn!(event = "config.warning", "{warning}");
    }
    let reload = Reload { path: path.to_owned(), level: guard.level_switch() };
    let done = block_on(async |shutdown| Ok(crate::run::run(loaded.config, Some(reload), shutdown).await?));
    match &done {
        Ok(()) => info!(event = "shutdown.completed", "everything in hand is finished"),
        Err(Failure::Failed(failure)) => {
            error!(event = "shutdown.completed", error = %ErrorChain(&**failure), "ended with an error");
        }
        Err(Failure::Config(_) | Failure::Refused(_) | Failure::Told) => {
            error!(event = "shutdown.completed", "configuration refused")
        }
    }
    done
}
