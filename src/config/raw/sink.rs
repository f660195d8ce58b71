//! The kinds of sinks and their keys. What every sink has stands in each of them: serde cannot refuse unknown keys of
//! a flattened table.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::WebhookUrl;
use super::file::{AbsoluteDirectory, FilePath, Mode, ProgramPath, Rotate};
use super::list::List;
use super::number::Whole;
use super::quantity::{Period, Size};
use super::secret::{RawSecret, RawSecrets};
use super::text::{Text, Word};
use super::{HOUR, SECOND};

/// What holds where nothing is said, by the type of the sink, its key, and as text that the key's own type reads.
pub(in crate::config) const SINK_DEFAULTS: &[(&str, &str, &str)] = &[
    ("file", "mode", "0600"),
    ("file", "rotate", "never"),
    ("webhook", "allow_http", "false"),
    ("webhook", "max_attempts", "20"),
    ("webhook", "timeout", "30s"),
    ("webhook", "concurrency", "4"),
    ("command", "working_directory", "/"),
    ("command", "max_attempts", "20"),
    ("command", "timeout", "30s"),
    ("command", "concurrency", "4"),
];

/// Chosen by the key `type`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(tag = "type")]
pub(in crate::config) enum RawSink {
    /// Appends one line of JSON for each event to a file.
    File(RawFileSink),
    /// Sends each event as an HTTP POST, signed by the Standard Webhooks convention.
    Webhook(Box<RawWebhook>),
    /// Runs a program for each event, without a shell.
    Command(Box<RawCommand>),
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct RawFileSink {
    /// Only events of orders in these states; all if not given.
    pub(in crate::config) states: Option<RawStates>,
    /// Only events of these accounts, by their names here; all if not given.
    pub(in crate::config) accounts: Option<RawAccountNames>,
    /// The file; required. Each sink needs its own.
    pub(in crate::config) path: Option<Text<FilePath>>,
    /// Permissions of a file that the sink makes.
    pub(in crate::config) mode: Option<Text<Mode>>,
    /// Whether the file is put aside, under a name with the time of its last line, when its hour or day (UTC) is over.
    pub(in crate::config) rotate: Option<Text<Rotate>>,
    /// A file that would grow beyond this is put aside first; no limit if not given.
    pub(in crate::config) max_bytes: Option<Text<Size>>,
    /// How many of the files put aside are kept; all if not given.
    pub(in crate::config) max_files: Option<Whole<1, 100_000>>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct RawWebhook {
    /// Only events of orders in these states; all if not given.
    pub(in crate::config) states: Option<RawStates>,
    /// Only events of these accounts, by their names here; all if not given.
    pub(in crate::config) accounts: Option<RawAccountNames>,
    /// Where events are sent; required. https, or http to a loopback address.
    pub(in crate::config) url: Option<Text<WebhookUrl>>,
    /// Allows an http URL to any host: everybody on the way can read the events.
    pub(in crate::config) allow_http: Option<bool>,
    /// What requests are signed with: `whsec_` and base64 of 24 to 64 bytes. Each secret of a list gives a signature.
    pub(in crate::config) signing_secret: Option<RawSecrets<10>>,
    /// Headers of your own, such as `authorization`; their values are secrets.
    #[schemars(extend("propertyNames" = { "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" }))]
    pub(in crate::config) headers: BTreeMap<String, RawSecret>,
    /// PEM file with authorities to trust besides the system's.
    pub(in crate::config) ca_file: Option<Text<FilePath>>,
    /// PEM file with a certificate, its chain and its private key, to show to the receiver.
    pub(in crate::config) client_cert: Option<Text<FilePath>>,
    /// Attempts at one event; after the last it becomes a dead letter.
    pub(in crate::config) max_attempts: Option<Whole<1, 1_000>>,
    /// For one attempt, from connecting to the end of the answer.
    pub(in crate::config) timeout: Option<Text<Period<SECOND, HOUR>>>,
    /// Events delivered at the same time, each of another order.
    pub(in crate::config) concurrency: Option<Whole<1, 32>>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct RawCommand {
    /// Only events of orders in these states; all if not given.
    pub(in crate::config) states: Option<RawStates>,
    /// Only events of these accounts, by their names here; all if not given.
    pub(in crate::config) accounts: Option<RawAccountNames>,
    /// The program; required. It gets the envelope on its stdin and takes the event by ending with exit status 0.
    pub(in crate::config) program: Option<Text<ProgramPath>>,
    /// Its arguments, as they are; other users of the machine can see them.
    pub(in crate::config) args: Option<List<Text<Argument>, 100, 0>>,
    /// Variables of your own, such as `API_TOKEN`; their values are secrets. It inherits none.
    #[schemars(extend("propertyNames" = { "pattern": VARIABLE_PATTERN }))]
    pub(in crate::config) env: BTreeMap<String, RawSecret>,
    /// The folder it starts in.
    pub(in crate::config) working_directory: Option<Text<AbsoluteDirectory>>,
    /// Attempts at one event; after the last it becomes a dead letter.
    pub(in crate::config) max_attempts: Option<Whole<1, 1_000>>,
    /// For one run; whoever is not done by then is killed, with everything it started.
    pub(in crate::config) timeout: Option<Text<Period<SECOND, HOUR>>>,
    /// Programs that run at the same time, each for another order.
    pub(in crate::config) concurrency: Option<Whole<1, 32>>,
}

/// What a variable of a program may be called.
const VARIABLE_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]{0,99}$";

/// All of them and all variables together fit into what Linux passes to a program.
#[derive(Debug, Clone)]
pub(in crate::config) struct Argument(pub(in crate::config) String);

impl Word for Argument {
    fn allowed() -> String {
        "text of at most 4096 bytes, without NUL".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        (text.len() <= 4096 && !text.contains('\0')).then(|| Self(text.to_owned()))
    }
}

pub(in crate::config) type RawStates = List<Text<StateName>, 100>;
pub(in crate::config) type RawAccountNames = List<Text<AccountName>, 10_000>;

/// As VTEX writes it, such as `ready-for-handling`.
#[derive(Debug, Clone)]
pub(in crate::config) struct StateName(pub(in crate::config) String);

impl Word for StateName {
    fn allowed() -> String {
        "the name of a state, such as \"ready-for-handling\"; \"\" is an event without one".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        (text.len() <= 200 && text == text.trim()).then(|| Self(text.to_owned()))
    }
}

#[derive(Debug, Clone)]
pub(in crate::config) struct AccountName(pub(in crate::config) String);

impl Word for AccountName {
    fn allowed() -> String {
        "the name of an account of this configuration".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }
}
