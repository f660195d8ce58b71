//! The sinks: what each wants, and the webhook.

use std::collections::BTreeSet;

use order_feed_agent::policy::rotation::Settings;

use super::{CANARY, Case, Duration, Loaded, SIGNING_SECRET, SinkKind, config, fs, minimal};
use super::{OsString, PermissionsExt, Rotation};

/// A webhook in the place of the sink; `more` are further keys of it.
fn webhook(more: &str) -> String {
    minimal("").replace(
        "type = \"file\"\npath = \"DIR/orders.jsonl\"\n",
        &format!("type = \"webhook\"\nurl = \"https://example.com/hook\"\n{more}"),
    )
}

fn signed(more: &str) -> String {
    webhook(&format!("signing_secret = {{ file = \"DIR/signing\" }}\n{more}"))
}

fn case(text: &str) -> Case {
    let case = Case::new(text);
    case.secret("signing", SIGNING_SECRET.as_bytes());
    case.secret("authorization", b"Bearer CANARYTOKEN0123456789\n");
    fs::write(case.path("ca.pem"), super::CA_PEM).unwrap();
    case
}

fn load(text: &str) -> (config::Webhook, Vec<String>) {
    loaded(case(text).load().unwrap_or_else(|errors| panic!("{errors}")))
}

fn loaded(loaded: Loaded) -> (config::Webhook, Vec<String>) {
    let Loaded { mut config, warnings } = loaded;
    let SinkKind::Webhook(webhook) = config.sinks.remove(0).kind else { panic!("no webhook") };
    (*webhook, warnings.iter().map(|warning| warning.key().to_owned()).collect())
}

#[test]
fn a_webhook_needs_its_url_and_the_rest_is_as_documented() {
    let (webhook, warnings) = load(&signed(""));
    assert_eq!(webhook.url.as_str(), "https://example.com/hook");
    let key = [
        49, 242, 144, 246, 191, 6, 41, 138, 171, 79, 8, 212, 60, 63, 8, 44, 246, 72, 163, 98, 218, 45, 164,
        176,
    ];
    assert_eq!(webhook.signing_secrets.iter().map(config::SigningSecret::key).collect::<Vec<_>>(), [key]);
    assert_eq!((webhook.headers.len(), &webhook.ca_file, &webhook.client_cert), (0, &None, &None));
    let limits = config::Limits { max_attempts: 20, timeout: Duration::from_secs(30), concurrency: 4 };
    assert_eq!((webhook.limits, warnings), (limits, vec![]));
}

#[test]
fn everything_about_a_webhook_that_can_be_said_is_heard() {
    let more = "headers = { Authorization = { file = \"DIR/authorization\" }, \"X-Shop\" = \"my shop\" }\n\
                ca_file = \"DIR/ca.pem\"\nmax_attempts = 3\ntimeout = \"1m\"\nconcurrency = 1\n";
    let (webhook, warnings) = load(&signed(more));
    let headers: Vec<_> =
        webhook.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(headers, [("authorization", "Bearer CANARYTOKEN0123456789"), ("x-shop", "my shop")]);
    assert!(webhook.ca_file.is_some());
    let limits = config::Limits { max_attempts: 3, timeout: Duration::from_secs(60), concurrency: 1 };
    assert_eq!((webhook.limits, warnings), (limits, vec![]));
}

#[test]
fn secrets_are_one_or_a_list_and_come_from_the_environment_split_at_commas() {
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let exposed = |webhook: config::Webhook| -> Vec<String> {
        webhook.signing_secrets.iter().map(|secret| secret.expose().to_owned()).collect()
    };
    let (webhook, _) =
        load(&webhook(&format!("signing_secret = [{{ file = \"DIR/signing\" }}, \"{other}\"]\n")));
    assert_eq!(exposed(webhook), [SIGNING_SECRET, other]);
    let mut case = case(&signed("headers.x-shop = \"old\"\n"));
    case.set("ORDER_FEED_AGENT__SINKS__ORDERS__SIGNING_SECRET", &format!("{other}, {SIGNING_SECRET}"));
    case.set("ORDER_FEED_AGENT__SINKS__ORDERS__STATES", "handling,canceled");
    case.set("ORDER_FEED_AGENT__SINKS__ORDERS__ACCOUNTS", "my-store");
    case.set("ORDER_FEED_AGENT__SINKS__ORDERS__HEADERS__X_SHOP", "new");
    case.set("ORDER_FEED_AGENT__SINKS__ORDERS__HEADERS__AUTHORIZATION__ENV", "AUTHORIZATION");
    case.variables.push(("AUTHORIZATION".into(), OsString::from("Bearer t")));
    let read = case.load().unwrap();
    let wanted = &read.config.sinks[0].wanted;
    assert_eq!(wanted.states, Some(BTreeSet::from(["handling".to_owned(), "canceled".to_owned()])));
    assert_eq!(wanted.accounts, Some(BTreeSet::from(["my-store".to_owned()])));
    let (webhook, _) = loaded(read);
    let headers: Vec<_> =
        webhook.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(headers, [("authorization", "Bearer t"), ("x-shop", "new")]);
    assert_eq!(exposed(webhook), [other, SIGNING_SECRET]);
}

#[test]
fn what_is_doubtful_about_a_webhook_is_said() {
    let warnings = |text: &str| load(text).1;
    assert_eq!(warnings(&webhook("")), ["sinks.orders.signing_secret"]);
    assert_eq!(
        warnings(&webhook(&format!("signing_secret = \"{SIGNING_SECRET}\"\n"))),
        ["sinks.orders.signing_secret"]
    );
    let plain = signed("allow_http = true\n").replace("https:", "http:");
    assert_eq!(warnings(&plain), ["sinks.orders.url"]);
    assert_eq!(warnings(&plain.replace("example.com", "127.0.0.1:80")), [""; 0]);
    assert_eq!(
        warnings(&signed("headers.authorization = \"Bearer x\"\nheaders.x-shop = \"x\"\n")),
        ["sinks.orders.headers.authorization"]
    );
    let exposed = case(&signed("headers.authorization = { file = \"DIR/authorization\" }\n"));
    for name in ["signing", "authorization"] {
        fs::set_permissions(exposed.path(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let expected = ["sinks.orders.signing_secret", "sinks.orders.headers.authorization"];
    assert_eq!(loaded(exposed.load().unwrap()).1, expected);
}

#[test]
fn a_webhook_that_is_wrong_is_refused_with_its_key_and_without_its_values() {
    let key = |key: &str| format!("sinks.orders.{key}");
    for (more, wrong) in [
        ("url = 3", "url"),
        ("url = \"example.com\"", "url"),
        ("url = \"ftp://CANARYTOKEN0123456789.example\"", "url"),
        ("url = \"http://CANARYTOKEN0123456789.example\"", "url"),
        ("url = \"http://127.0.0.1.example.com/\"", "url"),
        ("url = \"https://u:CANARYTOKEN0123456789@example.com\"", "url"),
        ("url = \"https://CANARYTOKEN0123456789@example.com\"", "url"),
        ("url = \"https://example.com/#CANARYTOKEN0123456789\"", "url"),
        ("url = \"https://example.com/\\n\"", "url"),
        ("allow_http = \"yes\"", "allow_http"),
        ("signing_secret = \"CANARYTOKEN0123456789\"", "signing_secret"),
        ("signing_secret = \"whsec_CANARYTOKEN0123456789\"", "signing_secret"),
        // 23 bytes, 65 bytes, another alphabet, no padding.
        ("signing_secret = \"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"", "signing_secret"),
        (
            "signing_secret = \"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"",
            "signing_secret",
        ),
        ("signing_secret = \"whsec_________________________________\"", "signing_secret"),
        ("signing_secret = \"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"", "signing_secret"),
        ("signing_secret = { file = \"DIR/missing\" }", "signing_secret"),
        ("signing_secret = []", "signing_secret"),
        ("signing_secret = [3]", "signing_secret"),
        ("signing_secret = [{ file = \"DIR/signing\" }, { file = \"DIR/token\" }]", "signing_secret"),
        ("headers.\"CANARY TOKEN\" = \"x\"", "headers.CANARY TOKEN"),
        ("headers.x = 3", "headers.x"),
        ("headers.x = \"CANARYTOKEN0123456789 \"", "headers.x"),
        ("headers.x = \"CANARYTOKEN0123456789\\r\\nx: y\"", "headers.x"),
        ("headers.x = \"CANARYTOKEN0123456789é\"", "headers.x"),
        ("headers.x = \"\"", "headers.x"),
        ("headers.Content-Type = \"x\"", "headers.Content-Type"),
        ("headers.host = \"x\"", "headers.host"),
        ("headers.webhook-signature = \"x\"", "headers.webhook-signature"),
        ("headers = { x-shop = \"a\", X-Shop = \"b\" }", "headers.x-shop"),
        ("ca_file = \"DIR/missing\"", "ca_file"),
        ("ca_file = \"DIR/token\"", "ca_file"),
        ("client_cert = \"DIR/missing\"", "client_cert"),
        ("client_cert = \"DIR/token\"", "client_cert"),
        // A certificate without its key.
        ("client_cert = \"DIR/ca.pem\"", "client_cert"),
        ("max_attempts = 0", "max_attempts"),
        ("max_attempts = 1001", "max_attempts"),
        ("timeout = \"0s\"", "timeout"),
        ("timeout = \"2h\"", "timeout"),
        ("concurrency = 33", "concurrency"),
        ("path = \"DIR/x\"", "path"),
        ("states = []", "states"),
        ("states = \"handling\"", "states"),
        ("states = [\" handling\"]", "states"),
        ("accounts = []", "accounts"),
        ("accounts = [\"my-store\", \"CANARYTOKEN0123456789\"]", "accounts"),
    ] {
        let text = if more.starts_with("url") {
            signed("").replace("url = \"https://example.com/hook\"", more)
        } else if more.starts_with("signing_secret") {
            webhook(&format!("{more}\n"))
        } else {
            signed(&format!("{more}\n"))
        };
        super::refused::assert_refused(&case(&text), &[&key(wrong)]);
    }
    let missing = signed("").replace("url = \"https://example.com/hook\"\n", "");
    super::refused::assert_refused(&case(&missing), &["sinks.orders.url"]);
}

#[test]
fn a_client_certificate_comes_with_its_own_key_and_is_for_its_owner_only() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["agent".to_owned()]).unwrap();
    let (pem, key) = (cert.pem(), signing_key.serialize_pem());
    let case = case(&signed("client_cert = \"DIR/client.pem\"\n"));
    case.secret("client.pem", format!("{pem}{key}").as_bytes());
    let (webhook, warnings) = loaded(case.load().unwrap());
    assert_eq!((webhook.client_cert.unwrap().path, warnings), (case.path("client.pem"), vec![]));
    assert!(!format!("{:?}", case.load().unwrap().config).contains("BEGIN"));
    fs::set_permissions(case.path("client.pem"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(loaded(case.load().unwrap()).1, ["sinks.orders.client_cert"]);

    let before = case.load().unwrap().config;
    let renewed = rcgen::generate_simple_self_signed(["agent".to_owned()]).unwrap();
    case.secret(
        "client.pem",
        format!("{}{}", renewed.cert.pem(), renewed.signing_key.serialize_pem()).as_bytes(),
    );
    assert_ne!(case.load().unwrap().config, before, "a reload notices another certificate");
    for pem in [
        key.clone(),
        pem.clone(),
        format!("{}{key}", renewed.cert.pem()),
        format!("CANARYTOKEN0123456789{pem}"),
    ] {
        case.secret("client.pem", pem.as_bytes());
        super::refused::assert_refused(&case, &["sinks.orders.client_cert"]);
    }
}

#[test]
fn what_a_sink_of_any_type_wants_is_heard_and_accounts_must_exist() {
    let more = "states = [\"handling\", \"\"]\naccounts = [\"off\"]\n[accounts.off]\nenabled = false\n";
    let wanted = |text: &str| case(text).load().unwrap().config.sinks.remove(0).wanted;
    let expected = config::Wanted {
        states: Some(BTreeSet::from(["handling".to_owned(), String::new()])),
        accounts: Some(BTreeSet::from(["off".to_owned()])),
    };
    assert_eq!(wanted(&signed(more)), expected);
    assert_eq!(wanted(&file(more)), expected);
    let errors =
        case(&file("accounts = [\"my-stroe\"]\n[accounts.b]\nenabled = false\n")).load().unwrap_err();
    assert!(
        errors.to_string().ends_with(
            "sinks.orders.accounts: must be names of accounts of this configuration: `b`, `my-store`"
        ),
        "{errors}"
    );
}

#[test]
fn nothing_secret_of_a_webhook_is_shown() {
    let more = "headers.authorization = { file = \"DIR/authorization\" }\nheaders.x-shop = \"CANARYTOKEN0123456789\"\n";
    let case = case(&signed(more).replace("/hook", "/hook?key=CANARYTOKEN0123456789"));
    let shown = format!("{:#?}", case.load().unwrap().config);
    assert!(!shown.contains(CANARY) && !shown.contains("whsec"), "{shown}");
    let settings = config::settings(&case.path("config.toml"), []).unwrap().settings;
    let shown =
        |key: &str| settings.iter().find(|setting| setting.key == key).map(|setting| setting.value.as_str());
    assert_eq!(shown("sinks.orders.url"), Some("https://example.com/hook?***"));
    assert_eq!(shown("sinks.orders.headers.x-shop"), Some("***"));
    assert_eq!(shown("sinks.orders.concurrency"), Some("4"));
    let file = case.path("signing").display().to_string();
    assert_eq!(shown("sinks.orders.signing_secret"), Some(&*format!("*** (file {file})")));
    assert!(settings.iter().all(|setting| !setting.value.contains(CANARY)), "{settings:?}");
}

/// The file sink `orders` with further keys.
fn file(more: &str) -> String {
    minimal("").replace("jsonl\"\n", &format!("jsonl\"\n{more}"))
}

#[test]
fn what_is_said_about_rotation_is_heard() {
    let rotation = |more: &str| {
        let SinkKind::File(sink) = case(&file(more)).load().unwrap().config.sinks.remove(0).kind else {
            panic!("no file")
        };
        sink.rotation
    };
    let settings = |every, max_bytes, max_files| Some(Settings { every, max_bytes, max_files });
    assert_eq!(rotation(""), None);
    assert_eq!(rotation("rotate = \"never\"\n"), None);
    assert_eq!(rotation("rotate = \"hourly\"\n"), settings(Some(Rotation::Hourly), None, None));
    assert_eq!(rotation("max_bytes = \"1KiB\"\nmax_files = 1\n"), settings(None, Some(1024), Some(1)));
    assert_eq!(
        rotation("rotate = \"daily\"\nmax_bytes = \"100 MiB\"\nmax_files = 30\n"),
        settings(Some(Rotation::Daily), Some(100 << 20), Some(30))
    );
}

#[test]
fn a_sink_is_not_where_another_puts_its_files_aside() {
    let aside = "orders-2026-11-30T15-59-58.123Z.jsonl";
    let other = |path: &str| format!("[sinks.b]\ntype = \"file\"\npath = \"DIR/{path}\"\n");
    let rotating = |path: &str| case(&(file("rotate = \"daily\"\n") + &other(path)));
    super::refused::assert_refused(&rotating(aside), &["sinks.b.path"]);
    assert!(rotating(aside).load().unwrap_err().to_string().contains("sinks.orders"));
    case(&(file("") + &other(aside))).load().unwrap();
    for path in ["orders-2026-11-30.jsonl", "sub/orders-2026-11-30T15-59-58.123Z.jsonl", "orders.json"] {
        rotating(path).load().unwrap();
    }
}

#[test]
fn a_file_whose_name_is_too_long_to_be_rotated_is_refused() {
    let long = |n: usize, more: &str| case(&file(more).replace("orders.jsonl", &"x".repeat(n)));
    super::refused::assert_refused(&long(231, "rotate = \"daily\"\n"), &["sinks.orders.path"]);
    long(230, "rotate = \"daily\"\n").load().unwrap();
    long(231, "").load().unwrap();
}
