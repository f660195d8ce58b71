//! When a file is put aside and a new one begun, how those put aside are named, and which of them are old.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// A new file for each of these, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    Hourly,
    Daily,
}

/// When a file that is appended to is put aside. At least one of `every` and `max_bytes` is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub every: Option<Rotation>,
    /// A file grows no further, unless a single line is longer.
    pub max_bytes: Option<u64>,
    /// How many are kept beside the current one, at least 1; all if not given.
    pub max_files: Option<u32>,
}

impl Settings {
    /// Whether a file that was last written at `written` is of an hour or a day before that of `now`. Never of one
    /// after it: a clock that was set back waits until it gets there, or until the file is written to.
    pub fn is_over(&self, written: Timestamp, now: Timestamp) -> bool {
        self.every.is_some_and(|every| every.period(written) < every.period(now))
    }

    /// How many bytes a file of this length may still get.
    pub fn room(&self, length: u64) -> u64 {
        self.max_bytes.map_or(u64::MAX, |max| max.saturating_sub(length))
    }
}

impl Rotation {
    /// The number of the hour or day, counted from 1970.
    fn period(self, time: Timestamp) -> i64 {
        let seconds = match self {
            Self::Hourly => 3_600,
            Self::Daily => 86_400,
        };
        time.as_second().div_euclid(seconds)
    }
}

/// How the files that are put aside beside a file are named: `orders.jsonl` becomes
/// `orders-2026-11-30T15-59-58.123Z.jsonl`, after the moment in UTC when it was last written.
#[derive(Debug)]
pub struct Names {
    prefix: String,
    suffix: String,
}

/// Of one length, so that names sort by time.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S.%3fZ";

/// What a name is longer by than that of the current file, in bytes.
pub const STAMP_BYTES: usize = "-2026-11-30T15-59-58.123Z".len();

const TICK: SignedDuration = SignedDuration::from_millis(1);

impl Names {
    /// Of those put aside beside the file of this name.
    pub fn beside(file_name: &str) -> Self {
        let (stem, suffix) = match file_name.rfind('.') {
            // A dot at the beginning hides a file and begins no extension.
            Some(dot) if 0 < dot => file_name.split_at(dot),
            Some(_) | None => (file_name, ""),
        };
        Self { prefix: format!("{stem}-"), suffix: suffix.to_owned() }
    }

    /// The moment in a name, if it is one that this scheme makes.
    pub fn stamp(&self, name: &str) -> Option<Timestamp> {
        let text = name.strip_prefix(&self.prefix)?.strip_suffix(&self.suffix)?;
        let parsed = DateTime::strptime("%Y-%m-%dT%H-%M-%S.%fZ", text).ok()?;
        let stamp = TimeZone::UTC.to_timestamp(parsed).ok()?;
        (stamp.strftime(STAMP).to_string() == text).then_some(stamp)
    }

    /// The name for a file last written at `written`: behind all of `existing`, whatever the clock did meanwhile, so
    /// that it is free and names sort in the order of rotation. `None` at the end of time.
    pub fn next<'a>(
        &self,
        existing: impl IntoIterator<Item = &'a str>,
        written: Timestamp,
    ) -> Option<String> {
        let newest = existing.into_iter().filter_map(|name| self.stamp(name)).max();
        let after = newest.map(|newest| newest.checked_add(TICK)).transpose().ok()?;
        let stamp = after.map_or(written, |after| after.max(written));
        let Self { prefix, suffix } = self;
        Some(format!("{prefix}{}{suffix}", stamp.strftime(STAMP)))
    }

    /// Which of `names` go so that the newest `max_files` of this scheme stay.
    pub fn expired(&self, names: Vec<String>, max_files: u32) -> Vec<String> {
        let mut ours: Vec<String> = names.into_iter().filter(|name| self.stamp(name).is_some()).collect();
        ours.sort_unstable();
        let n_kept = usize::try_from(max_files).unwrap_or(usize::MAX);
        ours.truncate(ours.len().saturating_sub(n_kept));
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_file_is_over_once_its_hour_or_day_is_and_never_when_the_clock_is_behind_it() {
        let (hourly, daily) = (Some(Rotation::Hourly), Some(Rotation::Daily));
        for (every, written, now, is_over) in [
            (hourly, "2026-11-30T15:00:00Z", "2026-11-30T15:59:59.999Z", false),
            (hourly, "2026-11-30T15:59:59.999Z", "2026-11-30T16:00:00Z", true),
            (hourly, "2026-11-30T15:59:59Z", "2026-12-01T15:59:59Z", true),
            (hourly, "2026-11-30T16:00:00Z", "2026-11-30T15:59:59Z", false),
            (hourly, "2099-01-01T00:00:00Z", "2026-11-30T15:59:59Z", false),
            (daily, "2026-11-30T00:00:00Z", "2026-11-30T23:59:59.999Z", false),
            (daily, "2026-11-30T23:59:59Z", "2026-12-01T00:00:00Z", true),
            (daily, "2026-12-01T00:00:00Z", "2026-11-30T23:59:59Z", false),
            (daily, "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", true),
            (None, "1969-12-31T23:59:59Z", "2026-11-30T15:59:59Z", false),
        ] {
            let settings = Settings { every, max_bytes: None, max_files: None };
            assert_eq!(settings.is_over(at(written), at(now)), is_over, "{every:?} {written} {now}");
        }
    }

    #[test]
    fn room_is_what_the_longest_file_leaves() {
        let room = |max_bytes, length| Settings { every: None, max_bytes, max_files: None }.room(length);
        assert_eq!((room(Some(100), 40), room(Some(100), 100), room(Some(100), 101)), (60, 0, 0));
        assert_eq!(room(None, u64::MAX), u64::MAX);
    }

    #[test]
    fn only_names_that_we_make_are_ours() {
        let names = Names::beside("orders.jsonl");
        let stamp = at("2026-11-30T15:59:58.123Z");
        assert_eq!(names.stamp("orders-2026-11-30T15-59-58.123Z.jsonl"), Some(stamp));
        for name in [
            "orders.jsonl",
            "orders-2026-11-30T15-59-58.123Z.jsonl.gz",
            "orders-2026-11-30T15-59-58.123Z",
            "orders-2026-11-30T15-59-58.12Z.jsonl",
            "orders-2026-11-30T15-59-58.1234Z.jsonl",
            "orders-2026-11-30T15-59-58Z.jsonl",
            "orders-2026-11-30T15-59-60.123Z.jsonl",
            "orders-2026-02-30T15-59-58.123Z.jsonl",
            "orders-2026-11-30T24-00-00.000Z.jsonl",
            "orders-+026-11-30T15-59-58.123Z.jsonl",
            "orders-2026-11-30.jsonl",
            "orders-new-2026-11-30T15-59-58.123Z.jsonl",
            "border-2026-11-30T15-59-58.123Z.jsonl",
            "orders-é.jsonl",
            "",
        ] {
            assert_eq!(names.stamp(name), None, "{name}");
        }
        for (file, made) in [
            ("orders", "orders-2026-11-30T15-59-58.123Z"),
            (".orders", ".orders-2026-11-30T15-59-58.123Z"),
            ("a.b.c", "a.b-2026-11-30T15-59-58.123Z.c"),
        ] {
            assert_eq!(Names::beside(file).next([], stamp).as_deref(), Some(made));
            assert_eq!(Names::beside(file).stamp(made), Some(stamp));
            assert_eq!(file.len() + STAMP_BYTES, made.len());
        }
    }

    #[test]
    fn a_name_is_behind_all_others_also_when_the_clock_was_set_back() {
        let names = Names::beside("orders.jsonl");
        let next = |existing: &[&str], written| names.next(existing.iter().copied(), at(written));
        let name = |stamp| Some(format!("orders-{stamp}.jsonl"));
        let (older, newer) =
            ("orders-2026-11-30T15-59-58.123Z.jsonl", "orders-2026-11-30T16-00-00.999Z.jsonl");
        assert_eq!(next(&[older], "2026-11-30T16:00:00.5004Z"), name("2026-11-30T16-00-00.500Z"));
        assert_eq!(next(&[older], "2026-11-30T15:59:58.123999Z"), name("2026-11-30T15-59-58.124Z"));
        assert_eq!(
            next(&[newer, older, "orders.jsonl"], "2020-01-01T00:00:00Z"),
            name("2026-11-30T16-00-01.000Z")
        );
        assert_eq!(next(&["orders-9999-12-30T22-00-00.999Z.jsonl"], "2026-11-30T16:00:00Z"), None);
    }

    #[test]
    fn the_newest_stay_and_others_files_are_not_counted() {
        let names = Names::beside("orders.jsonl");
        let all = ["03", "01", "02"].map(|day| format!("orders-2026-11-{day}T00-00-00.000Z.jsonl"));
        let with_foreign: Vec<String> = all
            .iter()
            .cloned()
            .chain(["orders.jsonl", "zebra", "orders-old.jsonl"].map(str::to_owned))
            .collect();
        assert_eq!(names.expired(with_foreign.clone(), 1), [all[1].clone(), all[2].clone()]);
        assert_eq!(names.expired(with_foreign.clone(), 2), [all[1].clone()]);
        assert_eq!(names.expired(with_foreign, 3), [""; 0]);
    }
}
