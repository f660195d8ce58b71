//! The TOML file as a layer: every value with its line and column.
//!
//! Read without the `config` crate, which turns `2.6`, `true` and `"yes"` into integers, takes dates for text and
//! knows no positions. The display of `toml`'s errors is not used: it prints the source line, which may hold a secret.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use config::{Map, Value, ValueKind};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::origin::Origin;

/// A configuration is a page or a few; a thousand feeds fit many times.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Not a readable text.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("cannot be read: {0}")]
    Io(io::Error),
    #[error("is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("is not UTF-8 text")]
    NotUtf8 { line: usize, column: usize },
}

/// Reads the file's text, at most [`MAX_BYTES`].
pub(super) fn read(path: &Path) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(ReadError::Io)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(ReadError::Io)?;
    if MAX_BYTES < bytes.len() as u64 {
        return Err(ReadError::TooLong);
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let (line, column) = position(&String::from_utf8_lossy(&error.as_bytes()[..valid]), valid);
        ReadError::NotUtf8 { line, column }
    })
}

/// Parses the text into a table whose values know where their key stands.
///
/// # Errors
///
/// Every place where the text is not TOML.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>, Vec<(Origin, String)>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(convert_table(text, table.into_inner()));
    }
    let told = |error: &toml::de::Error| {
        let span = error.span().unwrap_or_default();
        (origin(text, span), error.message().to_owned())
    };
    Err(errors.iter().map(told).collect())
}

fn convert_table(text: &str, table: DeTable<'_>) -> Map<String, Value> {
    let convert_entry = |(key, value): (Spanned<_>, Spanned<_>)| {
        let origin = origin(text, key.span());
        (String::from(key.into_inner()), convert(text, &origin, value.into_inner()))
    };
    table.into_iter().map(convert_entry).collect()
}

fn convert(text: &str, origin: &Origin, value: DeValue<'_>) -> Value {
    let kind = match value {
        DeValue::String(text) => ValueKind::String(text.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => ValueKind::I64(integer),
            Err(_) => ValueKind::Nil, // beyond what TOML allows; wrong for every key
        },
        DeValue::Float(float) => float.as_str().parse().map_or(ValueKind::Nil, ValueKind::Float),
        DeValue::Boolean(boolean) => ValueKind::Boolean(boolean),
        DeValue::Datetime(_) => ValueKind::Nil, // no key takes one, and text it is not
        DeValue::Array(items) => {
            ValueKind::Array(items.into_iter().map(|item| convert(text, origin, item.into_inner())).collect())
        }
        DeValue::Table(table) => ValueKind::Table(convert_table(text, table)),
    };
    Value::new(origin.tag().as_ref(), kind)
}

fn origin(text: &str, span: Range<usize>) -> Origin {
    let (line, column) = position(text, span.start);
    Origin::File { line, column }
}

/// Line and column of a byte offset.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
