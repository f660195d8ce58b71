//! What is refused: always with its key and its place, never with a value.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prop_assert, proptest};

use super::{CANARY, Case, Duration, Loaded, PathBuf, config, fs, minimal};

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
fn a_wrong_configuration_is_refused_with_its_key_and_without_its_values() {
    for (text, keys) in WRONG {
        assert_refused(&Case::new(text), keys);
    }
    for (more, keys) in WRONG_BESIDE_A_GOOD_ACCOUNT {
        assert_refused(&Case::new(&minimal(more)), keys);
    }
    assert!(40 <= WRONG.len() + WRONG_BESIDE_A_GOOD_ACCOUNT.len());
}

/// Whole files.
const WRONG: &[(&str, &[&str])] = &[
    ("", &["accounts"]),
    ("accounts = 3", &["accounts"]),
    ("[[accounts]]\napp_key = \"k\"", &["accounts"]),
    ("[accounts]\nmain = \"CANARYTOKEN0123456789\"", &["accounts.main"]),
    ("[accounts.a]\nenabled = false", &["accounts"]),
    ("[accounts.a]", &["accounts.a.app_key", "accounts.a.app_token"]),
    ("[accounts.a]\napp_key = \"\"\napp_token = \"\"", &["accounts.a.app_key", "accounts.a.app_token"]),
    ("[accounts.a]\napp_key = 12300\napp_token = 99.5", &["accounts.a.app_key", "accounts.a.app_token"]),
    ("[accounts.a]\napp_key = \"k\"\napp_token = [\"CANARYTOKEN0123456789\"]", &["accounts.a.app_token"]),
    ("[accounts.a]\napp_key = \"k\"\napp_token = {}", &["accounts.a.app_token"]),
    (
        "[accounts.a]\napp_key = \"k\"\napp_token = { file = \"DIR/token\", env = \"X\" }",
        &["accounts.a.app_token"],
    ),
    (
        "[accounts.a]\napp_key = \"k\"\napp_token = { value = \"CANARYTOKEN0123456789\" }",
        &["accounts.a.app_token.value"],
    ),
    ("[accounts.a]\napp_key = \"k\"\napp_token = { file = 3 }", &["accounts.a.app_token.file"]),
    ("[accounts.a]\napp_key = \"k\"\napp_token = { file = \"DIR/missing\" }", &["accounts.a.app_token"]),
    ("[accounts.a]\napp_key = \"k\"\napp_token = { file = \"DIR\" }", &["accounts.a.app_token"]),
    (
        "[accounts.a]\napp_key = \"k\"\napp_token = { credential = \"../token\" }",
        &["accounts.a.app_token.credential"],
    ),
    ("[accounts.a]\napp_key = \"k\"\napp_token = { credential = \"token\" }", &["accounts.a.app_token"]),
    ("[accounts.a]\napp_key = \"k\"\napp_token = { env = \"MISSING\" }", &["accounts.a.app_token"]),
    ("[accounts.a]\napp_key = \"k\"\napp_token = \"CANARYTOKEN0123456789 \"", &["accounts.a.app_token"]),
    (
        "[accounts.a]\napp_key = \"k\"\napp_token = \"CANARYTOKEN0123456789\\u0000\"",
        &["accounts.a.app_token"],
    ),
    ("[accounts.MyStore]\napp_key = \"k\"\napp_token = { file = \"DIR/token\" }", &["accounts.MyStore"]),
    ("[accounts.\"a\\nb\"]\napp_key = \"k\"\napp_token = { file = \"DIR/token\" }", &["accounts.a\nb"]),
    ("[accounts.a-]\napp_key = \"k\"\napp_token = { file = \"DIR/token\" }", &["accounts.a-"]),
    ("app_token = CANARYTOKEN0123456789", &[""]),
    ("[accounts.a]\napp_token = \"CANARYTOKEN0123456789", &[""]),
    ("[accounts.a]\napp_token = \"CANARYTOKEN0123456789\"\napp_token = \"CANARYTOKEN0123456789\"", &[""]),
    ("poll = ", &[""]),
];

/// With an account and a sink that are right.
const WRONG_BESIDE_A_GOOD_ACCOUNT: &[(&str, &[&str])] = &[
    ("[pol]\ninterval = \"30s\"", &["pol"]),
    ("[\"poll.interval\"]", &["poll.interval"]),
    ("[poll]\nintervall = \"30s\"", &["poll.intervall"]),
    ("poll = 5", &["sinks.orders.poll"]),
    ("[poll]\nbatch_size = 0", &["poll.batch_size"]),
    ("[poll]\nbatch_size = 11", &["poll.batch_size"]),
    ("[poll]\nbatch_size = 2.6", &["poll.batch_size"]),
    ("[poll]\nbatch_size = true", &["poll.batch_size"]),
    ("[poll]\nbatch_size = \"10\"", &["poll.batch_size"]),
    ("[poll]\nbatch_size = 99999999999999999999", &["poll.batch_size"]),
    ("[poll]\ndrain = \"yes\"", &["poll.drain"]),
    ("[poll]\ndrain = 1", &["poll.drain"]),
    ("[requests]\nper_second = 0", &["requests.per_second"]),
    ("[requests]\nper_second = -1.5", &["requests.per_second"]),
    ("[requests]\nper_second = 10000.1", &["requests.per_second"]),
    ("[requests]\nper_second = nan", &["requests.per_second"]),
    ("[requests]\nper_second = inf", &["requests.per_second"]),
    ("[requests]\nburst = 0", &["requests.burst"]),
    ("[requests]\nburst = 10001", &["requests.burst"]),
    ("[requests]\ntimeout = \"0s\"", &["requests.timeout"]),
    ("[requests]\ntimeout = 30", &["requests.timeout"]),
    ("[requests]\nconnect_timeout = \"2h\"", &["requests.connect_timeout"]),
    ("[requests]\nmax_body = 8388608", &["requests.max_body"]),
    ("[requests]\nmax_body = \"8MB\"", &["requests.max_body"]),
    ("[requests]\nmax_body = \"18446744073709551615GiB\"", &["requests.max_body"]),
    ("[requests]\nproxy = \"socks5://CANARYTOKEN0123456789@proxy\"", &["requests.proxy"]),
    ("[requests]\nproxy = true", &["requests.proxy"]),
    ("[requests]\nca_file = \"DIR/missing.pem\"", &["requests.ca_file"]),
    ("[requests]\nca_file = \"DIR/token\"", &["requests.ca_file"]),
    ("[accounts.my-store.poll]\ninterval = \"1s\"", &["accounts.my-store.poll.interval"]),
    ("[accounts.my-store.requests]\nbrust = 2", &["accounts.my-store.requests.brust"]),
    (
        "[accounts.b]\naccount = \"my-store\"\napp_key = \"vtexappkey-store-ABCDEF\"\napp_token = { file = \"DIR/token\" }",
        &["accounts.my-store.app_key"],
    ),
    (
        "[accounts.b]\naccount = \"a.example.com/x\"\napp_key = \"b\"\napp_token = { file = \"DIR/token\" }",
        &["accounts.b.account"],
    ),
    (
        "[accounts.b]\nbase_url = \"http://example.com\"\napp_key = \"b\"\napp_token = { file = \"DIR/token\" }",
        &["accounts.b.base_url"],
    ),
    (
        "[accounts.b]\nbase_url = \"http://127.0.0.1.example.com\"\napp_key = \"b\"\napp_token = { file = \"DIR/token\" }",
        &["accounts.b.base_url"],
    ),
    (
        "[accounts.b]\nbase_url = \"https://u:CANARYTOKEN0123456789@x.example\"\napp_key = \"b\"\napp_token = { file = \"DIR/token\" }",
        &["accounts.b.base_url"],
    ),
    (
        "[accounts.b]\nbase_url = \"https://x.example/?k=CANARYTOKEN0123456789\"\napp_key = \"b\"\napp_token = { file = \"DIR/token\" }",
        &["accounts.b.base_url"],
    ),
    (
        "[accounts.b]\nenabled = \"yes\"\napp_key = \"b\"\napp_token = { file = \"DIR/token\" }",
        &["accounts.b.enabled"],
    ),
    ("[journal]\npath = \"\"", &["journal.path"]),
    ("[journal]\npath = \"DIR/\"", &["journal.path"]),
    ("[journal]\npath = \"DIR/./orders.jsonl\"", &["sinks.orders.path"]),
    ("[journal]\npath = \"DIR/db\"\n[sinks.b]\ntype = \"file\"\npath = \"DIR/db-wal\"", &["sinks.b.path"]),
    ("[sinks.b]\npath = \"DIR/b\"", &["sinks.b.type"]),
    ("[sinks.b]\ntype = \"fiel\"\npath = \"DIR/b\"", &["sinks.b.type"]),
    ("[sinks.b]\ntype = \"file\"", &["sinks.b.path"]),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nmode = 600", &["sinks.b.mode"]),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nmode = \"0700\"", &["sinks.b.mode"]),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nmode = \"0066\"", &["sinks.b.mode"]),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nurl = \"x\"", &["sinks.b.url"]),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nrotate = \"weekly\"", &["sinks.b.rotate"]),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nmax_bytes = 1000000", &["sinks.b.max_bytes"]),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nmax_bytes = \"100B\"", &["sinks.b.max_bytes"]),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nmax_files = 3", &["sinks.b.max_files"]),
    (
        "[sinks.b]\ntype = \"file\"\npath = \"DIR/b\"\nrotate = \"daily\"\nmax_files = 0",
        &["sinks.b.max_files"],
    ),
    (
        "[sinks.b]\ntype = \"file\"\nrotate = \"never\"\nmax_files = 3\npath = \"DIR/b\"",
        &["sinks.b.max_files"],
    ),
    ("[sinks.b]\ntype = \"file\"\npath = \"DIR//orders.jsonl\"", &["sinks.orders.path"]),
    ("[sinks.b_c]\ntype = \"file\"\npath = \"DIR/b\"", &["sinks.b_c"]),
    ("[log]\nlevel = \"inffo\"", &["log.level"]),
    ("[log]\nlevel = \"info,order_feed_agent=loud\"", &["log.level"]),
    ("[log]\nlevel = \"\"", &["log.level"]),
    ("[log]\nformat = \"yaml\"", &["log.format"]),
    ("[log]\ndirectory = \"\"", &["log.directory"]),
    ("[log]\nrotation = \"weekly\"", &["log.rotation"]),
    ("[log]\nmax_files = 0", &["log.max_files"]),
    ("[shutdown]\ngrace = \"91s\"", &["shutdown.grace"]),
    ("[shutdown]\ngrace = \"-1s\"", &["shutdown.grace"]),
];

#[test]
fn every_key_refuses_a_list_and_a_date_and_says_what_it_wants() {
    let keys = super::example::keys_of_schema();
    assert!(20 < keys.len(), "{keys:?}");
    for key in keys {
        let key = key.replace("NAME", "my-store");
        for value in [format!("[[\"{CANARY}\"]]"), "1979-05-27".to_owned()] {
            let mut lines = BTreeMap::from([
                ("accounts.my-store.app_key", "\"key\""),
                ("accounts.my-store.app_token", "{ file = \"DIR/token\" }"),
                ("sinks.file.type", "\"file\""),
                ("sinks.file.path", "\"DIR/orders.jsonl\""),
                ("sinks.webhook.type", "\"webhook\""),
                ("sinks.webhook.url", "\"https://example.com\""),
                ("sinks.command.type", "\"command\""),
                ("sinks.command.program", "\"/bin/sh\""),
            ]);
            lines.insert(&key, &value);
            let text: String = lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            let errors = Case::new(&text).load().unwrap_err();
            let keys: Vec<&str> = errors.problems().iter().map(config::Problem::key).collect();
            assert_eq!(keys, [key.as_str()], "{errors}");
            assert!(errors.to_string().contains(&format!(": {key}: must be ")), "{errors}");
            assert!(!errors.to_string().contains(CANARY), "{errors}");
        }
    }
}

#[test]
fn every_table_refuses_what_is_no_table_and_says_how_one_is_written() {
    let mut tables: BTreeSet<String> = BTreeSet::new();
    for key in super::example::keys_of_schema() {
        let mut above = key.as_str();
        while let Some((table, _)) = above.rsplit_once('.') {
            tables.insert(table.replace("NAME", "my-store"));
            above = table;
        }
    }
    // Not of a source of a secret, which may also be text.
    tables.retain(|table| !table.ends_with("app_key") && !table.ends_with("app_token"));
    assert!(12 < tables.len(), "{tables:?}");
    for table in &tables {
        for value in ["[]", "[\"77s\", 3, false]", "[3]", "[{}]", "[[]]", "3", "\"77s\""] {
            let lines = [
                ("accounts.my-store.app_key", "\"key\""),
                ("accounts.my-store.app_token", "{ file = \"DIR/token\" }"),
                ("sinks.file.type", "\"file\""),
                ("sinks.file.path", "\"DIR/orders.jsonl\""),
                ("sinks.webhook.type", "\"webhook\""),
                ("sinks.webhook.url", "\"https://example.com\""),
                ("sinks.command.type", "\"command\""),
                ("sinks.command.program", "\"/bin/sh\""),
                (table.as_str(), value),
            ];
            let beside = |key: &&(&str, &str)| key.0 == table || !key.0.starts_with(&format!("{table}."));
            let lines = lines.iter().filter(beside).map(|(key, value)| format!("{key} = {value}\n"));
            let errors = Case::new(&lines.collect::<String>()).load().unwrap_err();
            let keys: Vec<&str> = errors.problems().iter().map(config::Problem::key).collect();
            assert_eq!(keys, [table.as_str()], "{value}: {errors}");
            let end = format!(": {table}: must be a table, written [{table}]");
            assert!(errors.to_string().ends_with(&end), "{value}: {errors}");
        }
    }
}

#[test]
fn a_sink_writes_into_no_file_that_the_agent_reads_or_writes_otherwise() {
    for (path, what) in [
        ("DIR/config.toml", "the configuration"),
        ("DIR/here/config.toml", "the configuration"),
        ("DIR/token", "accounts.my-store.app_token"),
        ("DIR/here/./token", "accounts.my-store.app_token"),
        ("DIR/ca.pem", "accounts.my-store.requests.ca_file"),
        ("DIR/signing", "sinks.hook.signing_secret"),
        ("DIR/header", "sinks.hook.headers"),
        ("DIR/hook-ca.pem", "sinks.hook.ca_file"),
        ("DIR/program-token", "sinks.program.env"),
        ("DIR/program", "sinks.program.program"),
        ("DIR/credentials/key", "accounts.off.app_key"),
        ("DIR/log/order-feed-agent.log", "log.directory"),
        ("DIR/log/order-feed-agent.2026-01-31-13.log", "log.directory"),
    ] {
        let text = minimal(&format!(
            "[sinks.b]\ntype = \"file\"\npath = \"{path}\"\n[requests]\nca_file = \"DIR/ca.pem\"\n[log]\n\
             directory = \"DIR/log\"\n[accounts.off]\nenabled = false\napp_key = {{ credential = \"key\" }}\n\
             [sinks.hook]\ntype = \"webhook\"\nurl = \"https://example.com\"\n\
             signing_secret = [{{ file = \"DIR/signing\" }}]\nheaders.x = {{ file = \"DIR/header\" }}\n\
             ca_file = \"DIR/hook-ca.pem\"\n[sinks.program]\ntype = \"command\"\nprogram = \"DIR/program\"\n\
             env.T = {{ file = \"DIR/program-token\" }}\n"
        ));
        let mut case = Case::new(&text);
        for name in ["ca.pem", "hook-ca.pem"] {
            fs::write(case.path(name), super::CA_PEM).unwrap();
        }
        case.secret("signing", super::SIGNING_SECRET.as_bytes());
        case.secret("header", b"x");
        case.secret("program-token", b"x");
        case.program("program");
        std::os::unix::fs::symlink(case.path(""), case.path("here")).unwrap();
        let credentials = case.path("credentials");
        case.set("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap());
        assert_refused(&case, &["sinks.b.path"]);
        let told = case.load().unwrap_err().to_string();
        assert!(told.contains(what), "{path}: {told}");
    }
    for path in ["DIR/order-feed-agent.log", "DIR/log/orders.log", "DIR/log/order-feed-agent.jsonl"] {
        let text = format!("[sinks.b]\ntype = \"file\"\npath = \"{path}\"\n[log]\ndirectory = \"DIR/log\"\n");
        Case::new(&minimal(&text)).load().unwrap();
    }
}

#[test]
fn the_journal_is_no_file_that_the_agent_reads_or_writes_otherwise() {
    for path in ["DIR/config.toml", "DIR/token", "DIR/log/order-feed-agent.log"] {
        let text = format!("[journal]\npath = \"{path}\"\n[log]\ndirectory = \"DIR/log\"\n");
        assert_refused(&Case::new(&minimal(&text)), &["journal.path"]);
    }
}

#[test]
fn two_sinks_cannot_share_a_file_through_a_link() {
    let case = Case::new(&minimal("[sinks.b]\ntype = \"file\"\npath = \"DIR/link/orders.jsonl\"\n"));
    std::os::unix::fs::symlink(case.path(""), case.path("link")).unwrap();
    assert_refused(&case, &["sinks.orders.path"]);
}

#[test]
fn a_file_that_is_no_text_is_refused_with_the_place() {
    let case = Case::new("");
    let file = case.path("config.toml");
    fs::write(&file, b"[poll]\ninterval = \"\xff\"\n").unwrap();
    let shown = file.display();
    assert_eq!(case.load().unwrap_err().to_string(), format!("{shown}:2:13: is not UTF-8 text"));
    fs::write(&file, vec![b'#'; 5 << 20]).unwrap();
    assert_eq!(case.load().unwrap_err().to_string(), format!("{shown}: is longer than 4194304 bytes"));
    fs::remove_file(&file).unwrap();
    assert!(
        case.load().unwrap_err().to_string().starts_with(&format!("{shown}: cannot be read: No such file"))
    );
}

#[test]
fn what_is_wrong_in_the_file_stays_wrong_under_a_variable() {
    let mut case = Case::new(&minimal("[poll]\ninterval = 5\n"));
    case.set("ORDER_FEED_AGENT__POLL__INTERVAL", "45s");
    assert_refused(&case, &["poll.interval"]);
}

#[test]
fn the_place_of_a_key_is_told_in_lines_and_characters_wherever_it_stands() {
    let wide = "é".repeat(3_000);
    let text =
        format!("# {wide}\r\n\n\"{wide}\" = 1\n[pol]\n[poll]\nx = {{ \"{wide}\" = 1, y = 2 }}\npoll = 3");
    let lines = Case::new(&text).load().unwrap_err().to_string();
    let file = "config.toml";
    for place in ["3:1", "4:2", "6:1", "7:1"] {
        assert!(lines.contains(&format!("{file}:{place}: ")), "{place}: {lines}");
    }
    let text = format!("\"{wide}\" = 1\nx = {{ a = \"{wide}\", poll = 3 }}\n");
    let case = Case::new(&format!("log = {{ \"{wide}\" = 1, levle = 2 }}\n{text}"));
    let lines = case.load().unwrap_err().to_string();
    assert!(lines.contains(&format!("{file}:1:3017: log.levle: ")), "{lines}");
}

#[test]
fn of_a_thousand_problems_a_hundred_are_told() {
    let text: String = (0..1_000).map(|n| format!("wrong{n} = 1\n")).collect();
    assert_eq!(Case::new(&text).load().unwrap_err().problems().len(), 100);
}

#[test]
fn a_reload_reads_regular_files_only_and_a_start_any_that_can_be_read() {
    let case = Case::new(&minimal(""));
    let (path, link) = (case.path("config.toml"), case.path("link"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for path in [&path, &link] {
        assert_eq!(config::load_regular(path, []), config::load(path, []));
        assert!(config::load_regular(path, []).is_ok());
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, &fs::read(&path).unwrap()).unwrap();
    drop(writer);
    // What a shell makes of `-c <(…)`.
    let pipe = PathBuf::from(format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader)));
    let refused = |path: &std::path::Path| config::load_regular(path, []).unwrap_err().to_string();
    for path in [&pipe, &PathBuf::from("/dev/zero"), &case.path("")] {
        assert_eq!(refused(path), format!("{}: is not a regular file", path.display()));
    }
    assert!(config::load(&pipe, []).is_ok());
    assert!(
        config::load(std::path::Path::new("/dev/zero"), []).unwrap_err().to_string().contains("longer than")
    );
}

proptest! {
    #[test]
    fn any_text_ends_in_one_line_for_each_problem(text in "(\\[|\\]|=|\"|'|\n|\r|\\.|\\{|\\}|#|,|accounts|poll|interval|a|1|\\PC){0,40}") {
        if let Err(errors) = Case::new(&text).load() {
            let n_lines = errors.to_string().lines().count();
            prop_assert!(0 < n_lines && n_lines == errors.problems().len(), "{}", errors);
        }
    }
}

pub(super) fn assert_refused(case: &Case, keys: &[&str]) {
    let Err(errors) = case.load() else {
        panic!("accepted: {}", fs::read_to_string(case.path("config.toml")).unwrap())
    };
    let found: Vec<&str> = errors.problems().iter().map(config::Problem::key).collect();
    assert_eq!(found, keys, "{errors}");
    let text = errors.to_string();
    assert_eq!(text.lines().count(), keys.len(), "one line each: {text}");
    for line in text.lines() {
        assert!(line.starts_with(case.path("config.toml").to_str().unwrap()), "{line}");
    }
    assert!(!format!("{text}{errors:?}").contains(CANARY), "{text}");
}
