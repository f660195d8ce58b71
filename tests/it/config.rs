//! The configuration, from a file and an environment to a valid value or to all that is wrong.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use order_feed_agent::config::{self, ConfigErrors, Loaded, LogFormat, SecretSource, SinkKind};
use tempfile::TempDir;

const KEY: &str = "vtexappkey-store-ABCDEF";
const CANARY: &str = "CANARYTOKEN0123456789";

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
    let SinkKind::File(sink) = &config.sinks[0].kind;
    assert_eq!((config.sinks[0].name.as_str(), sink.mode), ("orders", 0o600));
    assert_eq!((config.log.level.as_str(), config.log.format), ("info", LogFormat::Json));
    assert_eq!(config.shutdown.grace, Duration::from_secs(20));
    assert_eq!(warnings, []);
}

#[test]
fn the_interval_has_a_floor_and_its_error_names_key_file_and_what_is_allowed() {
    for wrong in
        ["\"4s\"", "\"4.999s\"", "5", "\"soon\"", "\"-30s\"", "\"1mo\"", "\"5\"", "true", "1979-05-27"]
    {
        let case = Case::new(&minimal(&format!("[poll]\ninterval = {wrong}\n")));
        let errors = case.load().unwrap_err();
        let line = errors.to_string();
        assert_eq!(errors.problems().len(), 1, "{line}");
        assert!(
            line.starts_with(&format!("{}:9:1: poll.interval: must be", case.path("config.toml").display())),
            "{line}"
        );
        assert!(line.contains("from 5s"), "{line}");
    }
    let case = Case::new(&minimal("[poll]\ninterval = \"5s\"\n"));
    let Loaded { config, warnings } = case.load().unwrap();
    assert_eq!(config.accounts[0].poll.interval, Duration::from_secs(5));
    assert_eq!(warnings.iter().map(|w| w.key()).collect::<Vec<_>>(), ["poll.interval"]);
}

#[test]
fn all_problems_of_a_file_are_told_at_once_in_the_order_of_the_file() {
    let text = "
poll.interval = 5
poll.batch_size = 11
[requests]
per_second = 0
burts = 3
[accounts.main]
app_key = 12300
app_token = { file = \"/nowhere/token\" }
base_url = \"http://example.com\"
[accounts.Main]
[sinks.a]
type = \"fiel\"
[sinks.b]
type = \"file\"
[log]
level = \"inffo\"
";
    let errors = Case::new(text).load().unwrap_err();
    let keys: Vec<&str> = errors.problems().iter().map(config::Problem::key).collect();
    let expected = [
        "poll.interval",
        "poll.batch_size",
        "requests.per_second",
        "requests.burts",
        "accounts.main.app_key",
        "accounts.main.app_token",
        "accounts.main.base_url",
        "accounts.Main",
        "sinks.a.type",
        "sinks.b.path",
        "log.level",
    ];
    assert_eq!(keys, expected, "{errors}");
    assert!(errors.to_string().contains("the nearest known one is `burst`"), "{errors}");
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
fn a_secret_source_of_the_environment_replaces_the_one_in_the_file() {
    let mut case = Case::new(&minimal(""));
    case.set("ORDER_FEED_AGENT__ACCOUNTS__MY_STORE__APP_TOKEN__ENV", "TOKEN");
    case.set("TOKEN", "fromenv");
    let account = case.load().unwrap().config.accounts.remove(0);
    assert_eq!(account.app_token.expose(), "fromenv");
    assert_eq!(account.app_token_source, SecretSource::Env("TOKEN".into()));
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

    fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.into(), value.into()));
    }

    fn load(&self) -> Result<Loaded, ConfigErrors> {
        config::load(&self.path("config.toml"), self.variables.clone())
    }
}
