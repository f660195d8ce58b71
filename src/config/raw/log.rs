//! What is logged.

use tracing_subscriber::EnvFilter;

use super::text::Word;
use crate::config::{LogFormat, Rotation};

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
    const PATTERN: Option<&str> = Some("^(json|text)$");

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

impl Word for Rotation {
    const PATTERN: Option<&str> = Some("^(hourly|daily)$");

    fn allowed() -> String {
        "`hourly` or `daily`".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "hourly" => Some(Self::Hourly),
            "daily" => Some(Self::Daily),
            _ => None,
        }
    }
}
