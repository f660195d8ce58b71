//! The binary as a service: reload, its logs on disks that fail, secrets, and what it can be made to print.

use std::process::Stdio;
use std::time::Duration;

use order_feed_agent::sandbox::{Options, Sandbox};
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::support::agent::{Agent, BINARY, PATIENCE, Workplace};
use crate::support::{TOKEN, sandbox};

/// Gives `poll.interval` another value: the one of the text as it was written first was `"3600s"`.
fn set_interval(place: &Workplace, text: &str, interval: &str) {
    std::fs::write(place.config(), text.replacen("\"3600s\"", interval, 1)).unwrap();
}

#[tokio::test]
async fn ten_broken_files_change_nothing_and_a_good_one_is_taken() {
    let (_sandbox, address) = sandbox(Options { count: 20, ..Options::default() }).await;
    let place = Workplace::new(&format!("http://{address}"), "[poll]\ninterval = \"3600s\"\n");
    let mut agent = place.start();
    let text = std::fs::read_to_string(place.config()).unwrap();
    agent.wait_for("poll.completed", |poll| poll["next_poll_ms"] == 3_600_000).await;
    for broken in
        ["soon", "\"4s\"", "", "\"1s", "5", "[", "\"-5s\"", "true", "\"30\"", "\"30s\"\nintervall = 1"]
    {
        set_interval(&place, &text, broken);
        agent.signal(Signal::HUP);
        let rejected = agent.wait_for("config.rejected", |_| true).await;
        assert!(rejected["message"].as_str().unwrap().contains("config.toml:"), "{rejected}");
    }
    set_interval(&place, &text, "\"5s\"");
    agent.signal(Signal::HUP);
    let reloaded = agent.wait_for("config.reloaded", |_| true).await;
    assert_eq!((&reloaded["feeds_changed"], &reloaded["sinks_changed"]), (&1.into(), &0.into()));
    agent.wait_for("poll.completed", |poll| poll["next_poll_ms"] == 5_000).await;
    agent.signal(Signal::TERM);
    assert_eq!(agent.end().await.0.code(), Some(0));
}

#[tokio::test]
async fn ten_reloads_in_a_second_lose_and_double_nothing_and_leave_other_feeds_alone() {
    let (sandbox, address) = sandbox(Options { count: 300, ..Options::default() }).await;
    let place = Workplace::new(
        &format!("http://{address}"),
        &format!(
            "[poll]\ninterval = \"3600s\"\n[requests]\nper_second = 60\n\
             [accounts.other]\nbase_url = \"http://{address}\"\napp_key = \"vtexappkey-other-ABCDEF\"\napp_token = \"t\"\n\
             poll.interval = \"2h\"\n"
        ),
    );
    let text = std::fs::read_to_string(place.config()).unwrap();
    let mut agent = place.start();
    agent.wait_for("commit.completed", |_| true).await;
    for n in 0..10 {
        set_interval(&place, &text, if n % 2 == 0 { "\"6s\"" } else { "\"5s\"" });
        agent.signal(Signal::HUP);
        sleep(Duration::from_millis(100)).await;
    }
    let deadline = Instant::now() + PATIENCE;
    // The second feed's first poll is half a minute away: polls are spread.
    while sandbox.counts().committed < 600 {
        assert!(Instant::now() < deadline);
        agent.wait_for("poll.completed", |_| true).await;
    }
    agent.signal(Signal::TERM);
    let (status, lines, _) = agent.end().await;
    assert_eq!(status.code(), Some(0));
    let ids: std::collections::BTreeSet<String> =
        place.envelopes().iter().map(|envelope| envelope["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!((place.envelopes().len(), ids.len()), (600, 600));
    let polls_of_the_other =
        lines.iter().filter(|line| line.contains("poll.completed") && line.contains("\"other\""));
    assert!(polls_of_the_other.count() <= 1, "a feed that did not change is not disturbed");
}

#[tokio::test]
async fn a_reload_that_comes_early_is_no_end() {
    let (_sandbox, address) = sandbox(Options::default()).await;
    let place = Workplace::new(&format!("http://{address}"), "");
    for delay_ms in [20, 40, 80] {
        let mut agent = place.start();
        sleep(Duration::from_millis(delay_ms)).await;
        agent.signal(Signal::HUP);
        agent.wait_for("agent.ready", |_| true).await;
        agent.signal(Signal::TERM);
        assert_eq!(agent.end().await.0.code(), Some(0), "after {delay_ms} ms");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_to_its_end_holds_up_neither_the_stop_nor_the_next_reload() {
    let (_sandbox, address) = sandbox(Options::default()).await;
    let place = Workplace::new(&format!("http://{address}"), "[poll]\ninterval = \"3600s\"\n");
    let text = std::fs::read_to_string(place.config()).unwrap();
    for stop_meanwhile in [false, true] {
        std::fs::write(place.config(), &text).unwrap();
        let mut agent = place.start();
        agent.wait_for("poll.completed", |_| true).await;
        std::fs::remove_file(place.config()).unwrap();
        let made = Command::new("mkfifo").arg(place.config()).status().await.unwrap();
        assert!(made.success());
        agent.signal(Signal::HUP);
        sleep(Duration::from_millis(300)).await;
        if !stop_meanwhile {
            std::fs::remove_file(place.config()).unwrap();
            set_interval(&place, &text, "\"5s\"");
            agent.signal(Signal::HUP);
            agent.wait_for("config.reloaded", |_| true).await;
        }
        agent.signal(Signal::TERM);
        assert_eq!(agent.end().await.0.code(), Some(0));
        std::fs::remove_file(place.config()).unwrap();
    }
}

#[tokio::test]
async fn what_cannot_change_while_it_runs_is_refused_by_name() {
    let (_sandbox, address) = sandbox(Options::default()).await;
    let place = Workplace::new(&format!("http://{address}"), "[poll]\ninterval = \"3600s\"\n");
    let mut agent = place.start();
    agent.wait_for("poll.completed", |_| true).await;
    let text = std::fs::read_to_string(place.config()).unwrap();
    for (changed, key) in [
        (text.replace("journal.db", "other.db"), "journal.path"),
        (format!("{text}\n[log]\ndirectory = \"/nowhere\"\n"), "log.directory"),
        (format!("{text}\n[log]\nformat = \"text\"\n"), "log.format"),
    ] {
        std::fs::write(place.config(), changed.replace("3600s", "5s")).unwrap();
        agent.signal(Signal::HUP);
        let rejected = agent.wait_for("config.rejected", |_| true).await;
        assert!(rejected["error"].as_str().unwrap().contains(key), "{rejected}");
    }
    agent.signal(Signal::TERM);
    let (_, lines, _) = agent.end().await;
    assert_eq!(
        lines.iter().filter(|line| line.contains("poll.completed")).count(),
        1,
        "nothing of it was taken"
    );
}

#[tokio::test]
async fn a_hundred_short_runs_end_with_the_same_last_line() {
    let (_sandbox, address) = sandbox(Options::default()).await;
    let place = Workplace::new(&format!("http://{address}"), "");
    for run in 0..100 {
        let mut agent = place.start();
        agent.wait_for("agent.ready", |_| true).await;
        agent.signal(Signal::TERM);
        let (status, lines, _) = agent.end().await;
        let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!((status.code(), &last["event"]), (Some(0), &"shutdown.completed".into()), "run {run}");
    }
}

#[tokio::test]
async fn the_token_is_in_no_command_line_and_in_no_check() {
    let (_sandbox, address) = sandbox(Options::default()).await;
    let place = Workplace::new(&format!("http://{address}"), "[log]\nlevel = \"trace\"\n");
    let mut agent = place.start();
    agent.wait_for("poll.completed", |_| true).await;
    let cmdline = std::fs::read_to_string(format!("/proc/{}/cmdline", agent.id())).unwrap();
    assert!(cmdline.contains("run") && !cmdline.contains(TOKEN), "{cmdline}");
    agent.signal(Signal::TERM);
    agent.end().await;

    for arguments in [&["check"][..], &["check", "--print"], &["check", "--schema"]] {
        let output =
            Command::new(BINARY).args(arguments).arg("-c").arg(place.config()).output().await.unwrap();
        let printed =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && !printed.contains(TOKEN), "{arguments:?}: {printed}");
    }
}

#[tokio::test]
async fn a_token_of_digits_arrives_unchanged_from_file_and_environment() {
    for from_file in [true, false] {
        let mut server = mockito::Server::new_async().await;
        let mock = server
            .mock("GET", mockito::Matcher::Any)
            .match_header("x-vtex-api-apptoken", "0012300")
            .with_body("[]")
            .expect_at_least(1)
            .create_async()
            .await;
        let place = Workplace::new(&server.url(), "");
        let mut command = Command::new(BINARY);
        command.arg("run").arg("-c").arg(place.config());
        if from_file {
            let text = std::fs::read_to_string(place.config()).unwrap();
            std::fs::write(place.path().join("token"), "0012300\r\n").unwrap();
            let source = format!("{{ file = {:?} }}", place.path().join("token"));
            std::fs::write(place.config(), text.replace(&format!("\"{TOKEN}\""), &source)).unwrap();
        } else {
            command.env("ORDER_FEED_AGENT__ACCOUNTS__STORE__APP_TOKEN", "0012300");
        }
        let mut agent = Agent::start(&mut command);
        agent.wait_for("poll.completed", |poll| poll["ended"] == "drained").await;
        agent.signal(Signal::TERM);
        agent.end().await;
        mock.assert_async().await;
    }
}

#[tokio::test]
async fn an_order_id_cannot_forge_a_log_line() {
    let hostile = format!("a\"b\\c\r\n{{\"event\":\"forged\"}}\u{1b}[31m\u{2028}{}", "x".repeat(1_000_000));
    let item = serde_json::json!({ "handle": "h", "orderId": hostile, "state": hostile, "eventId": null });
    let unusable = serde_json::json!({ "orderId": hostile });
    let mut server = mockito::Server::new_async().await;
    let path = mockito::Matcher::Any;
    server.mock("GET", path.clone()).with_body(format!("[{item},{unusable}]")).expect(1).create_async().await;
    server.mock("POST", path).with_status(400).with_body(hostile.clone()).create_async().await;
    let place = Workplace::new(&server.url(), "[log]\nlevel = \"trace\"\n");
    let mut agent = place.start();
    agent.wait_for("poll.completed", |_| true).await;
    agent.signal(Signal::TERM);
    let (_, lines, _) = agent.end().await;
    for line in &lines {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(record["event"] != "forged" && line.len() <= 32 * 1024, "{line}");
    }
    assert_eq!(place.envelopes()[0]["subject"], hostile.as_str());
}

#[tokio::test]
async fn a_closed_or_full_stdout_does_not_stop_the_work() {
    for script in ["exec \"$@\" >&-", "exec \"$@\" >/dev/full", "\"$@\" | head -n 1"] {
        let (sandbox, address) = sandbox(Options { count: 20, ..Options::default() }).await;
        let place = Workplace::new(&format!("http://{address}"), "");
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", BINARY, "run", "-c"]).arg(place.config());
        let mut shell =
            command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while place.envelopes().len() < 20 || sandbox.ledger().committed < 20 {
            assert!(Instant::now() < deadline, "{script}");
            sleep(Duration::from_millis(50)).await;
        }
        stop_agent_of(&place);
        shell.wait().await.unwrap();
    }
}

/// Ends the agent whose process id stands in the lock file of the journal.
fn stop_agent_of(place: &Workplace) {
    let mut lock = place.journal().into_os_string();
    lock.push(".lock");
    let pid: i32 = std::fs::read_to_string(lock).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
}

#[tokio::test]
async fn a_full_log_disk_costs_log_lines_only() {
    if lacks_small_disks("a_full_log_disk").await {
        return;
    }
    let (sandbox, address) = sandbox(Options { rate: 20.0, ..Options::default() }).await;
    let place = Workplace::new(
        &format!("http://{address}"),
        "[poll]\ninterval = \"5s\"\n[requests]\nper_second = 100\n[log]\nlevel = \"trace\"\n",
    );
    let logs = place.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let text = std::fs::read_to_string(place.config()).unwrap();
    std::fs::write(place.config(), format!("{text}directory = {logs:?}\n")).unwrap();

    // The disk, its filling, and its freeing are seen only in this namespace; files tell when.
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1/logs\" && head -c 2m /dev/zero > \"$1/logs/filler\"; \
        \"$2\" run -c \"$1/config.toml\" & agent=$!; \
        while [ ! -e \"$1/free\" ]; do sleep 0.1; done; rm \"$1/logs/filler\"; \
        while [ ! -e \"$1/stop\" ]; do sleep 0.1; done; cp \"$1/logs/order-feed-agent.log\" \"$1/copied\"; kill $agent; wait $agent";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "bash", "-c", script, "sh"])
        .arg(place.path())
        .arg(BINARY);
    let mut agent = Agent::start(&mut command);
    for _ in 0..2 {
        agent.wait_for("poll.completed", |poll| poll["ended"] == "drained").await;
    }
    let while_full = sandbox.ledger().committed;
    assert!(0 < while_full, "polls and commits go on");
    std::fs::write(place.path().join("free"), "").unwrap();
    agent.wait_for("poll.completed", |_| true).await;
    agent.wait_for("poll.completed", |_| true).await;
    std::fs::write(place.path().join("stop"), "").unwrap();
    agent.end().await;

    assert!(while_full < sandbox.ledger().committed);
    let log = std::fs::read_to_string(place.path().join("copied")).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lost = events.iter().find(|record| record["event"] == "log.lost").expect("what was lost is said");
    assert!(0 < lost["lines"].as_u64().unwrap(), "{lost}");
    assert!(events.iter().any(|record| record["event"] == "poll.completed"));
}

/// Whether this machine lets us mount none; says then how to run the test, or fails where CI must have it.
async fn lacks_small_disks(test: &str) -> bool {
    let mount =
        ["--mount", "--propagation", "private", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"];
    let mounted = Command::new("unshare").args(mount).output().await;
    let lacks = !mounted.is_ok_and(|output| output.status.success());
    if lacks {
        assert!(std::env::var_os("CI").is_none(), "no root to mount a small disk");
        eprintln!("skipped: no root to mount a small disk; run as root: cargo test {test}");
    }
    lacks
}

/// A journal on a disk that fills up: nothing is committed that was not stored, and all of it once it is freed.
#[tokio::test]
async fn a_full_journal_disk_loses_nothing() {
    if lacks_small_disks("a_full_journal_disk").await {
        return;
    }
    let options = Options { count: 3_000, visibility: Duration::from_secs(3), ..Options::default() };
    let (sandbox, address): (Sandbox, _) = sandbox(options).await;
    let place = Workplace::new(
        &format!("http://{address}"),
        "[poll]\ninterval = \"5s\"\n[requests]\nper_second = 1000\nburst = 10\n",
    );
    let disk = place.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let text = std::fs::read_to_string(place.config()).unwrap();
    let text = text.replace(&format!("{:?}", place.journal()), &format!("{:?}", disk.join("journal.db")));
    std::fs::write(place.config(), text).unwrap();
    let script = "mount -t tmpfs -o size=900k tmpfs \"$1/disk\"; \"$2\" run -c \"$1/config.toml\" & agent=$!; \
        while [ ! -e \"$1/free\" ]; do sleep 0.1; done; mount -o remount,size=64m \"$1/disk\"; \
        while [ ! -e \"$1/stop\" ]; do sleep 0.1; done; kill $agent; wait $agent";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "bash", "-c", script, "sh"])
        .arg(place.path())
        .arg(BINARY);
    let mut agent = Agent::start(&mut command);
    agent.wait_for("journal.blocked", |_| true).await;
    let committed = sandbox.ledger().committed;
    assert!(0 < committed && committed < 3_000, "{committed}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(sandbox.ledger().committed, committed, "nothing is committed while nothing can be stored");
    std::fs::write(place.path().join("free"), "").unwrap();
    agent.wait_for("journal.recovered", |_| true).await;
    let deadline = Instant::now() + PATIENCE;
    while 0 < sandbox.ledger().waiting || place.envelopes().len() < 3_000 {
        assert!(Instant::now() < deadline, "{} wait", sandbox.ledger().waiting);
        sleep(Duration::from_millis(100)).await;
    }
    std::fs::write(place.path().join("stop"), "").unwrap();
    agent.end().await;
    let ids: std::collections::BTreeSet<String> =
        place.envelopes().iter().map(|envelope| envelope["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!((place.envelopes().len(), ids.len()), (3_000, 3_000));
}
