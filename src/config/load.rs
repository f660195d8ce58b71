//! From the sources to what `run`, `check` and `check --print` need of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Config;
use super::complete::complete;
use super::environment::Variables;
use super::file::{self, Accept, ReadError};
use super::layers::{KeyPath, Layers, get};
use super::origin::Origin;
use super::outline::{self, Outline};
use super::problem::{ConfigErrors, Problem, Warning};
use super::raw::RawConfig;
use super::read::read_all;
use super::show::{self, Setting};
use super::validate::{Remarks, Surroundings, View, validate};

/// A valid configuration and what its user should know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub config: Config,
    pub warnings: Vec<Warning>,
}

/// What can be said about a configuration without running it.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// Sorted by place; `run` takes the configuration where there are none.
    pub problems: Vec<Problem>,
    pub warnings: Vec<Warning>,
}

/// All keys in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Sorted by key.
    pub settings: Vec<Setting>,
    pub warnings: Vec<Warning>,
}

/// Reads and validates the configuration: defaults, then the file, then `ORDER_FEED_AGENT__…` of the environment.
/// Secrets are fetched from where they are. Nothing is written and no request is sent.
///
/// # Errors
///
/// Every problem found; where the file is not TOML, only where it is not.
pub fn load(
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Loaded, ConfigErrors> {
    load_accepted(Accept::Any, path, env)
}

/// As [`load`], for a reading that nobody waits for: a pipe or a device in the place of the file is refused unread.
///
/// # Errors
///
/// As [`load`].
pub fn load_regular(
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Loaded, ConfigErrors> {
    load_accepted(Accept::Regular, path, env)
}

fn load_accepted(
    accept: Accept,
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Loaded, ConfigErrors> {
    let mut draft = Draft::read(accept, path, env)?;
    let config = draft.validate(View::Service);
    let Inspection { problems, warnings } = draft.remarks();
    match config {
        Some(config) if problems.is_empty() => Ok(Loaded { config, warnings }),
        Some(_) | None => Err(ConfigErrors::new(problems)),
    }
}

/// Finds what [`load`] would, from outside of the service: a systemd credential or a variable that is not there is no
/// problem but a warning.
pub fn inspect(path: &Path, env: impl IntoIterator<Item = (OsString, OsString)>) -> Inspection {
    match Draft::read(Accept::Any, path, env) {
        Ok(mut draft) => {
            draft.validate(View::Shell);
            draft.remarks()
        }
        Err(errors) => Inspection { problems: errors.problems().to_vec(), warnings: Vec::new() },
    }
}

/// Lists the keys in force and where each was given. No secret is fetched.
///
/// # Errors
///
/// As [`load`], but for the secrets.
pub fn settings(
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, ConfigErrors> {
    let mut draft = Draft::read(Accept::Any, path, env)?;
    let settings =
        draft.raw.as_ref().map(|raw| show::settings(raw, &draft.layers, &draft.file)).unwrap_or_default();
    draft.validate(View::NoSecrets);
    let Inspection { problems, warnings } = draft.remarks();
    if problems.is_empty() { Ok(Settings { settings, warnings }) } else { Err(ConfigErrors::new(problems)) }
}

/// What the tools of the journal need. No secret is fetched.
///
/// # Errors
///
/// As [`load`], but for the secrets.
pub fn outline(
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Outline, ConfigErrors> {
    let mut draft = Draft::read(Accept::Any, path, env)?;
    let outline = draft.raw.as_ref().and_then(outline::outline);
    draft.validate(View::NoSecrets);
    let problems = draft.remarks().problems;
    match outline {
        Some(outline) if problems.is_empty() => Ok(outline),
        Some(_) | None => Err(ConfigErrors::new(problems)),
    }
}

/// The mirror as read, before what is required and what contradicts.
struct Draft {
    path: PathBuf,
    /// The path as it is shown.
    file: String,
    variables: Variables,
    layers: Layers,
    /// Nothing once it is validated, or where too much is wrong.
    raw: Option<RawConfig>,
    problems: Vec<Problem>,
    remarks: Remarks,
}

impl Draft {
    fn read(
        accept: Accept,
        path: &Path,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigErrors> {
        let file = path.display().to_string();
        let variables: Variables = env.into_iter().collect();
        let refuse = |problems: Vec<_>| problems.into_iter().map(|problem| placed(&file, problem)).collect();
        let whole = |message| ConfigErrors::new(refuse(vec![(Origin::Default, KeyPath::new(), message)]));

        let text =
            file::read(path, accept).map_err(|error| ConfigErrors::new(refuse(vec![unreadable(&error)])))?;
        let (layers, wrong) =
            Layers::new(&text, &variables).map_err(|wrong| ConfigErrors::new(refuse(wrong)))?;
        let mut problems: Vec<Problem> = refuse(wrong);
        problems.extend(refuse(wrong_in_file(layers.file())));
        let merged = layers.merged().map_err(|error| whole(error.to_string()))?;

        let (raw, wrong) = read_completed(merged);
        let remarks = Remarks { wrong, doubtful: Vec::new() };
        Ok(Self { path: path.to_owned(), file, variables, layers, raw, problems, remarks })
    }

    fn validate(&mut self, view: View) -> Option<Config> {
        let surroundings = Surroundings { file: &self.path, variables: &self.variables, view };
        self.raw.take().and_then(|raw| validate(raw, surroundings, &mut self.remarks))
    }

    /// Gives each remark its place.
    fn remarks(self) -> Inspection {
        let Self { path: _, file, variables: _, layers, raw: _, mut problems, remarks } = self;
        let place = |(path, message): (KeyPath, String)| {
            let key = layers.given_key(&path).to_vec();
            (layers.origin(&key), key, message)
        };
        problems.extend(remarks.wrong.into_iter().map(place).map(|problem| placed(&file, problem)));
        problems.sort();
        problems.dedup();
        let warn =
            |(origin, key, message): (_, KeyPath, _)| Warning::new(&file, origin, key.join("."), message);
        let mut warnings: Vec<Warning> = remarks.doubtful.into_iter().map(place).map(warn).collect();
        warnings.sort();
        warnings.dedup();
        Inspection { problems, warnings }
    }
}

/// Reads twice, because only names and general tables that are right can complete the rest.
fn read_completed(merged: config::Value) -> (Option<RawConfig>, Vec<(KeyPath, String)>) {
    let mut first = read_all::<RawConfig>(merged);
    if first.raw.is_none() {
        return (None, first.wrong);
    }
    let mut wrong = first.wrong;
    wrong.extend(complete(&mut first.tree));
    let second = read_all::<RawConfig>(first.tree);
    wrong.extend(second.wrong);
    (second.raw, wrong)
}

/// What the environment may hide but not heal: the file is refused also where a variable overrides what is wrong.
/// What is missing may come from the environment.
fn wrong_in_file(file: &config::Value) -> Vec<(Origin, KeyPath, String)> {
    let wrong = read_all::<RawConfig>(file.clone()).wrong;
    let placed = |(path, message): (KeyPath, String)| Some((Origin::of(get(file, &path)?), path, message));
    wrong.into_iter().filter_map(placed).collect()
}

fn placed(file: &str, (origin, key, message): (Origin, KeyPath, String)) -> Problem {
    Problem::new(file, origin, key.join("."), message)
}

fn unreadable(error: &ReadError) -> (Origin, KeyPath, String) {
    let origin = match error {
        ReadError::File(_) => Origin::Default,
        ReadError::NotUtf8 { line, column } => Origin::File { line: *line, column: *column },
    };
    (origin, KeyPath::new(), error.to_string())
}
