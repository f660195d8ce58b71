//! The command sink.

use super::refused::assert_refused;
use super::{CANARY, Case, Duration, Loaded, PathBuf, SinkKind, config, fs, minimal};
use super::{OsString, PermissionsExt};

/// A command in the place of the sink; `more` are further keys of it.
fn command(more: &str) -> String {
    minimal("").replace(
        "type = \"file\"\npath = \"DIR/orders.jsonl\"\n",
        &format!("type = \"command\"\nprogram = \"DIR/program\"\n{more}"),
    )
}

fn case(text: &str) -> Case {
    let case = Case::new(text);
    case.program("program");
    case.secret("api-token", b"CANARYTOKEN0123456789 and more\nlines\n");
    case
}

fn loaded(case: &Case) -> (config::Command, Vec<String>) {
    let Loaded { mut config, warnings } = case.load().unwrap_or_else(|errors| panic!("{errors}"));
    let SinkKind::Command(command) = config.sinks.remove(0).kind else { panic!("no command") };
    (command, warnings.iter().map(|warning| warning.key().to_owned()).collect())
}

fn env(command: &config::Command) -> Vec<(&str, &str)> {
    command.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect()
}

#[test]
fn a_command_needs_its_program_and_the_rest_is_as_documented() {
    let case = case(&command(""));
    let limits = config::Limits { max_attempts: 20, timeout: Duration::from_secs(30), concurrency: 4 };
    let expected = config::Command {
        program: case.path("program"),
        args: vec![],
        env: vec![],
        working_directory: PathBuf::from("/"),
        limits,
    };
    assert_eq!(loaded(&case), (expected, vec![]));
}

#[test]
fn everything_about_a_command_that_can_be_said_is_heard() {
    let case = case(&command(
        "args = [\"-v\", \"\", \"$(reboot); é\\n\"]\nenv = { API_TOKEN = { file = \"DIR/api-token\" }, region = \"sul e norte\" }\n\
         working_directory = \"DIR/\"\nmax_attempts = 3\ntimeout = \"1h\"\nconcurrency = 32\nstates = [\"handling\"]\n",
    ));
    let (command, warnings) = loaded(&case);
    assert_eq!(command.args, ["-v", "", "$(reboot); é\n"]);
    assert_eq!(
        env(&command),
        [("API_TOKEN", "CANARYTOKEN0123456789 and more\nlines"), ("region", "sul e norte")]
    );
    assert_eq!(command.working_directory, case.path(""));
    let limits = config::Limits { max_attempts: 3, timeout: Duration::from_secs(3600), concurrency: 32 };
    assert_eq!((command.limits, warnings), (limits, vec![]));
    assert_eq!(loaded(&self::case(&self::command("args = []\n"))).0.args, [""; 0]);
}

#[test]
fn a_command_is_configured_from_the_environment_and_names_of_variables_keep_their_case() {
    let mut case = case(&command("env.API_TOKEN = \"old\"\n"));
    case.set("ORDER_FEED_AGENT__SINKS__ORDERS__ARGS", "-a, b");
    case.set("ORDER_FEED_AGENT__SINKS__ORDERS__ENV__API_TOKEN", "new");
    case.set("ORDER_FEED_AGENT__SINKS__ORDERS__ENV__lower_Case__ENV", "GIVEN");
    case.variables.push(("GIVEN".into(), OsString::from("a b")));
    let (command, _) = loaded(&case);
    assert_eq!(command.args, ["-a", "b"]);
    assert_eq!(env(&command), [("API_TOKEN", "new"), ("lower_Case", "a b")]);
}

#[test]
fn a_command_that_is_wrong_is_refused_with_its_key_and_without_its_values() {
    for (more, wrong) in [
        ("program = 3", "program"),
        ("program = \"\"", "program"),
        ("program = \"program\"", "program"),
        ("program = \"./program\"", "program"),
        ("program = \"DIR/program --CANARYTOKEN0123456789\"", "program"),
        ("program = \"DIR/\"", "program"),
        ("program = \"DIR\"", "program"),
        ("program = \"DIR/missing\"", "program"),
        ("program = \"DIR/token\"", "program"),
        ("program = \"DIR/token/program\"", "program"),
        ("program = \"/dev/null\"", "program"),
        ("args = \"-v\"", "args"),
        ("args = [3]", "args"),
        ("args = [\"CANARYTOKEN0123456789\\u0000\"]", "args"),
        ("env = \"PATH\"", "env"),
        ("env = [\"A=CANARYTOKEN0123456789\"]", "env"),
        ("env.A = 3", "env.A"),
        ("env.A = \"\"", "env.A"),
        ("env.A = \"CANARYTOKEN0123456789\\u0000\"", "env.A"),
        ("env.A = { file = \"DIR/missing\" }", "env.A"),
        ("env.A = { env = \"MISSING\" }", "env.A"),
        ("env.\"\" = \"x\"", "env."),
        ("env.\"A=B\" = \"x\"", "env.A=B"),
        ("env.A-B = \"x\"", "env.A-B"),
        ("env.1A = \"x\"", "env.1A"),
        ("env.\"é\" = \"x\"", "env.é"),
        ("env.ORDER_FEED_ID = \"x\"", "env.ORDER_FEED_ID"),
        ("env.ORDER_FEED_OF_TOMORROW = \"x\"", "env.ORDER_FEED_OF_TOMORROW"),
        ("working_directory = \"\"", "working_directory"),
        ("working_directory = \".\"", "working_directory"),
        ("working_directory = \"DIR/missing\"", "working_directory"),
        ("working_directory = \"DIR/token\"", "working_directory"),
        ("max_attempts = 0", "max_attempts"),
        ("timeout = \"999ms\"", "timeout"),
        ("concurrency = 33", "concurrency"),
        ("shell = true", "shell"),
        ("url = \"https://example.com\"", "url"),
        ("states = []", "states"),
        ("accounts = [\"CANARYTOKEN0123456789\"]", "accounts"),
    ] {
        let text = if more.starts_with("program") {
            command("").replace("program = \"DIR/program\"", more)
        } else {
            command(&format!("{more}\n"))
        };
        let case = case(&text);
        if more.contains("CANARY") && more.starts_with("program") {
            // The path of a program is no secret: the error names it.
            let errors = case.load().unwrap_err();
            assert_eq!((errors.problems().len(), errors.problems()[0].key()), (1, "sinks.orders.program"));
            continue;
        }
        assert_refused(&case, &[&format!("sinks.orders.{wrong}")]);
    }
    assert_refused(&case(&command("").replace("program = \"DIR/program\"\n", "")), &["sinks.orders.program"]);
}

#[test]
fn a_program_that_is_missing_is_named_and_all_that_is_wrong_is_told_at_once() {
    let more = "working_directory = \"DIR/nowhere\"\nenv.A-B = \"x\"\nenv.ORDER_FEED_ID = \"x\"\n";
    let case = Case::new(&command(more));
    let keys = ["program", "working_directory", "env.A-B", "env.ORDER_FEED_ID"];
    assert_refused(&case, &keys.map(|key| format!("sinks.orders.{key}")).each_ref().map(String::as_str));
    let errors = case.load().unwrap_err().to_string();
    let expected = format!(
        "sinks.orders.program: {} cannot be run: No such file or directory (os error 2)",
        case.path("program").display()
    );
    assert!(errors.lines().next().unwrap().ends_with(&expected), "{errors}");
    assert!(errors.contains(&format!("{} cannot be entered", case.path("nowhere").display())), "{errors}");

    fs::write(case.path("program"), "").unwrap();
    fs::set_permissions(case.path("program"), fs::Permissions::from_mode(0o644)).unwrap();
    let errors = case.load().unwrap_err().to_string();
    assert!(errors.lines().next().unwrap().contains("chmod 0755"), "{errors}");
}

#[test]
fn the_agents_own_settings_may_be_given_to_a_program() {
    let (command, _) =
        loaded(&case(&command("env.ORDER_FEED_AGENT_CONFIG = \"/etc/x.toml\"\nenv.PATH = \"/opt\"\n")));
    assert_eq!(env(&command), [("ORDER_FEED_AGENT_CONFIG", "/etc/x.toml"), ("PATH", "/opt")]);
}

#[test]
fn nothing_secret_of_a_command_is_shown() {
    let case = case(&command(
        "args = [\"-v\"]\nenv.A = { file = \"DIR/api-token\" }\nenv.B = \"CANARYTOKEN0123456789\"\n",
    ));
    let shown = format!("{:#?}", case.load().unwrap().config);
    assert!(!shown.contains(CANARY), "{shown}");
    let settings = config::settings(&case.path("config.toml"), []).unwrap().settings;
    let shown =
        |key: &str| settings.iter().find(|setting| setting.key == key).map(|setting| setting.value.as_str());
    assert_eq!(shown("sinks.orders.program"), case.path("program").to_str());
    assert_eq!(shown("sinks.orders.args"), Some("[\"-v\"]"));
    assert_eq!(shown("sinks.orders.env.B"), Some("***"));
    assert_eq!(shown("sinks.orders.working_directory"), Some("/"));
    assert!(settings.iter().all(|setting| !setting.value.contains(CANARY)), "{settings:?}");
}

#[test]
fn a_reload_notices_another_secret_of_a_program() {
    let case = case(&command("env.A = { file = \"DIR/api-token\" }\n"));
    let before = case.load().unwrap().config;
    assert_eq!(case.load().unwrap().config, before);
    case.secret("api-token", b"another");
    assert_ne!(case.load().unwrap().config, before);
}
