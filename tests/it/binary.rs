//! The binary: exit codes, signals, and what a crash at any moment leaves behind.

use std::collections::BTreeSet;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use order_feed_agent::sandbox::Options;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::support::agent::{Agent, BINARY, PATIENCE, Workplace};
use crate::support::raw_server::{self, Script};
use crate::support::witness::{self, Testimony};
use crate::support::{TOKEN, sandbox};

async fn output(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).env_remove("ORDER_FEED_AGENT_CONFIG").output().await.unwrap()
}

#[tokio::test]
async fn wrong_usage_ends_with_64_and_help_with_0() {
    for arguments in [&["fly"][..], &[], &["demo", "--count", "0"], &["run", "--nothing"]] {
        assert_eq!(output(arguments).await.status.code(), Some(64), "{arguments:?}");
    }
    for arguments in [["--help"], ["--version"], ["help"]] {
        assert_eq!(output(&arguments).await.status.code(), Some(0), "{arguments:?}");
    }
}

#[tokio::test]
async fn an_empty_variable_for_the_configuration_is_none_and_an_empty_option_is_wrong() {
    let mut command = Command::new(BINARY);
    let output = command.arg("check").env("ORDER_FEED_AGENT_CONFIG", "").output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_ne!(output.status.code(), Some(64), "{stderr}");
    assert!(stderr.contains("/etc/order-feed-agent/config.toml"), "{stderr}");
    let place = Workplace::new("http://127.0.0.1:9", "");
    let output = Command::new(BINARY).arg("check").env("ORDER_FEED_AGENT_CONFIG", place.config()).output();
    assert_eq!(output.await.unwrap().status.code(), Some(0));
    for arguments in [["check", "-c", ""], ["check", "--config", ""]] {
        assert_eq!(self::output(&arguments).await.status.code(), Some(64));
    }
}

#[tokio::test]
async fn a_reader_that_went_away_is_no_error() {
    let unread = || std::io::pipe().unwrap().1;
    let good = Workplace::new("http://127.0.0.1:9", "");
    let (config, faulty) = (good.config(), Workplace::new("http://127.0.0.1:9", "[pol]\n"));
    let config = config.to_str().unwrap();
    for arguments in [
        &["check", "--schema"][..],
        &["check", "--print", "-c", config],
        &["check", "-c", config],
        &["demo", "--count", "3"],
        &["demo"],
    ] {
        let mut command = Command::new(BINARY);
        let command = command.args(arguments).stdout(unread()).stderr(std::process::Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("error: "), "{arguments:?}: {stderr}");
    }
    let mut command = Command::new(BINARY);
    let refused = command.args(["check", "-c"]).arg(faulty.config()).stderr(unread()).status();
    assert_eq!(refused.await.unwrap().code(), Some(78));

    let mut command = Command::new(BINARY);
    let command = command.args(["sandbox", "--listen", "127.0.0.1:0"]).stdout(unread());
    let mut sandbox = command.kill_on_drop(true).spawn().unwrap();
    let ended = tokio::time::timeout(Duration::from_millis(500), sandbox.wait()).await;
    assert!(ended.is_err(), "it serves on: {ended:?}");
}

#[tokio::test]
async fn a_fault_file_that_is_no_regular_file_or_too_long_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("long.toml");
    std::fs::write(&long, "#".repeat((1 << 20) + 1)).unwrap();
    let whole = directory.path().join("whole.toml");
    std::fs::write(&whole, b"a = '\xff'").unwrap();
    for (path, why) in [
        ("/dev/zero", "is not a regular file"),
        (directory.path().to_str().unwrap(), "is not a regular file"),
        (long.to_str().unwrap(), "is longer than 1048576 bytes"),
        (whole.to_str().unwrap(), "is not UTF-8 text"),
        ("/nowhere", "cannot be read"),
    ] {
        let output = output(&["sandbox", "--listen", "127.0.0.1:0", "--faults", path]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{stderr}");
        assert!(stderr.starts_with(&format!("error: {path}")) && stderr.contains(why), "{stderr}");
    }
}

#[tokio::test]
async fn an_interval_that_is_refused_ends_with_78_and_one_line() {
    for value in ["\"4s\"", "\"4.999s\"", "5", "\"soon\"", "\"-30s\""] {
        let place = Workplace::new("http://127.0.0.1:9", &format!("[poll]\ninterval = {value}\n"));
        for command in ["run", "check"] {
            let config = place.config();
            let output = output(&[command, "-c", config.to_str().unwrap()]).await;
            let stderr = String::from_utf8(output.stderr).unwrap();
            let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
            assert_eq!((output.status.code(), errors.len()), (Some(78), 1), "{value}: {stderr}");
            let error = errors[0];
            assert!(
                error.contains("poll.interval") && error.contains("config.toml:") && error.contains("5s"),
                "{error}"
            );
            assert!(!place.journal().try_exists().unwrap(), "a refused configuration touches nothing");
        }
    }
    let place = Workplace::new("http://127.0.0.1:9", "[poll]\ninterval = \"5s\"\n");
    assert_eq!(output(&["check", "-c", place.config().to_str().unwrap()]).await.status.code(), Some(0));
    assert!(!place.journal().try_exists().unwrap(), "check touches nothing");
}

#[tokio::test]
async fn a_journal_that_cannot_be_used_ends_with_1_and_names_its_path() {
    let place = Workplace::new("http://127.0.0.1:9", "");
    std::fs::write(place.journal(), "somebody's notes\n".repeat(300)).unwrap();
    let (status, _, stderr) = place.start().end().await;
    assert_eq!(status.code(), Some(1));
    assert!(stderr.starts_with("error: journal ") && stderr.contains("journal.db"), "{stderr}");
    assert_eq!(std::fs::read_to_string(place.journal()).unwrap(), "somebody's notes\n".repeat(300));
}

#[tokio::test]
async fn a_second_agent_refuses_and_says_who_holds_the_journal() {
    let (_sandbox, address) = sandbox(Options::default()).await;
    let place = Workplace::new(&format!("http://{address}"), "");
    let mut first = place.start();
    first.wait_for("agent.ready", |_| true).await;
    let (status, _, stderr) = place.start().end().await;
    assert_eq!(status.code(), Some(1));
    assert!(stderr.contains("in use by another agent (process "), "{stderr}");
}

#[tokio::test]
async fn sigterm_while_waiting_ends_at_once_with_0() {
    let (_sandbox, address) = sandbox(Options::default()).await;
    let place = Workplace::new(&format!("http://{address}"), "");
    for signal in [Signal::TERM, Signal::INT] {
        let mut agent = place.start();
        agent.wait_for("poll.completed", |_| true).await;
        let asked = Instant::now();
        agent.signal(signal);
        let (status, lines, stderr) = agent.end().await;
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
        assert!(asked.elapsed() < Duration::from_secs(25), "it did not wait for the interval");
        let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!(last["event"], "shutdown.completed");
    }
}

#[tokio::test]
async fn sigterm_inside_a_drain_journals_and_commits_the_batch_in_hand() {
    let (sandbox, address) = sandbox(Options { count: 5_000, ..Options::default() }).await;
    let place = Workplace::new(&format!("http://{address}"), "[requests]\nper_second = 50\n");
    let mut agent = place.start();
    agent.wait_for("commit.completed", |_| true).await;
    agent.signal(Signal::TERM);
    let (status, _, _) = agent.end().await;
    let ledger = sandbox.ledger();
    assert_eq!(status.code(), Some(0));
    assert!(ledger.received < 5_000, "the drain was not over");
    assert_eq!(ledger.committed, ledger.received);
    assert_eq!(place.envelopes().len() as u64, ledger.committed, "and delivered");
}

#[tokio::test]
async fn a_second_signal_ends_at_once_with_1() {
    let address = raw_server::serve(Script::Hang).await;
    let place = Workplace::new(&format!("http://{address}"), "");
    let mut agent = place.start();
    agent.wait_for("agent.ready", |_| true).await;
    sleep(Duration::from_millis(200)).await;
    agent.signal(Signal::TERM);
    agent.wait_for("shutdown.started", |_| true).await;
    // Sooner it would be taken for the same wish.
    sleep(Duration::from_secs(1)).await;
    agent.signal(Signal::TERM);
    let (status, lines, stderr) = agent.end().await;
    assert_eq!(status.code(), Some(1));
    assert!(stderr.contains("second signal"), "{stderr}");
    assert!(lines.last().unwrap().contains("shutdown.completed"), "{lines:?}");
}

#[tokio::test]
async fn a_grace_period_that_runs_out_ends_with_1() {
    let address = raw_server::serve(Script::Hang).await;
    let place = Workplace::new(&format!("http://{address}"), "[shutdown]\ngrace = \"1s\"\n");
    let mut agent = place.start();
    agent.wait_for("agent.ready", |_| true).await;
    sleep(Duration::from_millis(200)).await;
    agent.signal(Signal::TERM);
    let (status, _, stderr) = agent.end().await;
    assert_eq!(status.code(), Some(1));
    assert!(stderr.contains("grace period"), "{stderr}");
}

#[tokio::test]
async fn ten_thousand_waiting_events_are_drained_by_one_poll() {
    let (sandbox, address) = sandbox(Options { count: 10_000, ..Options::default() }).await;
    let place = Workplace::new(
        &format!("http://{address}"),
        "[poll]\ninterval = \"30s\"\n[requests]\nper_second = 10000\nburst = 100\n",
    );
    let mut agent = place.start();
    let poll = agent.wait_for("poll.completed", |_| true).await;
    assert_eq!(
        (&poll["received"], &poll["committed"], &poll["journaled"]),
        (&10_000.into(), &10_000.into(), &10_000.into())
    );
    agent.signal(Signal::TERM);
    let (status, _, _) = agent.end().await;
    assert_eq!((status.code(), sandbox.ledger().waiting), (Some(0), 0));
    assert_eq!(place.envelopes().len(), 10_000);
}

#[tokio::test]
async fn token_and_handles_are_seen_nowhere() {
    let (sandbox, address) = sandbox(Options { count: 30, ..Options::default() }).await;
    let place = Workplace::new(&format!("http://{address}"), "[log]\nlevel = \"trace\"\n");
    let mut agent = place.start();
    agent.wait_for("poll.completed", |_| true).await;
    agent.signal(Signal::TERM);
    let (_, lines, stderr) = agent.end().await;
    assert_eq!(sandbox.ledger().committed, 30);

    let mut places = vec![("stdout", lines.join("\n").into_bytes()), ("stderr", stderr.into_bytes())];
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        if path != place.config() {
            places.push(("a file", std::fs::read(path).unwrap()));
        }
    }
    // Every handle of the sandbox begins with the head of its JWT.
    for secret in [TOKEN, "eyJhbGciOi"] {
        for (name, bytes) in &places {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} in {name}");
        }
    }
}

/// 2,000 events flow while the agent is killed at random moments; the seed is printed by the failing assertion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_thirty_moments_it_loses_nothing_and_writes_nothing_twice() {
    let seed: u64 = rand::random();
    let mut rng = StdRng::seed_from_u64(seed);
    let options = Options { count: 2_000, visibility: Duration::from_secs(1), ..Options::default() };
    let (sandbox, address) = sandbox(options).await;
    let testimony = Arc::new(Mutex::new(Testimony::default()));
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal.db");
    let front = witness::serve(address, journal.clone(), Arc::clone(&testimony)).await;
    let place = Workplace::new(
        &format!("http://{front}"),
        "[poll]\ninterval = \"5s\"\n[requests]\nper_second = 150\n",
    );
    // The witness must know the journal before the agent does.
    let text = std::fs::read_to_string(place.config()).unwrap();
    let text = text.replace(&format!("{:?}", place.journal()), &format!("{journal:?}"));
    std::fs::write(place.config(), text).unwrap();

    for _ in 0..30 {
        let mut agent = place.start();
        agent.wait_for("agent.ready", |_| true).await;
        sleep(Duration::from_millis(rng.random_range(0..150))).await;
        agent.signal(Signal::KILL);
        agent.end().await;
    }
    let killed_at = sandbox.ledger().committed;
    assert!(0 < killed_at && killed_at < 2_000, "seed {seed}: {killed_at} committed when the killing ended");

    let mut agent = place.start();
    let deadline = Instant::now() + PATIENCE;
    while 0 < sandbox.ledger().waiting {
        assert!(Instant::now() < deadline, "seed {seed}: {} wait", sandbox.ledger().waiting);
        agent.wait_for("poll.completed", |_| true).await;
    }
    agent.signal(Signal::TERM);
    agent.end().await;

    let envelopes = place.envelopes();
    let ids: BTreeSet<&str> = envelopes.iter().map(|envelope| envelope["id"].as_str().unwrap()).collect();
    assert_eq!((envelopes.len(), ids.len()), (2_000, 2_000), "seed {seed}");
    let testimony = testimony.lock().unwrap();
    assert!(
        testimony.unjournaled.is_empty(),
        "seed {seed}: committed before journaled: {:?}",
        testimony.unjournaled
    );
    assert!(2_000 <= testimony.n_handles, "seed {seed}");
}

#[tokio::test]
async fn a_demo_ends_by_itself_and_counts_nothing_lost() {
    let output = output(&["demo", "--count", "30"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("30 delivered, 30 committed, 0 lost, 0 twice"), "{text}");
}

#[tokio::test]
async fn a_sandbox_says_where_it_listens_and_stops_on_sigterm() {
    let mut command = Command::new(BINARY);
    let sandbox = Agent::start(command.args(["sandbox", "--listen", "127.0.0.1:0"]));
    sleep(Duration::from_millis(500)).await;
    sandbox.signal(Signal::TERM);
    let (status, lines, _) = sandbox.end().await;
    assert_eq!(status.code(), Some(0));
    assert!(lines[0].starts_with("sandbox ready on http://127.0.0.1:"), "{lines:?}");
}

#[tokio::test]
async fn systemd_is_told_ready_and_stopping() {
    let (_sandbox, address) = sandbox(Options::default()).await;
    let place = Workplace::new(&format!("http://{address}"), "");
    let socket = tokio::net::UnixDatagram::bind(place.path().join("notify")).unwrap();
    let mut command = Command::new(BINARY);
    command.arg("run").arg("-c").arg(place.config()).env("NOTIFY_SOCKET", place.path().join("notify"));
    let mut agent = Agent::start(&mut command);
    agent.wait_for("poll.completed", |_| true).await;
    agent.signal(Signal::TERM);
    agent.end().await;
    let mut told = String::new();
    let mut datagram = [0; 4096];
    while let Ok(n_bytes) = socket.try_recv(&mut datagram) {
        told.push_str(&String::from_utf8_lossy(&datagram[..n_bytes]));
        told.push('\n');
    }
    let ready = told.find("READY=1").unwrap();
    assert!(told[ready..].contains("STOPPING=1"), "{told}");
}
