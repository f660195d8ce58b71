//! From the raw mirror to a valid [`Config`]: what is required, what contradicts, what is doubtful.

use std::collections::BTreeMap;
use std::time::Duration;

use super::environment::Variables;
use super::layers::KeyPath;
use super::raw::{RawAccount, RawConfig, RawJournal, RawLog, RawPoll, RawRequests, RawShutdown};
use super::{Account, CaFile, Config, Journal, Log, LogFiles, Poll, Requests, Secret, Shutdown};

mod ca_file;
mod secrets;
mod sinks;

/// What validation has to say besides its result; keys get their places later.
pub(super) struct Remarks {
    /// Starts with what the reading found: a key that is wrong is not also missing.
    pub(super) wrong: Vec<(KeyPath, String)>,
    pub(super) doubtful: Vec<(KeyPath, String)>,
}

/// What validation looks at besides the mirror.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) variables: &'a Variables,
    pub(super) view: View,
}

/// From where the configuration is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// The agent that is to run: every secret must be there.
    Service,
    /// A person's shell, which has neither the unit's credentials nor its environment.
    Shell,
    /// Whoever wants to know the rest; secrets are not fetched.
    NoSecrets,
}

/// Returns nothing only where a problem has been told or a secret was not to be had from this view.
pub(super) fn validate(
    raw: RawConfig,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Config> {
    // The general tables have been laid under those of each account.
    let RawConfig { accounts, poll: _, requests: _, journal, sinks, log, shutdown } = raw;
    let accounts = self::accounts(accounts, surroundings, remarks);
    let journal = self::journal(journal);
    let sinks = sinks::sinks(sinks, journal.as_ref(), remarks);
    let log = self::log(log);
    let shutdown = self::shutdown(shutdown);
    Some(Config { accounts: accounts?, journal: journal?, sinks: sinks?, log: log?, shutdown: shutdown? })
}

impl Remarks {
    fn refuse(&mut self, path: &[&str], message: impl Into<String>) {
        self.wrong.push((key_path(path), message.into()));
    }

    /// Refuses a key that is missing, unless it is missing because it was wrong.
    fn require(&mut self, path: &[&str], what: &str) {
        let path = key_path(path);
        if !self.wrong.iter().any(|(wrong, _)| wrong.starts_with(&path)) {
            self.wrong.push((path, format!("required: {what}")));
        }
    }

    fn doubt(&mut self, path: &[&str], message: impl Into<String>) {
        self.doubtful.push((key_path(path), message.into()));
    }
}

fn key_path(path: &[&str]) -> KeyPath {
    path.iter().copied().map(str::to_owned).collect()
}

fn accounts(
    raw: BTreeMap<String, RawAccount>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Vec<Account>> {
    if raw.is_empty() {
        remarks.require(&["accounts"], "at least one, such as [accounts.my-store]");
    } else if raw.values().all(|account| account.enabled == Some(false)) {
        remarks.refuse(&["accounts"], "at least one must be enabled");
    }
    let mut owners = Owners::default();
    let enabled = raw.into_iter().filter(|(_, account)| account.enabled == Some(true));
    // Not stopped at the first that is wrong: the problems of the others are told too.
    let accounts: Vec<_> =
        enabled.map(|(name, raw)| account(name, raw, &mut owners, surroundings, remarks)).collect();
    accounts.into_iter().collect()
}

fn account(
    name: String,
    raw: RawAccount,
    owners: &mut Owners,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Account> {
    let RawAccount { enabled: _, account, base_url, app_key, app_token, poll, requests } = raw;
    let key = secrets::key(&name, app_key, surroundings, remarks);
    let token = secrets::token(&name, app_token, surroundings, remarks);
    let poll = self::poll(&name, poll, remarks);
    let requests = self::requests(&name, requests, remarks);
    let account = account?.value.0;
    let app_key = key?;
    if let Some(owner) = owners.enter(&account, &app_key, &name) {
        let message =
            format!("accounts.{owner} reads with the same key; they would take each other's events");
        remarks.refuse(&["accounts", &name, "app_key"], message);
    }
    let (app_token, app_token_source) = token?;
    let (poll, requests) = (poll?, requests?);
    Some(Account {
        name,
        account,
        base_url: base_url?.value.0,
        app_key,
        app_token,
        app_token_source,
        poll,
        requests,
    })
}

/// Who reads a feed: the VTEX account, the key, the account's name here.
#[derive(Default)]
struct Owners(Vec<(String, Secret, String)>);

impl Owners {
    /// Returns the name of who had the feed before.
    fn enter(&mut self, account: &str, key: &Secret, name: &str) -> Option<String> {
        let owner =
            self.0.iter().find(|(a, k, _)| a == account && k == key).map(|(_, _, owner)| owner.clone());
        self.0.push((account.to_owned(), key.clone(), name.to_owned()));
        owner
    }
}

fn poll(account: &str, raw: RawPoll, remarks: &mut Remarks) -> Option<Poll> {
    let RawPoll { interval, batch_size, drain } = raw;
    let interval = interval.map(|interval| interval.value.0);
    if interval.is_some_and(|interval| interval < Duration::from_secs(30)) {
        remarks.doubt(
            &["accounts", account, "poll", "interval"],
            "below 30s it uses up much of the account's rate limit",
        );
    }
    Some(Poll { interval: interval?, batch_size: u8::try_from(batch_size?.0).ok()?, drain: drain? })
}

fn requests(account: &str, raw: RawRequests, remarks: &mut Remarks) -> Option<Requests> {
    let RawRequests { per_second, burst, timeout, connect_timeout, max_body, proxy, ca_file } = raw;
    let per_second = per_second.map(|rate| rate.0);
    if per_second.is_some_and(|rate| 100.0 < rate) {
        let message = "above 100 requests a second VTEX may throttle the whole account";
        remarks.doubt(&["accounts", account, "requests", "per_second"], message);
    }
    let ca_file = match ca_file.map(|ca_file| CaFile::read(ca_file.value.0)).transpose() {
        Ok(ca_file) => ca_file,
        Err(message) => {
            remarks.refuse(&["accounts", account, "requests", "ca_file"], message);
            None
        }
    };
    Some(Requests {
        per_second: per_second?,
        burst: burst?.0,
        timeout: timeout?.value.0,
        connect_timeout: connect_timeout?.value.0,
        max_body: max_body?.value.0,
        proxy: proxy?.value,
        ca_file,
    })
}

fn journal(raw: RawJournal) -> Option<Journal> {
    let RawJournal { path } = raw;
    Some(Journal { path: path?.value.0 })
}

fn log(raw: RawLog) -> Option<Log> {
    let RawLog { level, format, directory, rotation, max_files } = raw;
    let (rotation, max_files) = (rotation?.value, max_files?.0);
    let files = directory.map(|directory| LogFiles { directory: directory.value.0, rotation, max_files });
    Some(Log { level: level?.value.0, format: format?.value, files })
}

fn shutdown(raw: RawShutdown) -> Option<Shutdown> {
    let RawShutdown { grace } = raw;
    Some(Shutdown { grace: grace?.value.0 })
}
