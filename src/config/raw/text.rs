//! Values that are written as text: durations, sizes, addresses, paths.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use reqwest::Url;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// A type that is written as text.
pub(in crate::config) trait Word: Sized {
    /// Completes "must be …"; says all that is allowed, because what was written is not repeated.
    fn allowed() -> String;
    fn read(text: &str) -> Option<Self>;
}

/// A [`Word`] as serde reads it.
#[derive(Debug, Clone)]
pub(in crate::config) struct Text<T>(pub(in crate::config) T);

impl<'de, T: Word> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WordVisitor(PhantomData))
    }
}

struct WordVisitor<T>(PhantomData<T>);

impl<T: Word> Visitor<'_> for WordVisitor<T> {
    type Value = Text<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::allowed())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<T>, E> {
        T::read(text).map(Text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// A duration with its unit, from `MIN` to `MAX` milliseconds. A day has 24 hours; months and years have no length.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Period<const MIN: u64, const MAX: u64>(pub(in crate::config) Duration);

impl<const MIN: u64, const MAX: u64> Word for Period<MIN, MAX> {
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
    fn allowed() -> String {
        "a size with its unit B, KiB, MiB or GiB, such as \"8MiB\", from 1KiB to 1GiB".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let factor: u64 = match unit.trim_start() {
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

/// A path that is not empty.
#[derive(Debug, Clone)]
pub(in crate::config) struct FilePath(pub(in crate::config) PathBuf);

impl Word for FilePath {
    fn allowed() -> String {
        "the path of a file, as text".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let names_a_file = !text.is_empty() && !text.contains('\0') && !text.ends_with('/');
        names_a_file.then(|| Self(PathBuf::from(text)))
    }
}

/// Permission bits with which the owner can at least write.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Mode(pub(in crate::config) u32);

impl Word for Mode {
    fn allowed() -> String {
        "the permissions of a file as octal text, such as \"0640\"; the owner reads and writes, nobody executes".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal)?;
        (mode & 0o600 == 0o600 && mode & !0o666 == 0).then_some(Self(mode))
    }
}

/// The first part of a host name; lower-case, as DNS does not distinguish.
#[derive(Debug, Clone)]
pub(in crate::config) struct DnsLabel(pub(in crate::config) String);

impl Word for DnsLabel {
    fn allowed() -> String {
        "the name of a VTEX account: 1 to 63 letters, digits and `-`, no `-` at an end".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let fits =
            (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        (fits && !text.starts_with('-') && !text.ends_with('-')).then(|| Self(text.to_ascii_lowercase()))
    }
}

/// Where the feed is asked; without a trailing slash.
#[derive(Debug, Clone)]
pub(in crate::config) struct BaseUrl(pub(in crate::config) Url);

impl Word for BaseUrl {
    fn allowed() -> String {
        "an https URL without user, query and fragment; http only to a loopback address".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let mut url = Url::parse(text).ok()?;
        let secure = match url.scheme() {
            "https" => true,
            "http" => is_loopback(url.host_str()?),
            _ => false,
        };
        let plain = url.username().is_empty() && url.password().is_none();
        if !secure || !plain || url.query().is_some() || url.fragment().is_some() {
            return None;
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Some(Self(url))
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A level, or levels by target: `info,order_feed_agent::account=debug`.
#[derive(Debug, Clone)]
pub(in crate::config) struct Filter(pub(in crate::config) String);

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Word for Filter {
    fn allowed() -> String {
        "off, error, warn, info, debug or trace, or a filter such as \"info,order_feed_agent::account=debug\""
            .to_owned()
    }

    /// Stricter than `EnvFilter`, which takes `inffo` for the name of a target.
    fn read(text: &str) -> Option<Self> {
        let is_level = |word: &str| LEVELS.contains(&word);
        let is_target = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'-'))
        };
        let is_directive = |word: &str| match word.split_once('=') {
            Some((target, level)) => is_target(target) && is_level(level),
            None => is_level(word),
        };
        let fits = text.split(',').map(str::trim).all(is_directive) && EnvFilter::try_new(text).is_ok();
        fits.then(|| Self(text.to_owned()))
    }
}

impl Word for LogFormat {
    fn allowed() -> String {
        "`json` or `text`".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "json" => Some(Self::Json),
            "text" => Some(Self::Text),
            _ => None,
        }
    }
}
