//! The sinks, as valid values.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::HeaderName;
use serde::{Deserialize, Serialize};

use super::{CaFile, Secret};
use crate::policy::rotation;

#[derive(Debug, Clone, PartialEq)]
pub struct Sink {
    pub name: String,
    pub wanted: Wanted,
    pub kind: SinkKind,
}

/// What a sink wants of the journal; `None` is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// As VTEX writes them; `""` is an event without one.
    pub states: Option<BTreeSet<String>>,
    /// Names of accounts of this configuration, switched off or not.
    pub accounts: Option<BTreeSet<String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SinkKind {
    File(FileSink),
    Webhook(Box<Webhook>),
    Command(Command),
}

#[derive(Debug, Clone, PartialEq)]
pub struct FileSink {
    pub path: PathBuf,
    /// Permission bits of a file that the sink makes.
    pub mode: u32,
    /// Whether and when the sink itself puts a file aside and begins a new one.
    pub rotation: Option<rotation::Settings>,
}

#[derive(Clone, PartialEq)]
pub struct Webhook {
    /// `https`, or `http` to a loopback address or where the user allowed it. Its path and query may be a secret.
    pub url: Url,
    /// Each gives a signature; at most 10, none where the user wants none.
    pub signing_secrets: Vec<SigningSecret>,
    /// The user's own, each once; none that the agent sets itself.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Authorities trusted besides the system's.
    pub ca_file: Option<CaFile>,
    /// Shown to the receiver.
    pub client_cert: Option<ClientCert>,
    pub limits: Limits,
}

/// A program that is run for each event. Whoever may list processes sees its arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Absolute; an executable file when the configuration was read.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// The user's own variables, each once; none that the agent sets itself.
    pub env: Vec<(String, Secret)>,
    /// Absolute; a folder when the configuration was read.
    pub working_directory: PathBuf,
    pub limits: Limits,
}

/// How hard a sink that takes one event at a time is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Attempts at one event before it becomes a dead letter, 1–1,000.
    pub max_attempts: u32,
    /// For one attempt, from one second to [`super::LONGEST_TIMEOUT`].
    pub timeout: Duration,
    /// Events in hand at the same time, 1–32.
    pub concurrency: u32,
}

/// A secret of the Standard Webhooks convention: `whsec_` and base64 of 24 to 64 bytes.
#[derive(Clone, PartialEq)]
pub struct SigningSecret {
    text: Secret,
    key: Vec<u8>,
}

/// A certificate, its chain and its private key as they were when the configuration was read, so that a reload
/// notices new ones.
#[derive(Clone, PartialEq)]
pub struct ClientCert {
    pub path: PathBuf,
    /// PEM that the TLS library accepts.
    pub pem: Secret,
}

impl Wanted {
    /// Whether an event of this account in this state is to be delivered.
    pub fn wants(&self, account: &str, state: &str) -> bool {
        self.accounts.as_ref().is_none_or(|accounts| accounts.contains(account))
            && self.states.as_ref().is_none_or(|states| states.contains(state))
    }
}

impl SigningSecret {
    /// What [`SigningSecret::new`] takes.
    pub(super) const ALLOWED: &str = "`whsec_` and the base64 of 24 to 64 bytes";

    pub fn new(text: Secret) -> Option<Self> {
        let key = STANDARD.decode(text.expose().strip_prefix("whsec_")?).ok()?;
        (24..=64).contains(&key.len()).then_some(Self { text, key })
    }

    /// The secret as it was written, for taking it out of foreign texts.
    pub fn expose(&self) -> &str {
        self.text.expose()
    }

    /// The key that is signed with.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, signing_secrets, headers, ca_file, client_cert, limits } = self;
        f.debug_struct("Webhook")
            .field("url", &url.host_str())
            .field("signing_secrets", signing_secrets)
            .field("headers", headers)
            .field("ca_file", ca_file)
            .field("client_cert", client_cert)
            .field("limits", limits)
            .finish()
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for ClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCert").field("path", &self.path).finish_non_exhaustive()
    }
}
