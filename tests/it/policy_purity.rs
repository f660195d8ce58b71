//! Invariant 4, read from the sources: policy decides and does nothing else.

use std::fs;
use std::path::{Path, PathBuf};

/// What no decision needs: waiting, a clock, chance, the world outside, logging.
const IMPURE: [&str; 17] = [
    "async",
    "await",
    "tokio",
    "now()",
    "elapsed()",
    "rand::",
    "std::fs",
    "std::env",
    "std::io",
    "std::net",
    "std::thread",
    "std::process",
    "tracing",
    "print",
    "dbg!",
    "Mutex",
    "Atomic",
];

/// What decisions and events may use of this crate.
const PURE_MODULES: [&str; 2] = ["policy", "event"];

#[test]
fn policy_is_pure() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![source.join("policy.rs"), source.join("event.rs")];
    collect(&source.join("policy"), &mut files);
    assert!(10 < files.len(), "only {files:?}");
    let problems: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            impurities(&text).into_iter().map(move |found| format!("{}: {found}", file.display()))
        })
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn an_impure_text_is_found_out() {
    for (text, found) in [
        ("pub async fn decide() {}", vec!["1: async"]),
        ("let x = 1;\nlet at = Instant::now();", vec!["2: now()"]),
        ("let jitter = rand::random();", vec!["1: rand::"]),
        ("use std::fs;\nuse std::env;", vec!["1: std::fs", "2: std::env"]),
        ("tracing::info!(\"x\");", vec!["1: tracing"]),
        ("use crate::journal::Journal;", vec!["1: crate::journal"]),
        ("use crate::policy::pace::Pace;\nuse crate::event::Item;", vec![]),
        // A comment may speak of what the code must not do.
        ("/// Not `async`, and no now() either.\nfn f() {} // tracing", vec![]),
        ("fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n", vec![]),
        ("#[cfg(test)]\nmod tests {\n}\nfn f() { Instant::now() }", vec!["4: now()", "4: after the tests"]),
    ] {
        assert_eq!(impurities(text), found, "{text}");
    }
}

/// Each line's first impurity, outside of comments and of the test module, which is the last of its file.
fn impurities(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_test = false;
    let mut tests_ended = false;
    for (number, line) in (1..).zip(text.lines()) {
        is_test |= line == "#[cfg(test)]";
        if is_test {
            // The end of the test module is its brace in the first column.
            tests_ended |= line == "}";
            is_test = !tests_ended;
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        found
            .extend(IMPURE.iter().find(|word| code.contains(**word)).map(|word| format!("{number}: {word}")));
        found.extend(foreign_module(code).map(|module| format!("{number}: crate::{module}")));
        if tests_ended && !code.trim().is_empty() {
            found.push(format!("{number}: after the tests"));
        }
    }
    found
}

fn foreign_module(code: &str) -> Option<&str> {
    let (_, path) = code.split_once("crate::")?;
    let module = path.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!PURE_MODULES.contains(&module)).then_some(module)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
