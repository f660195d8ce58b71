//! The sandbox is consumed by a client of another language.

use std::process::Command;
use std::time::Duration;

use order_feed_agent::sandbox::{Options, Settings};

use crate::sandbox_support::{start, start_oracle};

#[tokio::test]
async fn a_python_client_sees_commits_and_sees_again_what_it_should() {
    if let Err(missing) = Command::new("python3").arg("--version").output() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "python3 cannot be run: {missing}");
        println!("skipped: python3 cannot be run: {missing}");
        return;
    }
    for stale in ["ignored", "deleted", "refused"] {
        // No machine is so slow that leases lapse by themselves.
        let visibility = Duration::from_secs(3_600);
        let settings = Settings::parse(&format!("[feed]\nstale_handle = '{stale}'")).unwrap();
        let (sandbox, client, _stop) =
            start(Options { count: 500, visibility, settings, ..Options::default() }).await;
        let (oracle, _stop_oracle) = start_oracle(&sandbox).await;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sandbox_client.py");
        let (base, oracle) = (format!("http://{}", client.address), format!("http://{}", oracle.address));
        let run = tokio::task::spawn_blocking(move || {
            Command::new("python3").args([script, &base, &oracle, stale]).output().unwrap()
        });
        let output = run.await.unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"ok\n", "stale handles {stale}: {text}");
    }
}
