//! The TOML file as a layer: every value with its line and column.
//!
//! Read without the `config` crate, which turns `2.6`, `true` and `"yes"` into integers, takes dates for text and
//! knows no positions. The display of `toml`'s errors is not used: it prints the source line, which may hold a secret.

use std::ops::Range;
use std::path::Path;

use config::{Map, Value, ValueKind};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::limited;
use super::origin::Origin;
use places::Places;

mod places;

/// A configuration is a page or a few; a thousand feeds fit many times.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Which files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accept {
    /// Whatever can be read, such as what a shell makes of `-c <(…)`.
    Any,
    /// No named pipe, which would hold up the reader for as long as nobody writes.
    Regular,
}

/// Not a readable text.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    File(#[from] limited::ReadError),
    #[error("is not UTF-8 text")]
    NotUtf8 { line: usize, column: usize },
}

/// Reads the file's text, at most [`MAX_BYTES`].
pub(super) fn read(path: &Path, accept: Accept) -> Result<String, ReadError> {
    let bytes = match accept {
        Accept::Any => limited::read_any(path, MAX_BYTES)?,
        Accept::Regular => limited::read_regular(path, MAX_BYTES)?,
    };
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let (line, column) = Places::of(&String::from_utf8_lossy(&error.as_bytes()[..valid])).at(valid);
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
    let places = Places::of(text);
    if errors.is_empty() {
        return Ok(convert_table(&places, table.into_inner()));
    }
    let told = |error: &toml::de::Error| {
        let span = error.span().unwrap_or_default();
        (origin(&places, span), error.message().to_owned())
    };
    Err(errors.iter().map(told).collect())
}

fn convert_table(places: &Places<'_>, table: DeTable<'_>) -> Map<String, Value> {
    let convert_entry = |(key, value): (Spanned<_>, Spanned<_>)| {
        let origin = origin(places, key.span());
        (String::from(key.into_inner()), convert(places, &origin, value.into_inner()))
    };
    table.into_iter().map(convert_entry).collect()
}

fn convert(places: &Places<'_>, origin: &Origin, value: DeValue<'_>) -> Value {
    let kind = match value {
        DeValue::String(text) => ValueKind::String(text.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => ValueKind::I64(integer),
            Err(_) => ValueKind::Nil, // beyond what TOML allows; wrong for every key
        },
        DeValue::Float(float) => float.as_str().parse().map_or(ValueKind::Nil, ValueKind::Float),
        DeValue::Boolean(boolean) => ValueKind::Boolean(boolean),
        DeValue::Datetime(_) => ValueKind::Nil, // no key takes one, and text it is not
        DeValue::Array(items) => ValueKind::Array(
            items.into_iter().map(|item| convert(places, origin, item.into_inner())).collect(),
        ),
        DeValue::Table(table) => ValueKind::Table(convert_table(places, table)),
    };
    Value::new(origin.tag().as_ref(), kind)
}

fn origin(places: &Places<'_>, span: Range<usize>) -> Origin {
    let (line, column) = places.at(span.start);
    Origin::File { line, column }
}
