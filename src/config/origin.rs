//! Where a value of the configuration came from.
//!
//! The `config` crate carries one text with each value through its merging; [`Origin`] is written into it and read back.

use config::Value;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The file as a whole, or what is built in.
    Default,
    /// Both count from 1, the column in characters.
    File { line: usize, column: usize },
    /// The name of an environment variable.
    Variable(String),
}

impl Origin {
    pub(super) fn of(value: &Value) -> Self {
        let Some(tag) = value.origin() else { return Self::Default };
        if let Some(name) = tag.strip_prefix('$') {
            return Self::Variable(name.to_owned());
        }
        match tag.split_once(':').map(|(line, column)| (line.parse(), column.parse())) {
            Some((Ok(line), Ok(column))) => Self::File { line, column },
            _ => Self::Default,
        }
    }

    /// What [`Origin::of`] reads back.
    pub(super) fn tag(&self) -> Option<String> {
        match self {
            Self::Default => None,
            Self::File { line, column } => Some(format!("{line}:{column}")),
            Self::Variable(name) => Some(format!("${name}")),
        }
    }

    /// How a person is told.
    pub(super) fn place(&self, file: &str) -> String {
        match self {
            Self::Default => file.to_owned(),
            Self::File { line, column } => format!("{file}:{line}:{column}"),
            Self::Variable(name) => name.clone(),
        }
    }
}
