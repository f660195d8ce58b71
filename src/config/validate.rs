//! From the raw mirror to a valid [`Config`]: what is required, what contradicts, what is doubtful.

use std::collections::BTreeMap;
use std::time::Duration;

use super::environment::Variables;
use super::layers::KeyPath;
use super::raw::{RawAccount, RawConfig, RawJournal, RawLog, RawPoll, RawRequests, RawShutdown};
use super::{Account, Config, Journal, Log, Poll, Requests, Secret, Shutdown};

mod secrets;
mod sinks;

/// What validation has to say besides its result; keys get their places later.
pub(super) struct Remarks {
    /// Starts with what the reading found: a key that is wrong is not also missing.
    pub(super) wrong: Vec<(KeyPath, String)>,
    pub(super) doubtful: Vec<(KeyPath, String)>,
}

/// Returns nothing only where a problem has been told.
pub(super) fn validate(raw: RawConfig, variables: &Variables, remarks: &mut Remarks) -> Option<Config> {
    // The general tables have been laid under those of each account.
    let RawConfig { accounts, poll: _, requests: _, journal, sinks, log, shutdown } = raw;
    let accounts = self::accounts(accounts, variables, remarks);
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
    variables: &Variables,
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
        enabled.map(|(name, raw)| account(name, raw, &mut owners, variables, remarks)).collect();
    accounts.into_iter().collect()
}

fn account(
    name: String,
    raw: RawAccount,
    owners: &mut Owners,
    variables: &Variables,
    remarks: &mut Remarks,
) -> Option<Account> {
    let RawAccount { enabled: _, account, base_url, app_key, app_token, poll, requests } = raw;
    let key = secrets::key(&name, app_key, variables, remarks);
    let token = secrets::token(&name, app_token, variables, remarks);
    let poll = self::poll(&name, poll, remarks);
    let requests = self::requests(&name, requests, remarks);
    let account = account?.0.0;
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
        base_url: base_url?.0.0,
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
    let interval = interval.map(|interval| interval.0.0);
    if interval.is_some_and(|interval| interval < Duration::from_secs(30)) {
        remarks.doubt(
            &["accounts", account, "poll", "interval"],
            "below 30s it uses up much of the account's rate limit",
        );
    }
    Some(Poll { interval: interval?, batch_size: u8::try_from(batch_size?.0).ok()?, drain: drain? })
}

fn requests(account: &str, raw: RawRequests, remarks: &mut Remarks) -> Option<Requests> {
    let RawRequests { per_second, burst, timeout, connect_timeout, max_body } = raw;
    let per_second = per_second.map(|rate| rate.0);
    if per_second.is_some_and(|rate| 100.0 < rate) {
        let message = "above 100 requests a second VTEX may throttle the whole account";
        remarks.doubt(&["accounts", account, "requests", "per_second"], message);
    }
    Some(Requests {
        per_second: per_second?,
        burst: burst?.0,
        timeout: timeout?.0.0,
        connect_timeout: connect_timeout?.0.0,
        max_body: max_body?.0.0,
    })
}

fn journal(raw: RawJournal) -> Option<Journal> {
    let RawJournal { path } = raw;
    Some(Journal { path: path?.0.0 })
}

fn log(raw: RawLog) -> Option<Log> {
    let RawLog { level, format } = raw;
    Some(Log { level: level?.0.0, format: format?.0 })
}

fn shutdown(raw: RawShutdown) -> Option<Shutdown> {
    let RawShutdown { grace } = raw;
    Some(Shutdown { grace: grace?.0.0 })
}
