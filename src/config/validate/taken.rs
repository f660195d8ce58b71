//! Files that are something else already, so that neither a sink nor the journal writes into them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Surroundings;
use super::secrets;
use crate::config::Log;
use crate::config::raw::{RawAccount, RawCommand, RawSecret, RawSink, RawWebhook};

/// What files are for, by their real path.
pub(super) struct Taken<'a> {
    pub(super) surroundings: Surroundings<'a>,
    files: BTreeMap<PathBuf, String>,
    logs: Option<PathBuf>,
}

impl<'a> Taken<'a> {
    pub(super) fn new(surroundings: Surroundings<'a>) -> Self {
        let files = BTreeMap::from([(real(surroundings.file), "the configuration itself".to_owned())]);
        Self { surroundings, files, logs: None }
    }

    /// The files that accounts read, also those that are switched off for a while.
    pub(super) fn enter_accounts(&mut self, accounts: &BTreeMap<String, RawAccount>) {
        for (name, account) in accounts {
            for (key, secret) in [("app_key", &account.app_key), ("app_token", &account.app_token)] {
                if let Some(file) = secret.as_ref().and_then(|secret| self.file_of(secret)) {
                    self.enter(&file, format!("the secret of accounts.{name}.{key}"));
                }
            }
            if let Some(ca_file) = &account.requests.ca_file {
                self.enter(&ca_file.value.0, format!("what accounts.{name}.requests.ca_file names"));
            }
        }
    }

    /// The files that sinks read.
    pub(super) fn enter_sinks(&mut self, sinks: &BTreeMap<String, RawSink>) {
        for (name, sink) in sinks {
            match sink {
                RawSink::File(_) => {}
                RawSink::Webhook(webhook) => self.enter_webhook(name, webhook),
                RawSink::Command(command) => self.enter_command(name, command),
            }
        }
    }

    fn enter_webhook(&mut self, name: &str, webhook: &RawWebhook) {
        let signing = webhook.signing_secret.iter().flat_map(|secrets| secrets.all());
        signing.for_each(|secret| self.enter_secret(name, "signing_secret", secret));
        webhook.headers.values().for_each(|secret| self.enter_secret(name, "headers", secret));
        for (key, file) in [("ca_file", &webhook.ca_file), ("client_cert", &webhook.client_cert)] {
            if let Some(file) = file {
                self.enter(&file.value.0, format!("what sinks.{name}.{key} names"));
            }
        }
    }

    fn enter_command(&mut self, name: &str, command: &RawCommand) {
        command.env.values().for_each(|secret| self.enter_secret(name, "env", secret));
        if let Some(program) = &command.program {
            self.enter(&program.value.0, format!("what sinks.{name}.program names"));
        }
    }

    fn enter_secret(&mut self, sink: &str, key: &str, secret: &RawSecret) {
        if let Some(file) = self.file_of(secret) {
            self.enter(&file, format!("a secret of sinks.{sink}.{key}"));
        }
    }

    pub(super) fn enter_log(&mut self, log: Option<&Log>) {
        self.logs = log.and_then(|log| log.files.as_ref()).map(|files| real(&files.directory));
    }

    /// What the file is for, if it is for something.
    pub(super) fn by(&self, path: &Path) -> Option<&str> {
        let path = real(path);
        let is_log = || self.logs.is_some() && path.parent() == self.logs.as_deref() && is_log_name(&path);
        self.files.get(&path).map(String::as_str).or_else(|| is_log().then_some(LOG))
    }

    fn file_of(&self, secret: &RawSecret) -> Option<PathBuf> {
        match secret {
            RawSecret::File(path) => Some(path.clone()),
            RawSecret::Credential(name) => secrets::credential(name, self.surroundings.variables),
            RawSecret::Literal(_) | RawSecret::Env(_) => None,
        }
    }

    fn enter(&mut self, path: &Path, what: String) {
        self.files.entry(real(path)).or_insert(what);
    }
}

const LOG: &str = "a name of the agent's own log files (log.directory)";

/// The names of the log files, the link to the current one and whatever may join them.
fn is_log_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("order-feed-agent.") && name.ends_with(".log"))
}

/// The path without links and `..`, as far as it exists.
pub(super) fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if let Ok(real) = absolute.canonicalize() {
        return real;
    }
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => absolute,
    }
}
