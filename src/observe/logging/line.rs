//! How a record looks: JSON for programs, text for people; always one line.

use std::fmt;

use jiff::Timestamp;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::record::{Record, Value, cut};
use crate::config::LogFormat;

/// Bytes of a line with its newline.
pub(super) const MAX_LINE: usize = 32 * 1024;

/// Kept free for the note that fields were left out, the closing and the newline.
const TAIL: usize = 64;

/// Formats a record as one line. Spans are not printed: every record carries its own fields.
pub(super) struct Line {
    pub(super) format: LogFormat,
}

/// What stands at the beginning of every line.
pub(super) struct Head<'a> {
    pub(super) timestamp: Timestamp,
    pub(super) level: Level,
    pub(super) target: &'a str,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let head = Head { timestamp: Timestamp::now(), level, target };
        writer.write_str(&print(self.format, &head, &Record::collect(event)))
    }
}

/// One line with its newline, at most [`MAX_LINE`] bytes.
pub(super) fn print(format: LogFormat, head: &Head<'_>, record: &Record) -> String {
    match format {
        LogFormat::Json => json(head, record),
        LogFormat::Text => text(head, record),
    }
}

/// An object with unique keys: the head, `message`, `event`, then the fields that fit.
fn json(head: &Head<'_>, record: &Record) -> String {
    let mut line = format!("{{\"timestamp\":\"{:.3}\"", head.timestamp);
    let mut entry = |key: &str, value: &str| {
        line.push_str(&format!(",{}:{value}", quoted(key)));
    };
    entry("level", &quoted(head.level.as_str()));
    entry("target", &quoted(&cut(format_args!("{}", head.target))));
    entry("message", &quoted(&record.message));
    if let Some(event) = &record.event {
        entry("event", &quoted(event));
    }
    let fields_cut = push_fields(&mut line, record, |key, value| match value {
        Value::Bare(bare) => format!(",{}:{bare}", quoted(key)),
        Value::Text(text) => format!(",{}:{}", quoted(key), quoted(text)),
    });
    if 0 < fields_cut {
        line.push_str(&format!(",\"fields_cut\":{fields_cut}"));
    }
    line.push_str("}\n");
    line
}

/// The same for the eye: time, level, target, message, `event=…`, the fields as `key=value`.
fn text(head: &Head<'_>, record: &Record) -> String {
    let mut line = format!("{:.3} {:>5} ", head.timestamp, head.level.as_str());
    escape_into(&mut line, &cut(format_args!("{}: ", head.target)), |_| false);
    escape_into(&mut line, &record.message, |_| false);
    if let Some(event) = &record.event {
        line.push_str(&format!(" event={}", quoted_where_needed(event)));
    }
    let fields_cut = push_fields(&mut line, record, |key, value| match value {
        Value::Bare(bare) => format!(" {key}={bare}"),
        Value::Text(text) => format!(" {key}={}", quoted_where_needed(text)),
    });
    if 0 < fields_cut {
        line.push_str(&format!(" fields_cut={fields_cut}"));
    }
    line.push('\n');
    line
}

/// Appends the fields while the line stays below [`MAX_LINE`]; returns how many did not fit.
fn push_fields(line: &mut String, record: &Record, print: impl Fn(&str, &Value) -> String) -> usize {
    let mut n_cut = 0;
    for (key, value) in &record.fields {
        let printed = print(key, value);
        if line.len() + printed.len() + TAIL <= MAX_LINE {
            line.push_str(&printed);
        } else {
            n_cut += 1;
        }
    }
    n_cut
}

/// A JSON string that no terminal, pager or line reader takes for anything but text.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    escape_into(&mut out, text, |c| matches!(c, '"' | '\\'));
    out.push('"');
    out
}

fn quoted_where_needed(text: &str) -> String {
    let plain =
        |c: char| c.is_alphanumeric() || c.is_ascii_punctuation() && !matches!(c, '"' | '\\' | '=' | '\'');
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { quoted(text) }
}

/// Escapes what is `special`, every control character (C0, DEL, C1), the separators that some readers take for a
/// newline, and the marks that turn the direction of what follows. All of them fit one `\u` escape of JSON.
pub(crate) fn escape_into(out: &mut String, text: &str, special: impl Fn(char) -> bool) {
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if special(c) => out.extend(['\\', c]),
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => push_escape(out, c),
            c if c.is_control() => push_escape(out, c),
            c => out.push(c),
        }
    }
}

fn push_escape(out: &mut String, c: char) {
    out.push_str(&format!("\\u{:04x}", u32::from(c)));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;

    use proptest::prelude::*;
    use serde::de::{Deserializer, MapAccess, Visitor};
    use tracing::info;

    use super::super::tests::print_all;
    use super::*;

    #[test]
    fn a_line_has_its_keys_in_order() {
        let printed = print_all("info", LogFormat::Json, || {
            info!(target: "order_feed_agent::account", event = "poll.completed", account = "main", received = 3u64,
                ratio = 0.5, drained = true, retry_after_s = Option::<u64>::None, "poll completed");
        });
        let (timestamp, rest) = printed.split_at(40);
        assert!(timestamp.starts_with("{\"timestamp\":\"20") && timestamp.ends_with("Z\","), "{printed}");
        assert_eq!(
            rest,
            "\"level\":\"INFO\",\"target\":\"order_feed_agent::account\",\"message\":\"poll completed\",\
             \"event\":\"poll.completed\",\"account\":\"main\",\"received\":3,\"ratio\":0.5,\"drained\":true}\n"
        );
    }

    #[test]
    fn a_taken_key_is_renamed_and_never_doubled() {
        let printed = print_all("info", LogFormat::Json, || {
            info!(target: "order_feed_agent", level = "high", timestamp = 7, target = "x", fields_cut = 1, "m");
        });
        assert_eq!(
            keys(&printed),
            ["timestamp", "level", "target", "message", "level_2", "timestamp_2", "target_2", "fields_cut_2"]
        );
    }

    #[test]
    fn an_error_is_printed_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("the journal cannot be written")]
        struct Outer(#[source] io::Error);
        let outer = Outer(io::Error::other("no space left"));
        let printed = print_all("info", LogFormat::Json, || {
            info!(target: "order_feed_agent", error = &outer as &(dyn std::error::Error + 'static), "m");
        });
        assert!(printed.contains("\"error\":\"the journal cannot be written: no space left\""), "{printed}");
    }

    #[test]
    fn a_number_that_json_lacks_is_text() {
        let printed =
            print_all("info", LogFormat::Json, || info!(target: "order_feed_agent", speed = f64::NAN, "m"));
        assert!(printed.contains("\"speed\":\"NaN\""), "{printed}");
    }

    #[test]
    fn a_hostile_value_stays_inside_its_line() {
        let hostile =
            format!("a\"b\\c\r\nd\u{1b}[31m\u{2028}\u{202e}\u{85}\u{7f}{}", "\u{0}".repeat(1 << 20));
        for format in [LogFormat::Json, LogFormat::Text] {
            let printed = print_all("info", format, || {
                info!(target: "order_feed_agent", event = %hostile, order_id = %hostile, other = ?hostile, "{hostile}");
            });
            assert_eq!(printed.lines().count(), 1);
            assert!(printed.len() <= MAX_LINE);
            let body = printed.strip_suffix('\n').unwrap();
            assert!(
                !body.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}')),
                "{body}"
            );
        }
    }

    #[test]
    fn a_json_string_reads_back_as_it_was() {
        let hostile = "a\"b\\c\r\nd\u{1b}[31m\u{2028}\u{202e}\u{85}é𝄞";
        let printed = print_all("info", LogFormat::Json, || {
            info!(target: "order_feed_agent", order_id = hostile, "m");
        });
        let object: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(object["order_id"], hostile);
    }

    #[test]
    fn fields_beyond_the_length_of_a_line_are_counted() {
        let zeros = "\u{0}".repeat(2_000);
        let printed = print_all("info", LogFormat::Json, || {
            info!(target: "order_feed_agent", a = zeros, b = zeros, c = zeros, d = zeros, e = zeros, f = zeros, g = 1, "m");
        });
        assert!(printed.len() <= MAX_LINE);
        let object: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!((&object["fields_cut"], &object["g"]), (&1.into(), &1.into()));
    }

    #[test]
    fn text_quotes_what_is_not_one_word() {
        let printed = print_all("info", LogFormat::Text, || {
            info!(target: "order_feed_agent", event = "poll.completed", a = "x y", b = "z", c = "", d = 4, "poll \"done\"");
        });
        let (_, rest) = printed.split_at(24);
        assert_eq!(
            rest,
            "  INFO order_feed_agent: poll \"done\" event=poll.completed a=\"x y\" b=z c=\"\" d=4\n"
        );
    }

    proptest! {
        #[test]
        fn every_line_is_one_object_with_unique_keys(message in any::<String>(), value in any::<String>()) {
            let printed = print_all("info", LogFormat::Json, || {
                info!(target: "order_feed_agent", event = %value, level = %value, value = ?value, "{message}");
            });
            prop_assert_eq!(printed.matches('\n').count(), 1);
            prop_assert!(printed.len() <= MAX_LINE);
            prop_assert_eq!(keys(&printed).len(), 7);
        }
    }

    /// The keys of an object in their order; fails where a key stands twice.
    fn keys(line: &str) -> Vec<String> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Vec<String>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                    keys.push(key);
                }
                Ok(keys)
            }
        }
        let keys = serde_json::Deserializer::from_str(line).deserialize_map(Keys).unwrap();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key stands twice: {line}");
        keys
    }
}
