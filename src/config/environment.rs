//! The environment as a layer: `ORDER_FEED_AGENT__POLL__INTERVAL=45s`.
//!
//! Values stay text and are parsed by the key's own type, so a token of digits arrives unchanged. The `config`
//! crate's own reader of the environment is not used: it forgets the name of the variable.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use config::{Map, Value, ValueKind};

use super::origin::Origin;

const PREFIX: &str = "ORDER_FEED_AGENT__";
/// Tables whose keys are names that the user chose: `-` in them is written `_` in a variable, as in the name of a header.
pub(super) const NAMED: [&str; 2] = ["accounts", "sinks"];

/// Deeper than any key; what follows stays one part, which no table knows.
const MAX_DEPTH: usize = 8;

/// All variables of the process, sorted.
pub(super) type Variables = BTreeMap<OsString, OsString>;

/// A variable of ours that is not text.
pub(super) struct NotText(pub(super) Origin);

/// Builds the layer. Variables of others are ignored whatever they hold, and so are empty ones.
pub(super) fn layer(variables: &Variables) -> (Map<String, Value>, Vec<NotText>) {
    let mut table = Map::new();
    let mut not_text = Vec::new();
    for (name, value) in variables {
        if !name.as_bytes().starts_with(PREFIX.as_bytes()) || value.is_empty() {
            continue;
        }
        let origin = Origin::Variable(name.to_string_lossy().into_owned());
        match (name.to_str(), value.to_str()) {
            (Some(name), Some(value)) => {
                let value = Value::new(origin.tag().as_ref(), ValueKind::String(value.to_owned()));
                insert(&mut table, &path(&name[PREFIX.len()..]), value, &origin);
            }
            _ => not_text.push(NotText(origin)),
        }
    }
    (table, not_text)
}

fn path(name: &str) -> Vec<String> {
    let given: Vec<&str> = name.splitn(MAX_DEPTH, "__").collect();
    let mut path: Vec<String> = given.iter().map(|part| part.to_ascii_lowercase()).collect();
    if NAMED.contains(&path[0].as_str())
        && let Some(name) = path.get_mut(1)
    {
        *name = name.replace('_', "-");
    }
    if let [sinks, _, table, key, ..] = path.as_mut_slice()
        && sinks == "sinks"
    {
        match table.as_str() {
            "headers" => *key = key.replace('_', "-"),
            // The name of a variable is that name.
            "env" => *key = given[3].to_owned(),
            _ => {}
        }
    }
    path
}

/// A variable for a whole section sorts before those for its keys and stays: the reading refuses it, naming it.
fn insert(table: &mut Map<String, Value>, path: &[String], value: Value, origin: &Origin) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        table.entry(first.clone()).or_insert(value);
        return;
    }
    let section = table
        .entry(first.clone())
        .or_insert_with(|| Value::new(origin.tag().as_ref(), ValueKind::Table(Map::new())));
    if let ValueKind::Table(table) = &mut section.kind {
        insert(table, rest, value, origin);
    }
}
