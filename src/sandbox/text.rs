//! Values as people write them on the command line and in the settings file.

use std::time::Duration;

use jiff::SpanRelativeTo;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// A duration in a settings file.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Span(pub(super) Duration);

/// A number of bytes in a settings file.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Bytesize(pub(super) usize);

/// Reads `30s`, `1h 30m` or `4d`.
///
/// # Errors
/// What is allowed, for a person.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration with a unit, such as 30s, 5m or 4d");
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(duration).map_err(|_| wrong())
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        duration(&text).map(Self)
    }
}

impl TryFrom<String> for Bytesize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        bytes(&text).map(Self)
    }
}

pub(super) fn de_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    Span::deserialize(from).map(|Span(duration)| duration)
}

/// Reads `64KiB`, `20MiB` or a bare number of bytes.
fn bytes(text: &str) -> Result<usize, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let unit = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?.trim_end(), *unit)));
    let (number, unit): (&str, usize) = unit.unwrap_or((text, 1));
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("`{text}` is not a size, such as 500, 64KiB or 20MiB"))
}

pub(super) fn de_probability<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let given = f64::deserialize(from)?;
    let wrong = || D::Error::custom(format_args!("{given} is not a probability from 0 to 1"));
    (0.0..=1.0).contains(&given).then_some(given).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_are_not_negative() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("4d"), Ok(Duration::from_secs(345_600)));
        assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
        for text in ["", "30", "-30s", "soon", "1 month"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_a_binary_unit() {
        assert_eq!(bytes("500"), Ok(500));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(bytes("2 MiB"), Ok(2 << 20));
        for text in ["", "-1", "KiB", "5MB", "99999999999999999999GiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
