//! What a feed or sink takes from elsewhere: the general tables, its own name, the defaults of its keys.

use config::{Map, Value, ValueKind};

use super::layers::{KeyPath, table_mut};
use super::raw::SINK_DEFAULTS;

/// The general tables of which a feed may override keys.
pub(super) const OVERRIDABLE: [&str; 2] = ["poll", "requests"];

/// Completes the tables inside of `accounts` and `sinks`, after taking out those without a valid name.
///
/// Returns the keys taken out and what is allowed instead.
pub(super) fn complete(tree: &mut Value) -> Vec<(KeyPath, String)> {
    let mut wrong = Vec::new();
    let general: Vec<(&str, Map<String, Value>)> =
        OVERRIDABLE.iter().filter_map(|section| Some((*section, child(tree, section)?.clone()))).collect();
    for section in ["accounts", "sinks"] {
        let Some(named) = child(tree, section) else { continue };
        named.retain(|name, _| {
            let valid = is_name(name);
            if !valid {
                wrong.push((vec![section.to_owned(), name.clone()], NAME_ALLOWED.to_owned()));
            }
            valid
        });
        for (name, value) in named {
            match (section, table_mut(value)) {
                ("accounts", Some(account)) => complete_account(name, account, &general),
                (_, Some(sink)) => complete_sink(sink),
                (_, None) => {}
            }
        }
    }
    wrong
}

const NAME_ALLOWED: &str =
    "a name must be 1 to 63 lower-case letters, digits and `-`, with a letter or digit at both ends";

fn is_name(name: &str) -> bool {
    let fits = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    fits && (1..=63).contains(&name.len()) && !name.starts_with('-') && !name.ends_with('-')
}

fn complete_account(name: &str, account: &mut Map<String, Value>, general: &[(&str, Map<String, Value>)]) {
    for (section, values) in general {
        let own = account
            .entry((*section).to_owned())
            .or_insert_with(|| Value::new(None, Map::<String, Value>::new()));
        if let Some(own) = table_mut(own) {
            for (key, value) in values {
                own.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    set_default(account, "enabled", "true");
    set_default(account, "account", name);
    let Some(ValueKind::String(vtex_account)) = account.get("account").map(|value| &value.kind) else {
        return;
    };
    let base_url = format!("https://{vtex_account}.vtexcommercestable.com.br");
    set_default(account, "base_url", &base_url);
}

fn complete_sink(sink: &mut Map<String, Value>) {
    let Some(ValueKind::String(kind)) = sink.get("type").map(|value| value.kind.clone()) else { return };
    for (_, key, text) in SINK_DEFAULTS.iter().filter(|(of, _, _)| *of == kind) {
        set_default(sink, key, text);
    }
}

fn set_default(table: &mut Map<String, Value>, key: &str, text: &str) {
    table.entry(key.to_owned()).or_insert_with(|| Value::new(None, text));
}

fn child<'a>(tree: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    table_mut(tree)?.get_mut(key).and_then(table_mut)
}
