//! The mirror of the configuration file: every key, its type and its range. serde's types stay in here.
//!
//! A key is optional wherever it stands, because the file, the environment, a general table or a default may supply
//! it. To add one: a field and its default here, its use in `validate`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use address::WebhookUrl;
pub(super) use number::{Rate, Whole};
pub(super) use secret::{RawSecret, RawSecrets, SECRET_SOURCES};
pub(super) use sink::{
    RawAccountNames, RawCommand, RawFileSink, RawSink, RawStates, RawWebhook, SINK_DEFAULTS,
};
pub(super) use text::Text;

use super::{LogFormat, Proxy, Rotation};
use address::{BaseUrl, DnsLabel};
use file::{DirectoryPath, FilePath};
use log::Filter;
use quantity::{Period, Size};

mod address;
mod file;
mod list;
mod log;
mod number;
mod quantity;
mod secret;
mod sink;
mod text;

/// In the schema, what a [`text::Word`] may be; `schema` makes it part of the description.
pub(super) const ALLOWED: &str = "x-allowed";

/// What a feed or sink may be called.
pub(super) const NAME_PATTERN: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// What holds where nothing is said, as text that the key's own type reads.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("poll.interval", "30s"),
    ("poll.batch_size", "10"),
    ("poll.drain", "true"),
    ("requests.per_second", "10"),
    ("requests.burst", "1"),
    ("requests.timeout", "30s"),
    ("requests.connect_timeout", "10s"),
    ("requests.max_body", "8MiB"),
    ("requests.concurrency", "2"),
    ("requests.proxy", "none"),
    ("retry.max_retries", "5"),
    ("retry.base_delay", "1s"),
    ("retry.max_delay", "60s"),
    ("retry.budget", "2m"),
    ("rate_limit.pause", "60s"),
    ("rate_limit.max_pause", "15m"),
    ("circuit_breaker.failures", "5"),
    ("circuit_breaker.recovery", "30s"),
    ("circuit_breaker.successes", "3"),
    ("journal.path", "/var/lib/order-feed-agent/journal.db"),
    ("journal.retention", "30d"),
    ("log.level", "info"),
    ("log.format", "json"),
    ("log.rotation", "daily"),
    ("log.max_files", "14"),
    ("shutdown.grace", "20s"),
];

/// One TOML file configures the agent; every key may be overridden from the environment, as in
/// ORDER_FEED_AGENT__POLL__INTERVAL=45s.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConfig {
    /// One feed each, that is one app key; the name is yours: lower-case letters, digits and `-`.
    #[schemars(extend("propertyNames" = { "pattern": NAME_PATTERN }))]
    pub(super) accounts: BTreeMap<String, RawAccount>,
    // General tables; `complete` lays them under those of each account.
    /// How often the feeds are asked; an account may override each key.
    pub(super) poll: RawPoll,
    /// How requests are made; an account may override each key.
    pub(super) requests: RawRequests,
    /// When a request that failed is sent again.
    pub(super) retry: RawRetry,
    /// How long an account is silent after VTEX answered 429.
    pub(super) rate_limit: RawRateLimit,
    /// When an account that only fails is asked no longer, and when again.
    pub(super) circuit_breaker: RawCircuitBreaker,
    /// Where events are kept before they are committed.
    pub(super) journal: RawJournal,
    /// Where events are delivered; the name is yours, as for accounts.
    #[schemars(extend("propertyNames" = { "pattern": NAME_PATTERN }))]
    pub(super) sinks: BTreeMap<String, RawSink>,
    /// What is logged and where to.
    pub(super) log: RawLog,
    /// How the agent stops.
    pub(super) shutdown: RawShutdown,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAccount {
    /// Whether the feed is polled.
    pub(super) enabled: Option<bool>,
    /// The VTEX account; its feeds share pace and pauses. The name of this table if not given.
    pub(super) account: Option<Text<DnsLabel>>,
    /// Where VTEX answers; https://ACCOUNT.vtexcommercestable.com.br if not given.
    pub(super) base_url: Option<Text<BaseUrl>>,
    /// The app key; required.
    pub(super) app_key: Option<RawSecret>,
    /// The app token; required. Better from a source than written out.
    pub(super) app_token: Option<RawSecret>,
    /// Overrides keys of the general table for this feed.
    pub(super) poll: RawPoll,
    /// Overrides keys of the general table for this feed.
    pub(super) requests: RawRequests,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPoll {
    /// From the end of a poll to the start of the next; below 30s with a warning.
    pub(super) interval: Option<Text<Period<{ 5 * SECOND }, YEAR>>>,
    /// Events asked for in one request.
    pub(super) batch_size: Option<Whole<1, 10>>,
    /// Whether a poll goes on until the feed is empty, or ends after one batch.
    pub(super) drain: Option<bool>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRequests {
    /// Requests of one VTEX account in a second; above 100 with a warning.
    pub(super) per_second: Option<Rate<10_000>>,
    /// Requests that may follow each other at once after a quiet time.
    pub(super) burst: Option<Whole<1, 10_000>>,
    /// For one attempt, from connecting to the last byte.
    pub(super) timeout: Option<Text<Period<1, HOUR>>>,
    /// For connecting alone.
    pub(super) connect_timeout: Option<Text<Period<1, HOUR>>>,
    /// The longest answer that is read, after decompression.
    pub(super) max_body: Option<Text<Size>>,
    /// Requests of one VTEX account at the same time.
    pub(super) concurrency: Option<Whole<1, 32>>,
    /// The proxy variables of the environment count only with "env".
    pub(super) proxy: Option<Text<Proxy>>,
    /// PEM file with authorities to trust besides the system's.
    pub(super) ca_file: Option<Text<FilePath>>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRetry {
    /// After the first attempt; 0 gives up at once.
    pub(super) max_retries: Option<Whole<0, 1_000>>,
    /// Before the first retry; doubles with each, half of it by chance.
    pub(super) base_delay: Option<Text<Period<1, DAY>>>,
    /// Where the doubling ends.
    pub(super) max_delay: Option<Text<Period<1, DAY>>>,
    /// For all attempts and delays together.
    pub(super) budget: Option<Text<Period<1, DAY>>>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRateLimit {
    /// The shortest pause; a Retry-After makes it longer, never shorter.
    pub(super) pause: Option<Text<Period<{ 60 * SECOND }, DAY>>>,
    /// Where the growth ends while VTEX goes on answering 429; a longer Retry-After is honoured all the same.
    pub(super) max_pause: Option<Text<Period<{ 60 * SECOND }, DAY>>>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawCircuitBreaker {
    /// Failures in a row that open it.
    pub(super) failures: Option<Whole<1, 1_000_000>>,
    /// From opening to the first trial.
    pub(super) recovery: Option<Text<Period<SECOND, DAY>>>,
    /// Trials in a row that must go well to close it.
    pub(super) successes: Option<Whole<1, 1_000>>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawJournal {
    /// SQLite file.
    pub(super) path: Option<Text<FilePath>>,
    /// How long events are kept that every sink is done with; pending ones and dead letters are kept for ever.
    pub(super) retention: Option<Text<Period<HOUR, { 10 * YEAR }>>>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    /// How much is logged.
    pub(super) level: Option<Text<Filter>>,
    /// `json` for programs, `text` for people.
    pub(super) format: Option<Text<LogFormat>>,
    /// Log files are written here besides stdout; without it to stdout only.
    pub(super) directory: Option<Text<DirectoryPath>>,
    /// When a new file is begun.
    pub(super) rotation: Option<Text<Rotation>>,
    /// Older files are deleted.
    pub(super) max_files: Option<Whole<1, 10_000>>,
}

/// The unit kills the agent after `TimeoutStopSec=90s`: a longer grace is a promise that could not be kept.
const STOP_TIMEOUT: u64 = 90 * SECOND;

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawShutdown {
    /// How long work in hand may take after the signal to stop; the unit kills the agent after 90s.
    pub(super) grace: Option<Text<Period<0, STOP_TIMEOUT>>>,
}
