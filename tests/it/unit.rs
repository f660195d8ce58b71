//! The unit file and what comes with it, judged by systemd's own tools. `tests/systemd/run` starts it for real.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

#[test]
fn the_unit_verifies_without_a_word() {
    let units = units("");
    let Some(output) = systemd(Command::new("systemd-analyze").args(VERIFY).arg(unit(&units))) else {
        return;
    };
    assert_silent_success(&output);
}

#[test]
fn the_unit_is_exposed_at_most_1_2() {
    let units = units("");
    let judge = ["security", "--offline=true", "--threshold=12", "--no-pager"];
    let Some(output) = systemd(Command::new("systemd-analyze").args(judge).arg(unit(&units))) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_drop_in_verifies_with_every_line_taken() {
    let example = fs::read_to_string(source("order-feed-agent.service.d/sinks.conf.example")).unwrap();
    let taken: Vec<String> = example.lines().map(take).collect();
    assert!(6 < taken.iter().filter(|line| line.contains('=') && !line.starts_with('#')).count());
    let units = units(&taken.join("\n"));
    let Some(output) = systemd(Command::new("systemd-analyze").args(VERIFY).arg(unit(&units))) else {
        return;
    };
    assert_silent_success(&output);
}

#[test]
fn the_user_of_the_unit_is_the_one_that_is_made() {
    let users = fs::read_to_string(source("order-feed-agent.sysusers.conf")).unwrap();
    let service = fs::read_to_string(source("order-feed-agent.service")).unwrap();
    assert!(users.lines().any(|line| line.starts_with("u order-feed-agent ")), "{users}");
    assert!(service.lines().any(|line| line == "User=order-feed-agent"), "{service}");
    let dry_run = source("order-feed-agent.sysusers.conf");
    let Some(output) = systemd(Command::new("systemd-sysusers").arg("--dry-run").arg(dry_run)) else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A key that systemd does not know is only a word on stderr, so that silence is part of the success.
const VERIFY: [&str; 3] = ["verify", "--man=no", "--recursive-errors=no"];

/// The output of one of systemd's tools; `None`, said on stderr, where there is no systemd.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn systemd(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{command:?} is needed to judge the unit");
            eprintln!("skipped: {command:?} is not installed");
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// A directory with the unit, this binary in the place of the agent, and a drop-in.
fn units(drop_in: &str) -> TempDir {
    let units = tempfile::tempdir().unwrap();
    let agent = std::env::current_exe().unwrap();
    let service = fs::read_to_string(source("order-feed-agent.service")).unwrap();
    assert!(service.contains("ExecStart=/usr/bin/order-feed-agent run\n"));
    let service = service.replace("/usr/bin/order-feed-agent", agent.to_str().unwrap());
    fs::write(unit(&units), service).unwrap();
    let drop_ins = units.path().join("order-feed-agent.service.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::write(drop_ins.join("sinks.conf"), drop_in).unwrap();
    units
}

fn unit(units: &TempDir) -> PathBuf {
    units.path().join("order-feed-agent.service")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

/// `#Key=value` with the `#` taken away; other comments stay.
fn take(line: &str) -> String {
    let is_setting = line.strip_prefix('#').is_some_and(|rest| rest.starts_with(char::is_uppercase));
    line[usize::from(is_setting)..].to_owned()
}

fn assert_silent_success(output: &Output) {
    let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.0.is_empty() && said.1.is_empty(), "{said:#?}");
}
