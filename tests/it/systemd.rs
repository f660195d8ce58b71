//! What the service manager hears, on a socket that stands for it.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use order_feed_agent::observe::systemd;

/// Set for the child; the notifications read the environment, which a test cannot change for itself alone.
const CHILD: &str = "ORDER_FEED_AGENT_TEST_SYSTEMD_CHILD";

#[test]
fn each_notification_is_one_message_of_the_protocol() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();

    let output = child().env("NOTIFY_SOCKET", &path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));

    let heard: Vec<String> = (0..5).map(|_| receive(&manager)).collect();
    assert_eq!(heard[0], "READY=1\n");
    assert_eq!(heard[1], "STATUS=polling main STOPPING=1\n");
    let usec = heard[2].strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().trim_end();
    assert!(0 < usec.parse::<u64>().unwrap());
    assert_eq!(heard[3..], ["WATCHDOG=1\n", "STOPPING=1\n"]);
}

#[test]
fn without_a_service_manager_nothing_happens() {
    let output = child().env_remove("NOTIFY_SOCKET").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "a child of the tests above"]
fn child_notifies() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    systemd::ready();
    systemd::status("polling main\nSTOPPING=1");
    systemd::reloading();
    systemd::watchdog();
    systemd::stopping();
}

fn child() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "systemd::child_notifies"]).env(CHILD, "1");
    command
}

fn receive(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    let length = manager.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}
