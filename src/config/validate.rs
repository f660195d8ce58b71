//! From the raw mirror to a valid [`Config`]: what is required, what contradicts, what is doubtful.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::environment::Variables;
use super::layers::KeyPath;
use super::raw::{
    RawAccount, RawCircuitBreaker, RawConfig, RawJournal, RawLog, RawPoll, RawRateLimit, RawRequests,
    RawRetry, RawShutdown,
};
use super::{Account, CaFile, Config, Journal, Log, LogFiles, Poll, Requests, Secret, Shutdown};
use crate::policy::backoff::Backoff;
use crate::policy::retry::Retry;
use crate::policy::{breaker, pause};

mod ca_file;
mod client_cert;
mod command;
mod secrets;
mod sinks;
mod states;
mod taken;
mod webhook;

use taken::Taken;

/// What validation has to say besides its result; keys get their places later.
pub(super) struct Remarks {
    /// Starts with what the reading found: a key that is wrong is not also missing.
    pub(super) wrong: Vec<(KeyPath, String)>,
    pub(super) doubtful: Vec<(KeyPath, String)>,
}

/// What validation looks at besides the mirror.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// The configuration itself.
    pub(super) file: &'a Path,
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
    let RawConfig {
        accounts,
        poll: _,
        requests: _,
        retry,
        rate_limit,
        circuit_breaker,
        journal,
        sinks,
        log,
        shutdown,
    } = raw;
    let mut taken = Taken::new(surroundings);
    taken.enter_accounts(&accounts);
    taken.enter_sinks(&sinks);
    let names: BTreeSet<String> = accounts.keys().cloned().collect();
    let accounts = self::accounts(accounts, surroundings, remarks);
    let retry = self::retry(retry, remarks);
    let rate_limit = self::rate_limit(rate_limit, remarks);
    let circuit_breaker = self::circuit_breaker(circuit_breaker);
    let log = self::log(log);
    taken.enter_log(log.as_ref());
    let journal = self::journal(journal, &taken, remarks);
    let sinks = sinks::sinks(sinks, &names, journal.as_ref(), &taken, remarks);
    let shutdown = self::shutdown(shutdown);
    Some(Config {
        accounts: accounts?,
        retry: retry?,
        rate_limit: rate_limit?,
        circuit_breaker: circuit_breaker?,
        journal: journal?,
        sinks: sinks?,
        log: log?,
        shutdown: shutdown?,
    })
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

/// Who reads a feed: by VTEX account, the keys and the accounts' names here.
#[derive(Default)]
struct Owners(BTreeMap<String, Vec<(Secret, String)>>);

impl Owners {
    /// Returns the name of who had the feed before.
    fn enter(&mut self, account: &str, key: &Secret, name: &str) -> Option<String> {
        let feeds = self.0.entry(account.to_owned()).or_default();
        let owner = feeds.iter().find(|(known, _)| known == key).map(|(_, owner)| owner.clone());
        feeds.push((key.clone(), name.to_owned()));
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
    let RawRequests { per_second, burst, timeout, connect_timeout, max_body, concurrency, proxy, ca_file } =
        raw;
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
        concurrency: concurrency?.0,
        proxy: proxy?.value,
        ca_file,
    })
}

fn retry(raw: RawRetry, remarks: &mut Remarks) -> Option<Retry> {
    let RawRetry { max_retries, base_delay, max_delay, budget } = raw;
    let (base, max) = (base_delay?.value.0, max_delay?.value.0);
    if max < base {
        remarks.refuse(&["retry", "max_delay"], "must be at least retry.base_delay");
    }
    Some(Retry { backoff: Backoff { base, max }, max_retries: max_retries?.0, budget: budget?.value.0 })
}

fn rate_limit(raw: RawRateLimit, remarks: &mut Remarks) -> Option<pause::Settings> {
    let RawRateLimit { pause, max_pause } = raw;
    let (pause, max_pause) = (pause?.value.0, max_pause?.value.0);
    if max_pause < pause {
        remarks.refuse(&["rate_limit", "max_pause"], "must be at least rate_limit.pause");
    }
    Some(pause::Settings { pause, max_pause })
}

fn circuit_breaker(raw: RawCircuitBreaker) -> Option<breaker::Settings> {
    let RawCircuitBreaker { failures, recovery, successes } = raw;
    Some(breaker::Settings { failures: failures?.0, recovery: recovery?.value.0, successes: successes?.0 })
}

fn journal(raw: RawJournal, taken: &Taken<'_>, remarks: &mut Remarks) -> Option<Journal> {
    let RawJournal { path, retention } = raw;
    let path = path?.value.0;
    if let Some(what) = taken.by(&path) {
        remarks.refuse(&["journal", "path"], format!("is {what}; it must be another one"));
    }
    Some(Journal { path, retention: retention?.value.0 })
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
