//! A program: that it is there, and that nothing forges what the agent tells it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::secrets::resolve;
use super::{Remarks, Surroundings};
use crate::config::raw::{RawCommand, RawSecret};
use crate::config::{Command, Limits, Secret};

pub(super) fn command(
    name: &str,
    raw: RawCommand,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Command> {
    let RawCommand {
        states: _,
        accounts: _,
        program,
        args,
        env,
        working_directory,
        max_attempts,
        timeout,
        concurrency,
    } = raw;
    if program.is_none() {
        remarks.require(&["sinks", name, "program"], "the absolute path of the program to run");
    }
    let program = program.map(|path| path.value.0);
    if let Some(wrong) = program.as_deref().and_then(no_program) {
        remarks.refuse(&["sinks", name, "program"], wrong);
    }
    let working_directory = working_directory.map(|path| path.value.0);
    if let Some(wrong) = working_directory.as_deref().and_then(no_folder) {
        remarks.refuse(&["sinks", name, "working_directory"], wrong);
    }
    let env = self::env(name, env, surroundings, remarks);
    let limits =
        Limits { max_attempts: max_attempts?.0, timeout: timeout?.value.0, concurrency: concurrency?.0 };
    Some(Command {
        program: program?,
        args: args.map(|args| args.0.into_iter().map(|arg| arg.value.0).collect()).unwrap_or_default(),
        env: env?,
        working_directory: working_directory?,
        limits,
    })
}

/// Why this cannot be run, if so. Who may execute it shows only to the user that runs it.
fn no_program(path: &Path) -> Option<String> {
    let shown = path.display();
    match path.metadata() {
        Err(error) => Some(format!("{shown} cannot be run: {error}")),
        Ok(found) if !found.is_file() => Some(format!("{shown} is not a regular file")),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Some(format!("{shown} may not be executed by anybody; chmod 0755 it"))
        }
        Ok(_) => None,
    }
}

fn no_folder(path: &Path) -> Option<String> {
    let shown = path.display();
    match path.metadata() {
        Err(error) => Some(format!("{shown} cannot be entered: {error}")),
        Ok(found) if !found.is_dir() => Some(format!("{shown} is not a folder")),
        Ok(_) => None,
    }
}

/// What the agent says of an event stands under such names; its own settings may be given.
const RESERVED: &str = "ORDER_FEED_";
const OWN_SETTINGS: &str = "ORDER_FEED_AGENT_";

fn env(
    name: &str,
    raw: BTreeMap<String, RawSecret>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Vec<(String, Secret)>> {
    let mut variable = |(variable, value): (String, RawSecret)| {
        let key = ["sinks", name, "env", &variable];
        if !is_name(&variable) {
            remarks.refuse(
                &key,
                "must be the name of a variable: up to 100 letters, digits and `_`, no digit first",
            );
            return None;
        }
        if variable.starts_with(RESERVED) && !variable.starts_with(OWN_SETTINGS) {
            remarks.refuse(&key, "is for the agent to set; it cannot be given");
            return None;
        }
        let (secret, _) = resolve(&key, value, Secret::variable_from_bytes, surroundings, remarks)?;
        Some((variable, secret))
    };
    // Not stopped at the first that is wrong.
    let variables: Vec<_> = raw.into_iter().map(&mut variable).collect();
    variables.into_iter().collect()
}

fn is_name(text: &str) -> bool {
    let fits = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    fits && (1..=100).contains(&text.len()) && !text.starts_with(|c: char| c.is_ascii_digit())
}
