//! The configuration: one TOML file and the environment become a [`Config`] in which every value is valid.
//!
//! [`load`] lays the layers over each other (`layers`), reads them into a raw mirror (`read`, `raw`) and validates
//! it (`validate`). Whatever exists as a [`Config`] may be
//! used without another check; the keys, defaults and ranges are those of `config.example.toml`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use crate::policy::retry::Retry;
use crate::policy::{breaker, pause};

pub use crate::policy::rotation::Rotation;
pub use load::{Inspection, Loaded, Settings, inspect, load, load_regular, outline, settings};
pub use outline::{Outline, source};
pub use problem::{ConfigErrors, Problem, Warning};
pub use schema::schema;
pub use secret::{Secret, SecretError, SecretSource};
pub use show::Setting;
pub use sink::{ClientCert, Command, FileSink, Limits, SigningSecret, Sink, SinkKind, Wanted, Webhook};

mod complete;
mod environment;
mod file;
mod layers;
pub(crate) mod limited;
mod load;
mod origin;
mod outline;
mod problem;
mod raw;
mod read;
mod schema;
mod secret;
mod show;
mod sink;
mod validate;

/// No time-out of a request is longer.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Everything the agent was told, valid as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The enabled feeds, sorted by name; at least one.
    pub accounts: Vec<Account>,
    pub retry: Retry,
    pub rate_limit: pause::Settings,
    pub circuit_breaker: breaker::Settings,
    pub journal: Journal,
    /// Sorted by name; may be empty.
    pub sinks: Vec<Sink>,
    pub log: Log,
    pub shutdown: Shutdown,
}

/// One feed, that is one app key of a VTEX account.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// The user's own name of the feed: lower-case letters, digits and `-`.
    pub name: String,
    /// The VTEX account; feeds of one account share its gate.
    pub account: String,
    /// `https`, or `http` to a loopback address; without a trailing slash in its path.
    pub base_url: Url,
    pub app_key: Secret,
    pub app_token: Secret,
    /// Where to read the token again after it was refused; see [`Secret::from_file`].
    pub app_token_source: SecretSource,
    pub poll: Poll,
    pub requests: Requests,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Poll {
    /// From the end of a poll to the start of the next; at least 5 s.
    pub interval: Duration,
    /// Items asked for in one receive, 1–10.
    pub batch_size: u8,
    /// Whether a poll receives until the feed answers an empty batch.
    pub drain: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Requests {
    /// Above 0, at most 10,000.
    pub per_second: f64,
    /// 1–10,000.
    pub burst: u32,
    /// For one attempt, body included.
    pub timeout: Duration,
    pub connect_timeout: Duration,
    /// Bytes of a body after decompression.
    pub max_body: u64,
    /// Requests of the VTEX account at a time, 1–32.
    pub concurrency: u32,
    pub proxy: Proxy,
    /// Authorities trusted besides the system's.
    pub ca_file: Option<CaFile>,
}

/// Which proxy requests go through.
#[derive(Clone, PartialEq)]
pub enum Proxy {
    /// None, whatever the environment says.
    None,
    /// The one that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name.
    Env,
    /// `http` or `https`; its user and password are a secret.
    Url(Url),
}

/// Certificates as they were when the configuration was read, so that a reload notices new ones.
#[derive(Clone, PartialEq)]
pub struct CaFile {
    pub path: PathBuf,
    /// At least one certificate that the TLS library accepts, as PEM.
    pub pem: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    pub path: PathBuf,
    /// How long an event is kept that every sink is done with.
    pub retention: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// A level or a filter, as `tracing_subscriber::EnvFilter` reads it.
    pub level: String,
    pub format: LogFormat,
    /// Files beside stdout.
    pub files: Option<LogFiles>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LogFiles {
    pub directory: PathBuf,
    pub rotation: Rotation,
    /// At least 1.
    pub max_files: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Shutdown {
    /// At most the unit's stop timeout.
    pub grace: Duration,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Env => f.write_str("Env"),
            Self::Url(url) => write!(f, "Url({:?})", url.host_str()),
        }
    }
}

impl fmt::Debug for CaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaFile").field("path", &self.path).finish_non_exhaustive()
    }
}
