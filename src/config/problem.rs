//! What is wrong, or doubtful, in a configuration: one line each, with its place and its key.

use std::fmt;

use super::origin::Origin;

/// A reason to refuse the configuration. Shown as one line, `FILE:LINE:COLUMN: key.path: what is allowed`, with the
/// variable's name in front where the value came from the environment. Never shows a value of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem(Remark);

/// Something accepted that the user should know. Shown like a [`Problem`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning(Remark);

/// All problems of one configuration, in the order of the file; one line each when shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<Problem>);

/// Fields in the order in which remarks are sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Remark {
    origin: Origin,
    file: String,
    /// Dotted; empty where the remark is about the file as a whole.
    key: String,
    message: String,
}

impl Problem {
    pub(super) fn new(file: &str, origin: Origin, key: String, message: String) -> Self {
        Self(Remark { origin, file: file.to_owned(), key, message })
    }

    /// The dotted key, empty where the file as a whole is meant.
    pub fn key(&self) -> &str {
        &self.0.key
    }
}

impl Warning {
    pub(super) fn new(file: &str, origin: Origin, key: String, message: String) -> Self {
        Self(Remark { origin, file: file.to_owned(), key, message })
    }

    /// The dotted key.
    pub fn key(&self) -> &str {
        &self.0.key
    }
}

impl ConfigErrors {
    /// At least one problem is expected; sorts them and drops repetitions.
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        Self(problems)
    }

    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, file, key, message } = self;
        one_line(f, &origin.place(file))?;
        for part in [key, message].into_iter().filter(|part| !part.is_empty()) {
            f.write_str(": ")?;
            one_line(f, part)?;
        }
        Ok(())
    }
}

/// The longest part of a line, in characters.
const MAX_PART: usize = 1_000;

/// A quoted key or a file name may hold anything; a terminal and a log get one harmless line.
fn one_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().take(MAX_PART).try_for_each(|c| match c {
        c if c.is_control() || c == '\u{2028}' || c == '\u{2029}' => write!(f, "{}", c.escape_default()),
        c => write!(f, "{c}"),
    })
}
