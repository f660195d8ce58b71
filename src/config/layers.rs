//! defaults < file < environment, laid over each other by the `config` crate.

use config::{Config, ConfigError, Map, Source, Value, ValueKind};

use super::environment::{self, NotText, Variables};
use super::file;
use super::origin::Origin;
use super::raw::{DEFAULTS, SECRET_SOURCES};

/// A dotted key, part by part.
pub(super) type KeyPath = Vec<String>;

/// The file and the environment, apart, so that a key without a value of its own (a table, a missing key) still has a
/// place.
pub(super) struct Layers {
    file: Value,
    environment: Value,
}

/// What is wrong already before a key is read.
pub(super) type LayerProblem = (Origin, KeyPath, String);

impl Layers {
    /// # Errors
    ///
    /// Every place where the text is not TOML.
    pub(super) fn new(
        text: &str,
        variables: &Variables,
    ) -> Result<(Self, Vec<LayerProblem>), Vec<LayerProblem>> {
        let parsed = file::parse(text);
        let (environment, not_text) = environment::layer(variables);
        let mut problems: Vec<LayerProblem> = not_text
            .into_iter()
            .map(|NotText(origin)| (origin, KeyPath::new(), "must be UTF-8 text".to_owned()))
            .collect();
        match parsed {
            Ok(file) => {
                let mut layers = Self { file: file.into(), environment: environment.into() };
                for layer in [&mut layers.file, &mut layers.environment] {
                    refuse_expressions(layer, &mut problems);
                }
                Ok((layers, problems))
            }
            Err(errors) => {
                let with_key = |(origin, message)| (origin, KeyPath::new(), format!("not TOML: {message}"));
                problems.extend(errors.into_iter().map(with_key));
                Err(problems)
            }
        }
    }

    /// The file alone.
    pub(super) fn file(&self) -> &Value {
        &self.file
    }

    /// One tree. Tables lose their origin in it, values keep it.
    pub(super) fn merged(&self) -> Result<Value, ConfigError> {
        let mut file = self.file.clone();
        forget_replaced_sources(&mut file, &self.environment);
        let defaults = DEFAULTS
            .iter()
            .try_fold(Config::builder(), |builder, (key, text)| builder.set_default(key, *text))?;
        Ok(defaults.add_source(Layer(file)).add_source(Layer(self.environment.clone())).build()?.cache)
    }

    /// The key under which the user gave the value: of an account's table, or of the general one.
    pub(super) fn given_key<'a>(&self, path: &'a [String]) -> &'a [String] {
        match path {
            [accounts, _, general @ ..]
                if accounts == "accounts" && !self.gives(path) && self.gives(general) =>
            {
                general
            }
            _ => path,
        }
    }

    fn gives(&self, path: &[String]) -> bool {
        !path.is_empty()
            && [&self.environment, &self.file].into_iter().any(|layer| get(layer, path).is_some())
    }

    /// Where the key, or the general one that holds for it, was given.
    pub(super) fn given(&self, path: &[String]) -> Option<Origin> {
        let key = self.given_key(path);
        self.gives(key).then(|| self.origin(key))
    }

    /// Where the key, or else the innermost table that would hold it, was given.
    pub(super) fn origin(&self, path: &[String]) -> Origin {
        let given = |length| {
            [&self.environment, &self.file].into_iter().find_map(|layer| get(layer, &path[..length]))
        };
        (1..=path.len()).rev().find_map(given).map_or(Origin::Default, Origin::of)
    }
}

/// The value at a path.
pub(super) fn get<'a>(tree: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(tree, |value, key| table(value)?.get(key))
}

pub(super) fn table(value: &Value) -> Option<&Map<String, Value>> {
    if let ValueKind::Table(table) = &value.kind { Some(table) } else { None }
}

pub(super) fn table_mut(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if let ValueKind::Table(table) = &mut value.kind { Some(table) } else { None }
}

/// `config` reads `"poll.interval"` and `"poll[0]"` at the top as paths; here they are keys that nobody knows.
fn refuse_expressions(layer: &mut Value, problems: &mut Vec<LayerProblem>) {
    let Some(table) = table_mut(layer) else { return };
    table.retain(|key, value| {
        let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !plain {
            let message = "unknown key; a key is made of letters, digits, `_` and `-`".to_owned();
            problems.push((Origin::of(value), vec![key.clone()], message));
        }
        plain
    });
}

/// A secret source is a choice: `{ file }` from the environment replaces `{ credential }` in the file.
fn forget_replaced_sources(file: &mut Value, environment: &Value) {
    let (Some(lower), Some(upper)) = (table_mut(file), table(environment)) else { return };
    if is_secret_source(lower) && is_secret_source(upper) {
        lower.clear();
        return;
    }
    for (key, value) in lower {
        if let Some(replacement) = upper.get(key) {
            forget_replaced_sources(value, replacement);
        }
    }
}

fn is_secret_source(table: &Map<String, Value>) -> bool {
    let is_source = |(key, value): (&String, &Value)| {
        SECRET_SOURCES.contains(&key.as_str()) && matches!(value.kind, ValueKind::String(_))
    };
    !table.is_empty() && table.iter().all(is_source)
}

/// A layer as the `config` crate takes it.
#[derive(Clone)]
struct Layer(Value);

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Layer(***)")
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(table(&self.0).cloned().unwrap_or_default())
    }
}
