//! The keys in force and where each was given, for `check --print`.

use serde_json::Value;

use super::layers::Layers;
use super::raw::RawConfig;

/// A key in force.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Dotted.
    pub key: String,
    /// `***` for a secret, followed by where it is.
    pub value: String,
    /// `FILE:LINE:COLUMN`, the name of a variable, or `default`.
    pub from: String,
}

/// Lists what the mirror holds, sorted by key. A secret serializes as `***`, so none can be listed by mistake.
pub(super) fn settings(raw: &RawConfig, layers: &Layers, file: &str) -> Vec<Setting> {
    let Ok(mut tree) = serde_json::to_value(raw) else { return Vec::new() };
    if let Some(Value::Object(sinks)) = tree.get_mut("sinks") {
        sinks.values_mut().for_each(tag);
    }
    let mut leaves = Vec::new();
    collect(&tree, &mut Vec::new(), &mut leaves);
    let mut settings: Vec<Setting> = leaves
        .into_iter()
        .map(|(path, value)| {
            let from = layers.given(&path).map_or_else(|| "default".to_owned(), |origin| origin.place(file));
            Setting { key: path.join("."), value, from }
        })
        .collect();
    settings.sort();
    settings
}

/// serde writes a variant as `{"file": {…}}`; the user writes its name as the key `type`.
fn tag(sink: &mut Value) {
    let Value::Object(variants) = sink else { return };
    let Some((variant, mut keys)) = std::mem::take(variants).into_iter().next() else { return };
    if let Value::Object(keys) = &mut keys {
        keys.insert("type".to_owned(), Value::String(variant));
    }
    *sink = keys;
}

fn collect(value: &Value, path: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String)>) {
    match value {
        Value::Null => {}
        Value::Object(keys) => {
            for (key, value) in keys {
                path.push(key.clone());
                collect(value, path, leaves);
                path.pop();
            }
        }
        Value::String(text) => leaves.push((path.clone(), text.clone())),
        // `{}` writes a float without a fraction as a whole number, as users do.
        Value::Number(number) => leaves.push((path.clone(), number.as_f64().unwrap_or(f64::NAN).to_string())),
        Value::Bool(_) | Value::Array(_) => leaves.push((path.clone(), value.to_string())),
    }
}
