//! The configuration, from a file and an environment to a valid value or to all that is wrong.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use order_feed_agent::config::{
    self, ConfigErrors, Loaded, LogFiles, LogFormat, Proxy, Rotation, SecretSource, SinkKind, Wanted,
};
use tempfile::TempDir;

mod check;
mod commands;
mod example;
mod refused;
mod secrets;
mod sinks;

const KEY: &str = "vtexappkey-store-ABCDEF";
const CANARY: &str = "CANARYTOKEN0123456789";
/// That of the examples of Standard Webhooks.
const SIGNING_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Of an authority that signs nothing; valid for a hundred years.
const CA_PEM: &str = "-----BEGIN CERTIFICATE-----
MIIBlzCCAT2gAwIBAgIUGm53hbfHx1iCJ4Mytk0QeXEx9CUwCgYIKoZIzj0EAwIw
IDEeMBwGA1UEAwwVb3JkZXItZmVlZC1hZ2VudCB0ZXN0MCAXDTI2MTEzMDAzMjcw
MFoYDzIxMjYxMTA2MDMyNzAwWjAgMR4wHAYDVQQDDBVvcmRlci1mZWVkLWFnZW50
IHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARP6/bv/ew/d7RsNugst1If
sRCEqG2SHS4DSzTFljivG+AUmIFbyuiOWxcF6w+jylQ0GPRcT/j0NX0p9j7Cjr7k
o1MwUTAdBgNVHQ4EFgQUWzxOcxo+1xyx3cpYC5SXtMgoKXkwHwYDVR0jBBgwFoAU
WzxOcxo+1xyx3cpYC5SXtMgoKXkwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD
AgNIADBFAiEA5q9J5pD/uXKLCePBf/FFxADa/wHSUoZGmpfFr21ipUkCIEpw7yrb
rxroOR4xVNfEgkLAeeYe6ATLqVCwNoxZ0jj4
-----END CERTIFICATE-----
";

#[test]
fn a_small_file_is_enough_and_the_rest_is_as_documented() {
    let case = Case::new(&minimal(""));
    let Loaded { config, warnings } = case.load().unwrap();

    let account = &config.accounts[0];
    assert_eq!(account.name, "my-store");
    assert_eq!(account.account, "my-store");
    assert_eq!(account.base_url.as_str(), "https://my-store.vtexcommercestable.com.br/");
    assert_eq!(account.app_key.expose(), KEY);
    assert_eq!(account.app_token.expose(), CANARY);
    assert_eq!(account.app_token_source, SecretSource::File(case.path("token")));
    assert_eq!(account.poll.interval, Duration::from_secs(30));
    assert_eq!((account.poll.batch_size, account.poll.drain), (10, true));
    assert_eq!((account.requests.per_second, account.requests.burst), (10.0, 1));
    assert_eq!(account.requests.timeout, Duration::from_secs(30));
    assert_eq!(account.requests.connect_timeout, Duration::from_secs(10));
    assert_eq!(account.requests.max_body, 8 * 1024 * 1024);
    assert_eq!(config.journal.path, PathBuf::from("/var/lib/order-feed-agent/journal.db"));
    let SinkKind::File(sink) = &config.sinks[0].kind else { panic!("{config:?}") };
    assert_eq!(config.sinks[0].wanted, Wanted::default());
    assert_eq!((config.sinks[0].name.as_str(), sink.mode), ("orders", 0o600));
    assert_eq!((config.log.level.as_str(), config.log.format), ("info", LogFormat::Json));
    assert_eq!(config.shutdown.grace, Duration::from_secs(20));
    assert_eq!(warnings, []);
}

#[test]
fn the_environment_overrides_any_key_and_alone_makes_an_account() {
    let mut case = Case::new(&minimal(""));
    case.set("ORDER_FEED_AGENT__POLL__INTERVAL", "45s");
    case.set("ORDER_FEED_AGENT__POLL__BATCH_SIZE", "7");
    case.set("ORDER_FEED_AGENT__POLL__DRAIN", "false");
    case.set("ORDER_FEED_AGENT__REQUESTS__PER_SECOND", "2.5");
    case.set("ORDER_FEED_AGENT__ACCOUNTS__MY_STORE__POLL__INTERVAL", "1m");
    case.set("ORDER_FEED_AGENT__ACCOUNTS__SECOND_STORE__APP_KEY", "0012300");
    case.set("ORDER_FEED_AGENT__ACCOUNTS__SECOND_STORE__APP_TOKEN", "0012300");
    case.variables.push((OsString::from_vec(vec![0xff, b'x']), OsString::from_vec(vec![0xfe])));
    let Loaded { config, warnings: _ } = case.load().unwrap();
    let [first, second] = &config.accounts[..] else { panic!("{config:?}") };
    assert_eq!((first.name.as_str(), first.poll.interval), ("my-store", Duration::from_secs(60)));
    assert_eq!((second.name.as_str(), second.poll.interval), ("second-store", Duration::from_secs(45)));
    assert_eq!((second.app_key.expose(), second.app_token.expose()), ("0012300", "0012300"));
    assert_eq!((second.poll.batch_size, second.poll.drain, second.requests.per_second), (7, false, 2.5));
}

#[test]
fn a_problem_of_the_environment_names_its_variable() {
    for (variable, value, key) in [
        ("ORDER_FEED_AGENT__POLL__INTERVAL", "5", "poll.interval"),
        ("ORDER_FEED_AGENT__POLL__BATCH_SIZE", "many", "poll.batch_size"),
        ("ORDER_FEED_AGENT__POLL__BATHC_SIZE", "3", "poll.bathc_size"),
        ("ORDER_FEED_AGENT__POLL", "3", "poll"),
        ("ORDER_FEED_AGENT__ACCOUNTS__MY_STORE__BASE_URL", "ftp://x", "accounts.my-store.base_url"),
    ] {
        let mut case = Case::new(&minimal(""));
        case.set(variable, value);
        let errors = case.load().unwrap_err();
        assert!(errors.to_string().starts_with(&format!("{variable}: {key}: ")), "{errors}");
    }
}

#[test]
fn everything_that_can_be_said_is_heard() {
    let text = minimal(
        "[accounts.other]\naccount = \"MyStore\"\napp_key = { env = \"KEY\" }\napp_token = { file = \"DIR/token\" }\n\
         base_url = \"http://127.0.0.1:8391/base/\"\npoll = { interval = \"1m 30s\" }\nrequests.proxy = \"none\"\n\
         requests.timeout = \"5s\"\n[accounts.off]\nenabled = false\n[poll]\ninterval = \"1h\"\nbatch_size = 3\n\
         drain = false\n[requests]\nproxy = \"http://user:hunter2@proxy:3128\"\nca_file = \"DIR/ca.pem\"\n\
         per_second = 0.5\nburst = 4\nconnect_timeout = \"250ms\"\nmax_body = \"1 MiB\"\n[journal]\n\
         path = \"DIR/journal.db\"\n[log]\nlevel = \"warn,order_feed_agent::account=debug\"\nformat = \"text\"\n\
         directory = \"DIR/log\"\nrotation = \"hourly\"\nmax_files = 3\n[shutdown]\ngrace = \"90s\"\n",
    );
    let mut case = Case::new(&text);
    case.set("KEY", "other-key");
    fs::write(case.path("ca.pem"), CA_PEM).unwrap();
    let config = case.load().unwrap().config;

    let [store, other] = &config.accounts[..] else { panic!("{config:?}") };
    assert_eq!(
        (store.poll.interval, other.poll.interval),
        (Duration::from_secs(3600), Duration::from_secs(90))
    );
    assert_eq!((other.poll.batch_size, other.poll.drain), (3, false));
    assert_eq!((other.account.as_str(), other.app_key.expose()), ("mystore", "other-key"));
    assert_eq!(other.base_url.as_str(), "http://127.0.0.1:8391/base");
    let Proxy::Url(proxy) = &store.requests.proxy else { panic!("{config:?}") };
    assert_eq!(
        (proxy.host_str(), proxy.port(), proxy.password()),
        (Some("proxy"), Some(3128), Some("hunter2"))
    );
    assert_eq!(other.requests.proxy, Proxy::None);
    assert_eq!(
        (store.requests.timeout, other.requests.timeout),
        (Duration::from_secs(30), Duration::from_secs(5))
    );
    assert_eq!((other.requests.per_second, other.requests.burst), (0.5, 4));
    assert_eq!(
        (other.requests.connect_timeout, other.requests.max_body),
        (Duration::from_millis(250), 1 << 20)
    );
    assert_eq!(other.requests.ca_file.as_ref().unwrap().pem, CA_PEM.as_bytes());
    assert_eq!(
        (config.log.level.as_str(), config.log.format),
        ("warn,order_feed_agent::account=debug", LogFormat::Text)
    );
    let files = LogFiles { directory: case.path("log"), rotation: Rotation::Hourly, max_files: 3 };
    assert_eq!(config.log.files, Some(files));
    assert_eq!(config.shutdown.grace, Duration::from_secs(90));
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    assert_eq!(case.load().unwrap().config, config);
}

#[test]
fn what_is_doubtful_is_accepted_and_said_at_the_key_that_the_user_wrote() {
    let text = "
poll.interval = \"5s\"
[accounts.a]
app_key = \"a\"
app_token = \"CANARYTOKEN0123456789\"
[accounts.b]
app_key = \"b\"
app_token = { file = \"DIR/open\" }
requests.per_second = 101
[accounts.c]
app_key = \"c\"
app_token = { file = \"DIR/token\" }
";
    let case = Case::new(text);
    fs::write(case.path("open"), "x").unwrap();
    fs::set_permissions(case.path("open"), fs::Permissions::from_mode(0o640)).unwrap();
    let warnings = case.load().unwrap().warnings;
    let keys: Vec<&str> = warnings.iter().map(config::Warning::key).collect();
    let expected = [
        "sinks",
        "poll.interval",
        "accounts.a.app_token",
        "accounts.b.app_token",
        "accounts.b.requests.per_second",
    ];
    assert_eq!(keys, expected);
    let file = case.path("config.toml").display().to_string();
    assert!(warnings[1].to_string().starts_with(&format!("{file}:2:6: poll.interval: ")), "{}", warnings[1]);
    assert!(warnings.iter().all(|warning| !warning.to_string().contains(CANARY)), "{warnings:?}");
}

/// A file with one account whose token stands in a file beside it, and one sink; `more` follows at line 8.
fn minimal(more: &str) -> String {
    format!(
        "[accounts.my-store]\napp_key = \"{KEY}\"\napp_token = {{ file = \"DIR/token\" }}\n\
         [sinks.orders]\ntype = \"file\"\npath = \"DIR/orders.jsonl\"\n\n{more}"
    )
}

/// A configuration in a folder of its own; `DIR` in the text stands for it.
struct Case {
    dir: TempDir,
    variables: Vec<(OsString, OsString)>,
}

impl Case {
    fn new(text: &str) -> Self {
        let case = Self { dir: TempDir::new().unwrap(), variables: Vec::new() };
        let text = text.replace("DIR", case.dir.path().to_str().unwrap());
        fs::write(case.path("config.toml"), text).unwrap();
        case.secret("token", CANARY.as_bytes());
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn secret(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// An executable file that does nothing.
    fn program(&self, name: &str) {
        fs::write(self.path(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.into(), value.into()));
    }

    fn load(&self) -> Result<Loaded, ConfigErrors> {
        config::load(&self.path("config.toml"), self.variables.clone())
    }
}
