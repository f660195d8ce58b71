//! The example file and the schema: complete, and of one mind with what is read.

use serde_json::Value;

use super::{Case, config, fs};

const EXAMPLE: &str = include_str!("../../../config.example.toml");

#[test]
fn the_example_passes_as_it_is_once_the_secret_exists() {
    let case = with_secret(EXAMPLE);
    let loaded = case.load().unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.config.accounts[0].app_token.expose(), "tok");
    assert_eq!(config::inspect(&case.path("config.toml"), case.variables.clone()).problems, []);
}

#[test]
fn what_the_example_shows_behind_a_hash_are_the_defaults() {
    let text: String = EXAMPLE.lines().map(|line| format!("{}\n", uncommented(line))).collect();
    // No key without a default but these two.
    let text = text.replace("ca_file = ", "#").replace("directory = ", "#");
    assert_eq!(with_secret(&text).load().unwrap().config, with_secret(EXAMPLE).load().unwrap().config);
}

#[test]
fn the_example_names_every_key_of_the_schema() {
    for key in keys_of_schema() {
        let name = key.rsplit('.').next().unwrap();
        let shown = EXAMPLE.lines().any(|line| uncommented(line).starts_with(&format!("{name} = ")));
        assert!(shown, "{key}");
    }
}

#[test]
fn the_example_begins_with_its_schema() {
    assert!(EXAMPLE.starts_with("#:schema "));
}

#[test]
fn the_schema_knows_defaults_and_ranges_and_no_null() {
    let schema = config::schema();
    let interval = &schema["properties"]["poll"]["properties"]["interval"];
    assert_eq!((&interval["type"], &interval["default"]), (&"string".into(), &"30s".into()));
    assert!(interval["description"].as_str().unwrap().contains("from 5s"));
    assert_eq!(schema["properties"]["poll"]["properties"]["batch_size"]["maximum"], 10);
    assert_eq!(schema["properties"]["poll"]["properties"]["batch_size"]["default"], 10);
    assert_eq!(schema["properties"]["poll"]["additionalProperties"], false);
    let sink = &schema["properties"]["sinks"]["additionalProperties"]["oneOf"][0]["properties"];
    assert_eq!((&sink["type"]["const"], &sink["mode"]["default"]), (&"file".into(), &"0600".into()));
    let text = schema.to_string();
    assert!(!text.contains("null") && !text.contains("x-allowed"), "{text}");
}

/// All keys, dotted, with `NAME` and `SINK` for the users' own names.
pub(super) fn keys_of_schema() -> Vec<String> {
    let mut keys = Vec::new();
    collect(&config::schema(), "", &mut keys);
    keys
}

fn collect(schema: &Value, path: &str, keys: &mut Vec<String>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some(properties) = schema["properties"].as_object() {
        properties.iter().for_each(|(name, schema)| collect(schema, &join(name), keys));
    } else if schema["additionalProperties"].is_object() {
        collect(&schema["additionalProperties"], &join(if path == "sinks" { "SINK" } else { "NAME" }), keys);
    } else if let Some(variants) = schema["oneOf"].as_array() {
        variants.iter().for_each(|variant| collect(variant, path, keys));
    } else {
        keys.push(path.to_owned());
    }
}

/// A key behind `#` without a space.
fn uncommented(line: &str) -> &str {
    match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => key,
        _ => line,
    }
}

fn with_secret(text: &str) -> Case {
    let mut case = Case::new(text);
    fs::create_dir(case.path("credentials")).unwrap();
    case.secret("credentials/app-token", b"tok\n");
    let directory = case.path("credentials");
    case.set("CREDENTIALS_DIRECTORY", directory.to_str().unwrap());
    case
}
