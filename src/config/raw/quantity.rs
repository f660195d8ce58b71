//! Durations and sizes, with their units.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

use super::text::Word;

/// A duration with its unit, from `MIN` to `MAX` milliseconds. A day has 24 hours; months and years have no length.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Period<const MIN: u64, const MAX: u64>(pub(in crate::config) Duration);

impl<const MIN: u64, const MAX: u64> Word for Period<MIN, MAX> {
    const PATTERN: Option<&str> = Some("^[^-]*[0-9] ?[A-Za-zµ]");

    fn allowed() -> String {
        let (min, max) = (in_largest_unit(MIN), in_largest_unit(MAX));
        format!("a duration with its unit, such as \"30s\" or \"1m 30s\", from {min} to {max}")
    }

    fn read(text: &str) -> Option<Self> {
        let span: Span = text.parse().ok()?;
        let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        let duration = Duration::try_from(signed).ok()?;
        (Duration::from_millis(MIN)..=Duration::from_millis(MAX))
            .contains(&duration)
            .then_some(Self(duration))
    }
}

fn in_largest_unit(milliseconds: u64) -> String {
    match milliseconds {
        0 => "0s".to_owned(),
        ms if ms % 86_400_000 == 0 => format!("{}d", ms / 86_400_000),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}

/// Bytes, from 1 KiB to 1 GiB.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Size(pub(in crate::config) u64);

impl Word for Size {
    const PATTERN: Option<&str> = Some("^[0-9]+ ?(B|KiB|MiB|GiB)$");

    fn allowed() -> String {
        "a size with its unit B, KiB, MiB or GiB, such as \"8MiB\", from 1KiB to 1GiB".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let factor: u64 = match unit.strip_prefix(' ').unwrap_or(unit) {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        let bytes = number.parse::<u64>().ok()?.checked_mul(factor)?;
        (1 << 10..=1 << 30).contains(&bytes).then_some(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_and_days_have_a_length() {
        let read = |text| Period::<0, { 30 * 86_400_000 }>::read(text).map(|period| period.0.as_millis());
        for (text, milliseconds) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("1m 30s", 90_000),
            ("1.5h", 5_400_000),
            ("PT5M", 300_000),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(read(text), Some(milliseconds), "{text}");
        }
        for text in
            ["", "5", "5.0", "soon", "-30s", "30s ago", "1mo", "1y", "30 s x", "31d", "999999999999999999h"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_has_a_unit_and_a_range() {
        for (text, bytes) in [("1024B", 1 << 10), ("1KiB", 1 << 10), ("8 MiB", 8 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(Size::read(text).map(|size| size.0), Some(bytes), "{text}");
        }
        for text in [
            "",
            "8",
            "MiB",
            "8MB",
            "8M",
            "1023B",
            "1025MiB",
            "-8MiB",
            "1.5MiB",
            "8  MiB",
            "99999999999999999999GiB",
        ] {
            assert!(Size::read(text).is_none(), "{text}");
        }
    }
}
