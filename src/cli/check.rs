//! `check`: says what `run` would refuse, without touching anything.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use super::output::forgive_leaving;
use crate::config::{self, Inspection, Problem, Setting, Settings, Warning};

/// What to print besides problems and warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Options {
    /// That the configuration is accepted.
    Validate,
    /// The keys in force, each with where it was given; needs no secrets.
    Print,
    /// The JSON Schema; reads no configuration.
    Schema,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// Its reasons have been printed.
    Refused,
}

/// Prints what was asked for on `out`, and on `err` one line for each problem (`error: …`) and warning (`warning: …`).
///
/// # Errors
///
/// Only those of writing. A reader that has enough is none, and changes no verdict.
pub fn check(
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    options: Options,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<Verdict> {
    match options {
        Options::Schema => {
            forgive_leaving(writeln!(out, "{:#}", config::schema()))?;
            Ok(Verdict::Accepted)
        }
        Options::Print => match config::settings(path, env) {
            Ok(Settings { settings, warnings }) => {
                forgive_leaving(print_remarks(&[], &warnings, err))?;
                forgive_leaving(print_settings(&settings, out))?;
                Ok(Verdict::Accepted)
            }
            Err(errors) => {
                forgive_leaving(print_remarks(errors.problems(), &[], err))?;
                Ok(Verdict::Refused)
            }
        },
        Options::Validate => {
            let Inspection { problems, warnings } = config::inspect(path, env);
            forgive_leaving(print_remarks(&problems, &warnings, err))?;
            if !problems.is_empty() {
                return Ok(Verdict::Refused);
            }
            forgive_leaving(writeln!(out, "configuration ok"))?;
            Ok(Verdict::Accepted)
        }
    }
}

fn print_remarks(problems: &[Problem], warnings: &[Warning], err: &mut impl Write) -> io::Result<()> {
    for problem in problems {
        writeln!(err, "error: {problem}")?;
    }
    for warning in warnings {
        writeln!(err, "warning: {warning}")?;
    }
    Ok(())
}

/// Three aligned columns: key, value, from where.
fn print_settings(settings: &[Setting], out: &mut impl Write) -> io::Result<()> {
    let width =
        |column: fn(&Setting) -> &str| settings.iter().map(|s| column(s).chars().count()).max().unwrap_or(0);
    let (keys, values) = (width(|setting| &setting.key), width(|setting| &setting.value));
    for Setting { key, value, from } in settings {
        writeln!(out, "{key:keys$}  {value:values$}  {from}")?;
    }
    Ok(())
}
