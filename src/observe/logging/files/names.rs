//! How log files are named, and which of them are old.

use jiff::Timestamp;
use jiff::civil::Date;

use crate::config::Rotation;

/// Leads to the file that is being written; `tail -F` follows it from file to file.
pub(super) const LINK: &str = "order-feed-agent.log";

const PREFIX: &str = "order-feed-agent.";
const SUFFIX: &str = ".log";

/// `order-feed-agent.2026-01-31.log`, or `order-feed-agent.2026-01-31-13.log` for an hour; always UTC.
pub(super) fn file_name(rotation: Rotation, now: Timestamp) -> String {
    let period = match rotation {
        Rotation::Daily => "%Y-%m-%d",
        Rotation::Hourly => "%Y-%m-%d-%H",
    };
    format!("{PREFIX}{}{SUFFIX}", now.strftime(period))
}

/// Whether [`file_name`] could have made this name, with either rotation.
pub(super) fn is_ours(name: &str) -> bool {
    let period = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    let Some((date, hour)) = period.and_then(|period| period.split_at_checked(10)) else { return false };
    let is_date = date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        && Date::strptime("%Y-%m-%d", date).is_ok_and(|parsed| parsed.to_string() == date);
    let is_hour = match hour.as_bytes() {
        [] => true,
        [b'-', tens @ b'0'..=b'2', ones @ b'0'..=b'9'] => (tens - b'0') * 10 + (ones - b'0') < 24,
        _ => false,
    };
    is_date && is_hour
}

/// Which of `names` go so that `max_files` log files stay: `current` and the newest of the others.
pub(super) fn expired(names: impl IntoIterator<Item = String>, current: &str, max_files: u32) -> Vec<String> {
    let mut others: Vec<String> = names.into_iter().filter(|name| name != current && is_ours(name)).collect();
    // The names of one rotation sort by time; an hour of a day sorts before the whole day.
    others.sort_unstable();
    let n_kept = usize::try_from(max_files).unwrap_or(usize::MAX).saturating_sub(1);
    others.truncate(others.len().saturating_sub(n_kept));
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_period_in_utc() {
        let now: Timestamp = "2026-01-31T23:30:00-01:00".parse().unwrap();
        assert_eq!(file_name(Rotation::Daily, now), "order-feed-agent.2026-02-01.log");
        assert_eq!(file_name(Rotation::Hourly, now), "order-feed-agent.2026-02-01-00.log");
    }

    #[test]
    fn only_names_that_we_make_are_ours() {
        for name in ["order-feed-agent.2026-01-31.log", "order-feed-agent.2024-02-29-23.log"] {
            assert!(is_ours(name), "{name}");
        }
        for name in [
            "order-feed-agent.log",
            "order-feed-agent.notes.log",
            "order-feed-agent.2026-01-31.log.gz",
            "order-feed-agent.2026-02-30.log",
            "order-feed-agent.2026-01-31-24.log",
            "order-feed-agent.2026-01-31-1.log",
            "order-feed-agent.2026-01-31-13-59.log",
            "order-feed-agent.+026-01-31.log",
            "order-feed-agent.2026-1-31x.log",
            "order-feed-agent.2026-01-31é.log",
            "order-feed-agent-dead-letters.2026-01-31.log",
            "2026-01-31.log",
            "",
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }

    #[test]
    fn the_current_file_and_the_newest_stay() {
        let names = ["05", "01", "04", "02", "03"].map(|day| format!("order-feed-agent.2026-01-{day}.log"));
        let gone = |current: &str, max_files| expired(names.clone(), current, max_files).join(" ");
        assert_eq!(
            gone("order-feed-agent.2026-01-05.log", 3),
            "order-feed-agent.2026-01-01.log order-feed-agent.2026-01-02.log"
        );
        assert_eq!(gone("order-feed-agent.2026-01-05.log", 5), "");
        // A clock that was set back: the file in hand stays although it is the oldest.
        assert!(!gone("order-feed-agent.2026-01-01.log", 1).contains("2026-01-01"));
    }
}
