//! One record, collected from a `tracing` event: bounded values under unique keys.

use std::error::Error;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};

use super::ErrorChain;

/// Bytes of one value; what is longer is cut, with a mark that says by how much.
pub(super) const MAX_VALUE: usize = 1024;

/// Keys that a field of a record must not take: the head of every line, and the count of fields left out.
pub(super) const RESERVED: [&str; 6] = ["timestamp", "level", "target", "message", "event", "fields_cut"];

/// A record without its head.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) message: String,
    /// The stable name, such as `poll.completed`; the records of libraries have none.
    pub(super) event: Option<String>,
    /// In the order they were written; no key twice, none of [`RESERVED`].
    pub(super) fields: Vec<(String, Value)>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Value {
    /// A number or a boolean, printed as it is.
    Bare(String),
    /// At most [`MAX_VALUE`] bytes and the mark.
    Text(String),
}

impl Record {
    pub(super) fn collect(event: &tracing::Event<'_>) -> Self {
        let mut record = Self::default();
        event.record(&mut record);
        record
    }

    fn text(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let text = cut(value);
        match field.name() {
            "message" => self.message = text,
            "event" if self.event.is_none() => self.event = Some(text),
            name => self.field(name, Value::Text(text)),
        }
    }

    fn bare(&mut self, field: &Field, value: String) {
        self.field(field.name(), Value::Bare(value));
    }

    /// Adds a field; where its key is taken it becomes `key_2`, because readers keep one of two equal keys at most.
    fn field(&mut self, name: &str, value: Value) {
        let name = name.strip_prefix("r#").unwrap_or(name);
        let taken = |key: &str| RESERVED.contains(&key) || self.fields.iter().any(|(other, _)| other == key);
        let mut key = name.to_owned();
        let mut n = 2u32;
        while taken(&key) {
            key = format!("{name}_{n}");
            n += 1;
        }
        self.fields.push((key, value));
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.text(field, format_args!("{}", ErrorChain(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, value.to_string());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity and no NaN.
        if value.is_finite() {
            self.bare(field, value.to_string());
        } else {
            self.text(field, format_args!("{value}"));
        }
    }
}

/// Prints a value into at most [`MAX_VALUE`] bytes, whole characters, followed by `…[N bytes cut]` where more came.
pub(super) fn cut(value: fmt::Arguments<'_>) -> String {
    let mut bounded = Bounded::default();
    if bounded.write_fmt(value).is_err() {
        bounded.text.push_str("…[cannot be printed]");
    }
    if 0 < bounded.cut_bytes {
        bounded.text.push_str(&format!("…[{} bytes cut]", bounded.cut_bytes));
    }
    bounded.text
}

/// The longest beginning of whole characters that fits into `max` bytes.
pub(in crate::observe) fn prefix(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

/// Takes any amount of text and holds [`MAX_VALUE`] bytes of it.
#[derive(Default)]
struct Bounded {
    text: String,
    cut_bytes: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = if self.cut_bytes == 0 { MAX_VALUE - self.text.len() } else { 0 };
        let kept = prefix(more, room);
        self.text.push_str(kept);
        self.cut_bytes += more.len() - kept.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_cut_at_a_whole_character_and_says_by_how_much() {
        let long = "é".repeat(1_000);
        let text = cut(format_args!("x{long}"));
        assert_eq!(text, format!("x{}…[978 bytes cut]", "é".repeat(511)));
        assert_eq!(cut(format_args!("{}", "y".repeat(MAX_VALUE))), "y".repeat(MAX_VALUE));
    }

    #[test]
    fn nothing_is_appended_after_a_cut() {
        let text = cut(format_args!("{}{}", "z".repeat(MAX_VALUE + 1), "tail"));
        assert_eq!(text, format!("{}…[5 bytes cut]", "z".repeat(MAX_VALUE)));
    }

    #[test]
    fn a_megabyte_leaves_a_kilobyte() {
        assert!(cut(format_args!("{}", "\u{1b}".repeat(1_000_000))).len() < MAX_VALUE + 64);
    }
}
