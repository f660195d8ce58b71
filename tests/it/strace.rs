//! The order of the system calls: the journal is synced before the commit is sent.

use tokio::process::Command;

use crate::support::agent::{BINARY, PATIENCE};

#[tokio::test]
async fn the_journal_is_synced_before_the_commit_is_written() {
    if Command::new("strace").arg("--version").output().await.is_err() {
        assert!(std::env::var_os("CI").is_none(), "strace is missing: apt-get install strace");
        eprintln!("skipped: needs strace (apt-get install strace), then: cargo test strace");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "64", "-e", "trace=fsync,fdatasync,write,writev,sendto,sendmsg", "-o"]);
    command.arg(&trace).args([BINARY, "demo", "--count", "5"]);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let trace = std::fs::read_to_string(trace).unwrap();
    // The agent's requests; the sandbox in the same process only answers.
    let position = |from: usize, wanted: &dyn Fn(&str) -> bool| {
        trace.lines().enumerate().skip(from).find(|(_, line)| wanted(line)).map(|(n, _)| n)
    };
    let is_sync = |line: &str| {
        (line.contains("fsync(") || line.contains("fdatasync(")) && line.contains("journal.db-wal")
    };
    let is_receive = |line: &str| line.contains("\"GET /api/orders/feed?maxlot=10");
    let is_commit = |line: &str| line.contains("\"POST /api/orders/feed");
    let received = position(0, &is_receive).expect("a receive");
    let committed = position(received, &is_commit).expect("a commit");
    let synced = position(received, &is_sync).expect("a sync after the receive");
    assert!(synced < committed, "sync in line {synced}, commit in line {committed}");
    let finished = |line: &str| {
        is_sync(line) && line.ends_with("= 0") || line.contains("sync resumed") && line.ends_with("= 0")
    };
    let returned = position(synced, &finished).expect("a sync that returns");
    assert!(returned < committed, "the sync returns in line {returned}, commit in line {committed}");
}
