//! The example file and the schema: complete, and of one mind with what is read.

use serde_json::Value;

use super::{Case, SinkKind, config, fs};

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
    let config = |text: &str| with_secret(text).load().unwrap().config;
    let shown = without(&without_tables(&uncommented_text()), &NO_DEFAULT);
    assert_eq!(config(&shown), config(EXAMPLE));

    // A table that is not in force: what has a default may as well not be said.
    let table = without(&uncommented_text(), &NO_DEFAULT);
    for (name, defaults) in [
        ("erp", &["allow_http", "max_attempts", "timeout", "concurrency"][..]),
        ("printer", &["working_directory", "max_attempts", "timeout", "concurrency"]),
    ] {
        let sink = |text: &str| config(text).sinks.into_iter().find(|sink| sink.name == name).unwrap();
        let (above, of_table) = table.split_once(&format!("[sinks.{name}]\n")).unwrap();
        let (of_table, below) = of_table.split_once("\n[").unwrap();
        let of_table = without(of_table, defaults);
        assert_eq!(sink(&format!("{above}[sinks.{name}]\n{of_table}\n[{below}")), sink(&table));
        let limits = match sink(&table).kind {
            SinkKind::Webhook(webhook) => webhook.limits,
            SinkKind::Command(command) => command.limits,
            SinkKind::File(file) => panic!("{file:?}"),
        };
        assert_eq!((limits.max_attempts, limits.concurrency), (20, 4));
    }
}

#[test]
fn the_example_names_every_key_of_the_schema() {
    for key in keys_of_schema() {
        let name = match key.rsplit('.').next().unwrap() {
            // Of a header or a variable.
            "NAME" if key.contains("headers") => "headers.authorization",
            "NAME" => "env.API_TOKEN",
            name => name,
        };
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
    let sinks = &schema["properties"]["sinks"]["additionalProperties"]["oneOf"];
    let (file, webhook, command) =
        (&sinks[0]["properties"], &sinks[1]["properties"], &sinks[2]["properties"]);
    assert_eq!((&file["type"]["const"], &file["mode"]["default"]), (&"file".into(), &"0600".into()));
    assert_eq!(file["rotate"]["default"], "never");
    assert_eq!(
        (&webhook["type"]["const"], &webhook["concurrency"]["default"]),
        (&"webhook".into(), &4.into())
    );
    assert_eq!((&webhook["states"]["type"], &webhook["states"]["minItems"]), (&"array".into(), &1.into()));
    assert_eq!(webhook["signing_secret"]["anyOf"].as_array().map(Vec::len), Some(2), "{webhook:#}");
    assert_eq!(
        (&command["type"]["const"], &command["working_directory"]["default"], &command["args"]["minItems"]),
        (&"command".into(), &"/".into(), &0.into())
    );
    let text = schema.to_string();
    assert!(!text.contains("null") && !text.contains("x-allowed"), "{text}");
}

/// All keys, dotted, with `NAME` for the users' own names; a sink is named like its type.
pub(super) fn keys_of_schema() -> Vec<String> {
    let mut keys = Vec::new();
    collect(&config::schema(), "", &mut keys);
    keys
}

fn collect(schema: &Value, path: &str, keys: &mut Vec<String>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some(properties) = schema["properties"].as_object() {
        properties.iter().for_each(|(name, schema)| collect(schema, &join(name), keys));
    } else if let Some(variants) = schema["additionalProperties"]["oneOf"].as_array() {
        let kind = |variant: &Value| variant["properties"]["type"]["const"].as_str().unwrap().to_owned();
        variants.iter().for_each(|variant| collect(variant, &join(&kind(variant)), keys));
    } else if schema["additionalProperties"].is_object() {
        collect(&schema["additionalProperties"], &join("NAME"), keys);
    } else {
        keys.push(path.to_owned());
    }
}

/// Keys that the example shows without a default.
const NO_DEFAULT: [&str; 7] =
    ["states", "accounts", "max_bytes", "max_files", "ca_file", "client_cert", "directory"];

fn uncommented_text() -> String {
    EXAMPLE.lines().map(|line| format!("{}\n", uncommented(line))).collect()
}

/// Without the tables that stand behind `#`.
fn without_tables(text: &str) -> String {
    let commented: Vec<&str> = EXAMPLE.lines().filter_map(|line| line.strip_prefix('#')).collect();
    let mut left = String::new();
    let mut in_force = true;
    for line in text.lines() {
        if line.starts_with('[') {
            in_force = !commented.contains(&line);
        }
        if in_force {
            left += &format!("{line}\n");
        }
    }
    left
}

fn without(text: &str, keys: &[&str]) -> String {
    let says = |line: &&str| !keys.iter().any(|key| line.starts_with(&format!("{key} = ")));
    text.lines().filter(says).map(|line| format!("{line}\n")).collect()
}

/// A key or a table behind `#` without a space.
fn uncommented(line: &str) -> &str {
    match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => key,
        _ => line,
    }
}

fn with_secret(text: &str) -> Case {
    let mut case = Case::new(
        &text
            .replace("/etc/order-feed-agent/erp-", "DIR/erp-")
            .replace("/etc/order-feed-agent/printer-", "DIR/printer-")
            .replace("/usr/bin/lp", "/bin/sh"),
    );
    fs::create_dir(case.path("credentials")).unwrap();
    case.secret("credentials/app-token", b"tok\n");
    case.secret("credentials/erp-signing-secret", super::SIGNING_SECRET.as_bytes());
    case.secret("erp-authorization", b"Bearer tok\n");
    case.secret("printer-token", b"tok\n");
    let directory = case.path("credentials");
    case.set("CREDENTIALS_DIRECTORY", directory.to_str().unwrap());
    case
}
