//! `run`: the agent itself.

use std::path::Path;

use tracing::{error, info, warn};

use super::{Failure, block_on, load};
use crate::observe::logging::{self, ErrorChain};

pub(super) fn run(path: &Path) -> Result<(), Failure> {
    let loaded = load(path)?;
    // Dropped last: it writes out the lines that still wait.
    let _guard = logging::init(&loaded.config.log)?;
    for warning in &loaded.warnings {
        warn!(event = "config.warning", "{warning}");
    }
    let done = block_on(async |shutdown| Ok(crate::run::run(loaded.config, shutdown).await?));
    match &done {
        Ok(()) => info!(event = "shutdown.completed", "everything in hand is finished"),
        Err(failure) => {
            error!(event = "shutdown.completed", error = %ErrorChain(failure.as_error()), "ended with an error");
        }
    }
    done
}
