//! The command `check`.

use order_feed_agent::cli::check::{Options, Verdict, check};

use super::{CANARY, Case, KEY, fs, minimal};

#[test]
fn a_good_configuration_is_ok_and_nothing_is_made() {
    let case = Case::new(&minimal("[log]\ndirectory = \"DIR/log\"\n[journal]\npath = \"DIR/journal.db\"\n"));
    let before = names(&case);
    assert_eq!(
        run(&case, Options::Validate),
        (Verdict::Accepted, "configuration ok\n".into(), String::new())
    );
    assert_eq!(names(&case), before);
}

#[test]
fn problems_and_warnings_are_told_in_one_line_each() {
    let case = Case::new(&minimal("[poll]\ninterval = \"6s\"\nbatch_size = 0\n[log]\nlevl = \"info\"\n"));
    let (verdict, out, err) = run(&case, Options::Validate);
    assert_eq!((verdict, out.as_str()), (Verdict::Refused, ""));
    let starts: Vec<&str> = err.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(starts, ["error:", "error:", "warning:"], "{err}");
    assert_eq!(err.lines().next(), Some(&*format!("error: {}", case.load().unwrap_err().problems()[0])));
}

#[test]
fn what_only_the_unit_can_see_is_a_warning_for_check_and_refused_by_run() {
    for source in ["{ credential = \"app-token\" }", "{ env = \"UNITS_TOKEN\" }"] {
        let case = Case::new(&minimal("").replace("{ file = \"DIR/token\" }", source));
        let (verdict, _, err) = run(&case, Options::Validate);
        assert_eq!(verdict, Verdict::Accepted);
        assert!(
            err.starts_with("warning: ") && err.contains(":3:1: accounts.my-store.app_token: not checked: "),
            "{err}"
        );
        assert_eq!(case.load().unwrap_err().problems()[0].key(), "accounts.my-store.app_token");
    }
}

#[test]
fn print_tells_every_value_with_its_source_and_no_secret() {
    let text = minimal(
        "[poll]\ninterval = \"1m\"\n[accounts.b]\napp_key = \"0012300\"\napp_token = \"CANARYTOKEN0123456789\"\n",
    );
    let mut case = Case::new(&text);
    case.set("ORDER_FEED_AGENT__POLL__BATCH_SIZE", "7");
    case.set("ORDER_FEED_AGENT__ACCOUNTS__B__POLL__INTERVAL", "2m");
    let (verdict, out, _) = run(&case, Options::Print);
    assert_eq!(verdict, Verdict::Accepted);
    let file = case.path("config.toml").display().to_string();
    let token = format!("*** (file {})", case.path("token").display());
    for (key, value, from) in [
        ("poll.interval", "1m", &*format!("{file}:9:1")),
        ("poll.batch_size", "7", "ORDER_FEED_AGENT__POLL__BATCH_SIZE"),
        ("poll.drain", "true", "default"),
        ("accounts.my-store.poll.interval", "1m", &format!("{file}:9:1")),
        ("accounts.b.poll.interval", "2m", "ORDER_FEED_AGENT__ACCOUNTS__B__POLL__INTERVAL"),
        ("accounts.b.poll.batch_size", "7", "ORDER_FEED_AGENT__POLL__BATCH_SIZE"),
        ("accounts.b.base_url", "https://b.vtexcommercestable.com.br", "default"),
        ("accounts.b.app_key", "***", &format!("{file}:11:1")),
        ("accounts.b.app_token", "***", &format!("{file}:12:1")),
        ("accounts.my-store.app_token", &token, &format!("{file}:3:1")),
        ("requests.per_second", "10", "default"),
        ("sinks.orders.type", "file", &format!("{file}:5:1")),
        ("sinks.orders.mode", "0600", "default"),
    ] {
        let line = out
            .lines()
            .find(|line| line.split_whitespace().next() == Some(key))
            .unwrap_or_else(|| panic!("{key}: {out}"));
        assert!(line.ends_with(&format!("  {from}")), "{line}");
        assert_eq!(line.trim_start_matches(key).trim_end_matches(from).trim(), value, "{line}");
    }
    for secret in [CANARY, KEY, "0012300"] {
        assert!(!out.contains(secret), "{out}");
    }
}

#[test]
fn print_needs_no_secret_and_refuses_what_check_refuses() {
    let case = Case::new(&minimal(""));
    fs::remove_file(case.path("token")).unwrap();
    assert_eq!(run(&case, Options::Print).0, Verdict::Accepted);
    assert_eq!(run(&case, Options::Validate).0, Verdict::Refused);
    assert_eq!(run(&Case::new(&minimal("[poll]\nbatch_size = 0\n")), Options::Print).0, Verdict::Refused);
}

fn run(case: &Case, options: Options) -> (Verdict, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let verdict =
        check(&case.path("config.toml"), case.variables.clone(), options, &mut out, &mut err).unwrap();
    (verdict, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn names(case: &Case) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(case.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
