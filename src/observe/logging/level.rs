//! `log.level`: a level, or a filter such as `info,order_feed_agent::account=debug`.

use thiserror::Error;
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::{EnvFilter, reload};

use super::record::cut;

/// The target of this crate's own records.
const OWN_TARGET: &str = "order_feed_agent";

/// Why a `log.level` is refused; each text says what is allowed.
#[derive(Debug, Error)]
pub enum LevelError {
    #[error("it is empty: {ALLOWED}")]
    Empty,
    /// The filter language would take the word for the name of a module and print nothing else.
    #[error("`{0}` is not a level: {ALLOWED}")]
    NotALevel(String),
    #[error("`{0}` cannot be the name of a module, which is written with `_`: {ALLOWED}")]
    NotAModule(String),
    #[error("it is not a filter: {ALLOWED}")]
    Filter(#[from] ParseError),
    #[error("the logs have ended")]
    Ended(#[from] reload::Error),
}

const ALLOWED: &str = "allowed are off, error, warn, info, debug, trace, or a filter like `info,order_feed_agent::account=debug`";

/// Reads a level or a filter.
///
/// # Errors
/// [`LevelError`] also for what the filter language accepts but nobody means: an empty text, a misspelt level (which
/// it takes for a module), a module written with `-`.
pub fn parse_level(text: &str) -> Result<EnvFilter, LevelError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(LevelError::Empty);
    }
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    for directive in &directives {
        check(directive)?;
    }
    Ok(EnvFilter::builder().with_regex(false).parse(directives.join(","))?)
}

/// Refuses what nobody means. Directives with spans (`target[span{field=value}]=level`) are left to the filter language.
fn check(directive: &str) -> Result<(), LevelError> {
    // An empty word would parse as `error`.
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    match directive.split_once('=') {
        _ if directive.contains('[') => Ok(()),
        None if is_level(directive) || is_own_target(directive) => Ok(()),
        None => Err(LevelError::NotALevel(cut(format_args!("{directive}")))),
        Some((target, _)) if target.is_empty() || target.contains('-') => {
            Err(LevelError::NotAModule(cut(format_args!("{target}"))))
        }
        Some((_, level)) if is_level(level) => Ok(()),
        Some((_, level)) => Err(LevelError::NotALevel(cut(format_args!("{level}")))),
    }
}

/// Whether a record with this target was written by this crate.
pub(super) fn is_own_target(target: &str) -> bool {
    target.strip_prefix(OWN_TARGET).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_accepted() {
        for text in [
            "off",
            "info",
            "INFO",
            " warn ",
            "info,order_feed_agent::account=debug",
            "info, order_feed_agent::journal=trace",
            "order_feed_agent=debug",
            "warn,order_feed_agent::account",
            "info,hyper=off",
        ] {
            assert!(parse_level(text).is_ok(), "{text:?}: {:?}", parse_level(text).err());
        }
    }

    #[test]
    fn what_is_misspelt_is_refused_and_the_allowed_levels_are_named() {
        for text in [
            "",
            "  ",
            "inffo",
            "info,",
            ",",
            "info,debgu",
            "order_feed_agent=debgu",
            "info,order-feed-agent=debug",
            "loud",
            "in fo",
            "info;debug",
            "=",
            "order_feed_agent::account=",
        ] {
            let said = parse_level(text).map_or_else(|error| error.to_string(), |_| "accepted".to_owned());
            assert!(said.contains("allowed are off, error, warn"), "{text:?}: {said}");
        }
    }

    #[test]
    fn only_this_crate_is_its_own_target() {
        assert!(is_own_target("order_feed_agent") && is_own_target("order_feed_agent::account"));
        assert!(!is_own_target("order_feed_agent_impostor") && !is_own_target("hyper"));
    }
}
