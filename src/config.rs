//! The configuration: one TOML file and the environment become a [`Config`] in which every value is valid.
//!
//! [`load`] reads the sources into a raw mirror (`raw`) and validates it. Whatever exists as a [`Config`] may be
//! used without another check; the keys, defaults and ranges are those of `config.example.toml`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;

use environment::Variables;
use file::ReadError;
use layers::{KeyPath, Layers};
use origin::Origin;
pub use problem::{ConfigErrors, Problem, Warning};
use raw::RawConfig;
pub use secret::{Secret, SecretError, SecretSource};
use validate::Remarks;

mod complete;
mod environment;
mod file;
mod layers;
mod origin;
mod problem;
mod raw;
mod read;
mod secret;
mod validate;

/// A valid configuration and what its user should know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub config: Config,
    pub warnings: Vec<Warning>,
}

/// Reads and validates the configuration: defaults, then the file, then `ORDER_FEED_AGENT__…` of the environment.
/// Secrets are fetched from where they are. Nothing is written and no request is sent.
///
/// # Errors
///
/// Every problem found; where the file is no TOML, only what is wrong with that.
pub fn load(
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Loaded, ConfigErrors> {
    let file = path.display().to_string();
    let variables: Variables = env.into_iter().collect();
    let problem = |(origin, key, message): (Origin, KeyPath, String)| {
        Problem::new(&file, origin, key.join("."), message)
    };

    let text = file::read(path).map_err(|error| ConfigErrors::new(vec![unreadable(&file, &error)]))?;
    let (layers, problems) = Layers::new(&text, &variables)
        .map_err(|problems| ConfigErrors::new(problems.into_iter().map(problem).collect()))?;
    let mut problems: Vec<Problem> = problems.into_iter().map(problem).collect();

    let merged = layers.merged().map_err(|error| {
        ConfigErrors::new(vec![Problem::new(&file, Origin::Default, String::new(), error.to_string())])
    })?;
    let (config, Remarks { wrong, doubtful }) = evaluate(merged, &variables);
    problems.extend(wrong.into_iter().map(|(key, message)| problem((layers.origin(&key), key, message))));
    let mut warnings: Vec<Warning> = doubtful
        .into_iter()
        .map(|(key, message)| {
            let key = layers.given_key(&key);
            Warning::new(&file, layers.origin(key), key.join("."), message)
        })
        .collect();
    warnings.sort();
    warnings.dedup();
    match config {
        Some(config) if problems.is_empty() => Ok(Loaded { config, warnings }),
        Some(_) | None => Err(ConfigErrors::new(problems)),
    }
}

fn evaluate(merged: config::Value, variables: &Variables) -> (Option<Config>, Remarks) {
    let mut first = read::read_all::<RawConfig>(merged);
    let mut wrong = first.wrong;
    wrong.extend(complete::complete(&mut first.tree));
    let second = read::read_all::<RawConfig>(first.tree);
    wrong.extend(second.wrong);
    let mut remarks = Remarks { wrong, doubtful: Vec::new() };
    let config = second.raw.and_then(|raw| validate::validate(raw, variables, &mut remarks));
    (config, remarks)
}

fn unreadable(file: &str, error: &ReadError) -> Problem {
    let origin = match error {
        ReadError::Io(_) | ReadError::TooLong => Origin::Default,
        ReadError::NotUtf8 { line, column } => Origin::File { line: *line, column: *column },
    };
    Problem::new(file, origin, String::new(), error.to_string())
}

/// Everything the agent was told, valid as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The enabled feeds, sorted by name; at least one.
    pub accounts: Vec<Account>,
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
}

#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    pub path: PathBuf,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sink {
    pub name: String,
    pub kind: SinkKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SinkKind {
    File(FileSink),
}

#[derive(Debug, Clone, PartialEq)]
pub struct FileSink {
    pub path: PathBuf,
    /// Permission bits of a file that the sink makes.
    pub mode: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// A level or a filter, as `tracing_subscriber::EnvFilter` reads it.
    pub level: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Shutdown {
    pub grace: Duration,
}
