//! SIGHUP: the configuration is read anew, all of it or nothing.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::Agent;
use crate::config::{self, Config, ConfigErrors, Loaded};
use crate::observe::logging::{ErrorChain, LevelSwitch};
use crate::observe::systemd;

/// How long reading may take; a file system that hangs must not end reloading for good.
const LONGEST_READ: Duration = Duration::from_secs(30);

/// What a reload needs besides the agent.
pub struct Reload {
    /// The file to read; the environment of a process does not change.
    path: PathBuf,
    level: LevelSwitch,
    hangups: Hangups,
}

/// SIGHUP as a wish; without it the signal would end the process.
pub struct Hangups(Signal);

/// A configuration being read.
pub(super) type Reading = Pin<Box<dyn Future<Output = Result<Loaded, Unread>> + Send>>;

/// Why there is no new configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error(transparent)]
    Refused(ConfigErrors),
    #[error("reading the configuration took longer than {LONGEST_READ:?}")]
    TooSlow,
    #[error("reading the configuration ended early")]
    EndedEarly,
}

/// Why a configuration that is valid cannot be taken while the agent runs.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot change while the agent runs; restart it to take the new value", .0.join(", "))]
struct NeedsRestart(Vec<&'static str>);

impl Hangups {
    /// Listens from now on.
    ///
    /// # Errors
    /// The signal handler could not be installed.
    pub fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }
}

impl Reload {
    pub fn new(path: PathBuf, level: LevelSwitch, hangups: Hangups) -> Self {
        Self { path, level, hangups }
    }

    /// Waits for the next SIGHUP. Cancel safe.
    pub(super) async fn asked(&mut self) {
        if self.hangups.0.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// Begins to read; a reading that goes on is given up for it.
    pub(super) fn begin(&self) -> Reading {
        systemd::reloading();
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || config::load_regular(&path, std::env::vars_os()));
        Box::pin(async move {
            match timeout(LONGEST_READ, reading).await {
                Ok(Ok(read)) => read.map_err(Unread::Refused),
                Ok(Err(_)) => Err(Unread::EndedEarly),
                Err(_) => Err(Unread::TooSlow),
            }
        })
    }

    /// Takes the new configuration, or says why not and leaves everything as it is.
    pub(super) async fn end(&self, agent: &mut Agent, read: Result<Loaded, Unread>) {
        match read {
            Ok(loaded) => self.take(agent, loaded).await,
            Err(Unread::Refused(errors)) => {
                for problem in errors.problems() {
                    error!(event = "config.rejected", "{problem}");
                }
            }
            Err(unread @ (Unread::TooSlow | Unread::EndedEarly)) => {
                error!(event = "config.rejected", error = %unread, "the configuration stays as it was");
            }
        }
        systemd::ready();
    }

    async fn take(&self, agent: &mut Agent, loaded: Loaded) {
        let Loaded { config, warnings } = loaded;
        if let Err(refused) = can_be_taken(&agent.config, &config) {
            error!(event = "config.rejected", error = %refused, "the configuration stays as it was");
            return;
        }
        // The clients are all made before any feed is touched.
        let n_feeds = match agent.feeds.follow(&config).await {
            Ok(n_changed) => n_changed,
            Err(refused) => {
                error!(event = "config.rejected", error = %ErrorChain(&refused), "the configuration stays as it was");
                return;
            }
        };
        if let Err(refused) = self.level.set(&config.log.level) {
            error!(event = "log.level_kept", error = %ErrorChain(&refused), "log.level stays as it was");
        }
        if let Err(error) = agent.sinks.note(&config).await {
            warn!(event = "journal.blocked", error = %ErrorChain(&error), "the journal does not know yet which sinks there are");
        }
        let n_sinks = agent.sinks.follow(&config);
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

/// Waits for the end of a reading; for ever where nothing is read. Cancel safe.
pub(super) async fn finished(reading: &mut Option<Reading>) -> Result<Loaded, Unread> {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}

fn can_be_taken(running: &Config, new: &Config) -> Result<(), NeedsRestart> {
    let fixed = [
        ("journal.path or journal.retention", running.journal != new.journal),
        ("log.format", running.log.format != new.log.format),
        ("log.directory, log.rotation or log.max_files", running.log.files != new.log.files),
    ];
    let changed: Vec<_> = fixed.into_iter().filter(|(_, changes)| *changes).map(|(key, _)| key).collect();
    if changed.is_empty() { Ok(()) } else { Err(NeedsRestart(changed)) }
}
