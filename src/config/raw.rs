//! The mirror of the configuration file: every key, its type and its range. serde's types stay in here.
//!
//! A key is optional wherever it stands, because the file, the environment, a general table or a default may supply
//! it. To add one: a field and its default here, its use in `validate`.

use std::collections::BTreeMap;

use serde::Deserialize;

pub(super) use number::{Rate, Whole};
pub(super) use secret::{RawSecret, SECRET_SOURCES};
pub(super) use text::{BaseUrl, DnsLabel, FilePath, Filter, Mode, Period, Size, Text};

use super::LogFormat;

mod number;
mod secret;
mod text;

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const YEAR: u64 = 365 * 24 * HOUR;

/// What holds where nothing is said, as text that the key's own type reads.
pub(super) const DEFAULTS: [(&str, &str); 12] = [
    ("poll.interval", "30s"),
    ("poll.batch_size", "10"),
    ("poll.drain", "true"),
    ("requests.per_second", "10"),
    ("requests.burst", "1"),
    ("requests.timeout", "30s"),
    ("requests.connect_timeout", "10s"),
    ("requests.max_body", "8MiB"),
    ("journal.path", "/var/lib/order-feed-agent/journal.db"),
    ("log.level", "info"),
    ("log.format", "json"),
    ("shutdown.grace", "20s"),
];

/// The same for the keys of a sink, by its type.
pub(super) const SINK_DEFAULTS: [(&str, &str, &str); 1] = [("file", "mode", "0600")];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConfig {
    pub(super) accounts: BTreeMap<String, RawAccount>,
    // General tables; `complete` lays them under those of each account.
    pub(super) poll: RawPoll,
    pub(super) requests: RawRequests,
    pub(super) journal: RawJournal,
    pub(super) sinks: BTreeMap<String, RawSink>,
    pub(super) log: RawLog,
    pub(super) shutdown: RawShutdown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAccount {
    pub(super) enabled: Option<bool>,
    pub(super) account: Option<Text<DnsLabel>>,
    pub(super) base_url: Option<Text<BaseUrl>>,
    pub(super) app_key: Option<RawSecret>,
    pub(super) app_token: Option<RawSecret>,
    pub(super) poll: RawPoll,
    pub(super) requests: RawRequests,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPoll {
    pub(super) interval: Option<Text<Period<{ 5 * SECOND }, YEAR>>>,
    pub(super) batch_size: Option<Whole<1, 10>>,
    pub(super) drain: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRequests {
    pub(super) per_second: Option<Rate<10_000>>,
    pub(super) burst: Option<Whole<1, 10_000>>,
    pub(super) timeout: Option<Text<Period<1, HOUR>>>,
    pub(super) connect_timeout: Option<Text<Period<1, HOUR>>>,
    pub(super) max_body: Option<Text<Size>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawJournal {
    pub(super) path: Option<Text<FilePath>>,
}

/// Chosen by the key `type`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawSink {
    File(RawFileSink),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawFileSink {
    pub(super) path: Option<Text<FilePath>>,
    pub(super) mode: Option<Text<Mode>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    pub(super) level: Option<Text<Filter>>,
    pub(super) format: Option<Text<LogFormat>>,
}

/// The unit stops the agent by force after `TimeoutStopSec=90s`: a longer grace is a promise that cannot be kept.
const STOP_TIMEOUT: u64 = 90 * SECOND;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawShutdown {
    pub(super) grace: Option<Text<Period<0, STOP_TIMEOUT>>>,
}
