//! SIGHUP: the configuration is read anew, all of it or nothing.

use std::path::PathBuf;

use tracing::{error, info, warn};

use super::Agent;
use crate::config::{self, Config, ConfigErrors, Loaded};
use crate::observe::logging::{ErrorChain, LevelSwitch};
use crate::observe::systemd;

/// What a reload needs besides the agent.
pub struct Reload {
    /// The file to read; the environment of a process does not change.
    pub path: PathBuf,
    pub level: LevelSwitch,
}

/// Why a configuration that is valid cannot be taken while the agent runs.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot change while the agent runs; restart it to take the new value", .0.join(", "))]
struct NeedsRestart(Vec<&'static str>);

impl Reload {
    /// Takes the new configuration, or says why not and leaves everything as it is.
    pub(super) async fn reload(&self, agent: &mut Agent) {
        systemd::reloading();
        match self.read().await {
            Ok(loaded) => self.take(agent, loaded),
            Err(errors) => {
                for problem in errors.problems() {
                    error!(event = "config.rejected", "{problem}");
                }
            }
        }
        systemd::ready();
    }

    async fn read(&self) -> Result<Loaded, ConfigErrors> {
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || config::load(&path, std::env::vars_os()));
        match reading.await {
            Ok(read) => read,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    fn take(&self, agent: &mut Agent, loaded: Loaded) {
        let Loaded { config, warnings } = loaded;
        if let Err(refused) = can_be_taken(&agent.config, &config) {
            error!(event = "config.rejected", error = %refused, "the configuration stays as it was");
            return;
        }
        // The clients are all made before any feed is touched.
        let n_feeds = match agent.feeds.follow(&config.accounts) {
            Ok(n_changed) => n_changed,
            Err(refused) => {
                error!(event = "config.rejected", error = %ErrorChain(&refused), "the configuration stays as it was");
                return;
            }
        };
        if let Err(refused) = self.level.set(&config.log.level) {
            error!(event = "log.level_kept", error = %ErrorChain(&refused), "log.level stays as it was");
        }
        let n_sinks = agent.sinks.follow(&config.sinks);
        for warning in &warnings {
            warn!(event = "config.warning", "{warning}");
        }
        agent.config = config;
        info!(
            event = "config.reloaded",
            feeds_changed = n_feeds,
            sinks_changed = n_sinks,
            "configuration reloaded"
        );
    }
}

fn can_be_taken(running: &Config, new: &Config) -> Result<(), NeedsRestart> {
    let fixed = [
        ("journal.path", running.journal != new.journal),
        ("log.format", running.log.format != new.log.format),
        ("log.directory, log.rotation or log.max_files", running.log.files != new.log.files),
    ];
    let changed: Vec<_> = fixed.into_iter().filter(|(_, changes)| *changes).map(|(key, _)| key).collect();
    if changed.is_empty() { Ok(()) } else { Err(NeedsRestart(changed)) }
}
