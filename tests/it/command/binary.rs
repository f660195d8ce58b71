//! The same by the binary.

use serde_json::Value;

use super::{Place, Signal, fs, is_alive, until};
use crate::support::agent::{Agent, Workplace};
use crate::support::raw_server::{Script, serve};

/// A feed that gives events of these orders and their states whenever it is asked, and the agent with a command sink `erp`; `more`
/// follows its keys.
async fn start(orders: &[(&str, &str)], place: &Place, more: &str) -> (Workplace, Agent) {
    let item = |(n, (order, state)): (usize, &(&str, &str))| {
        serde_json::json!({ "eventId": "0A", "handle": format!("handle-{n}"), "domain": "Fulfillment",
            "state": state, "lastState": "", "orderId": order, "lastChange": "2026-03-02T20:54:01Z",
            "currentChange": "2026-03-02T20:54:23Z" })
    };
    let body = Value::Array(orders.iter().enumerate().map(item).collect()).to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let address = serve(Script::Say(answer.leak().as_bytes())).await;
    let dir = place.path("");
    let dir = dir.to_str().unwrap().trim_end_matches('/');
    let more = format!(
        "[log]\nlevel = \"debug\"\ndirectory = \"{dir}/log\"\n[sinks.erp]\ntype = \"command\"\nprogram = \"/bin/sh\"\n\
         args = [\"{dir}/script\", \"{dir}\"]\n{more}"
    );
    let workplace = Workplace::new(&format!("http://{address}"), &more);
    let agent = workplace.start();
    (workplace, agent)
}

#[tokio::test]
async fn hostile_orders_reach_a_program_whole_and_forge_no_line_of_the_log() {
    let ten_kb = "x".repeat(10_000);
    let orders = [
        "../../x?y=1#z",
        "a/b",
        "%2e%2e",
        "a\0b",
        "a\n{\"event\":\"delivery.dead_lettered\",\"sink\":\"erp\"}\r\n",
        "\u{1b}[2J\u{202e}",
        &ten_kb,
    ];
    let place = Place::new(
        "n=$ORDER_FEED_SEQUENCE; cat > \"$1/$n.stdin\"; cat /proc/$$/environ > \"$1/$n.environ\"\n\
         cat \"$1/$n.stdin\"; cat \"$1/$n.stdin\" >&2; [ \"$ORDER_FEED_STATE\" = fine ] || exit 3",
    );
    // Each follows one that is taken: a sink that takes others is not the one to blame.
    let good: Vec<String> = (0..orders.len()).map(|n| format!("{n}-01")).collect();
    let events: Vec<(&str, &str)> = good
        .iter()
        .zip(orders)
        .flat_map(|(good, order)| [(good.as_str(), "fine"), (order, "handling")])
        .collect();
    let (_workplace, mut agent) = start(&events, &place, "max_attempts = 1\nconcurrency = 1\n").await;
    let mut seen = Vec::new();
    for _ in 0..orders.len() {
        let record = agent.wait_for("delivery.dead_lettered", |record| record["sink"] == "erp").await;
        assert_eq!(record["error"], "the program ended with exit status 3");
        seen.push(record["order"].as_str().unwrap().to_owned());
    }
    for order in orders {
        let shown = if order.len() < 1_024 {
            order.to_owned()
        } else {
            format!("{}…[8976 bytes cut]", "x".repeat(1_024))
        };
        assert!(seen.contains(&shown), "{shown}");
    }
    let subjects: Vec<String> = (1..=events.len())
        .map(|n| {
            let envelope: Value = serde_json::from_str(&place.read(&format!("{n:020}.stdin"))).unwrap();
            let environment = place.environment(&format!("{n:020}.environ"));
            let subject = envelope["subject"].as_str().unwrap().to_owned();
            let expected = (!subject.contains('\0')).then_some(&subject);
            assert_eq!(environment.get("ORDER_FEED_ORDER_ID"), expected);
            assert_eq!(environment["ORDER_FEED_ACCOUNT"], "store");
            assert_eq!(environment["ORDER_FEED_TIME"], "2026-03-02T20:54:23Z");
            subject
        })
        .collect();
    assert!(orders.iter().all(|order| subjects.iter().any(|subject| subject == order)), "{subjects:?}");
    agent.signal(Signal::TERM);
    let (status, lines, _) = agent.end().await;
    assert_eq!(status.code(), Some(0));
    for line in lines {
        let record: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert!(record["timestamp"].is_string() && record["target"].is_string(), "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[tokio::test]
async fn a_program_has_no_descriptor_and_no_variable_of_the_agent() {
    let place = Place::new(
        "ls -l /proc/self/fd > \"$1/fds\"; cat /proc/$$/environ > \"$1/environ\"; echo done > \"$1/done\"; echo printed",
    );
    let (_workplace, mut agent) = start(&[("1-01", "handling")], &place, "").await;
    let record = agent.wait_for("delivery.output", |_| true).await;
    assert_eq!(
        (&record["sink"], &record["order"], &record["stdout"]),
        (&"erp".into(), &"1-01".into(), &"printed".into())
    );
    assert_eq!((&record["level"], &record["stderr"]), (&"DEBUG".into(), &Value::Null));
    assert_eq!(place.environment("environ").len(), 7, "{:?}", place.environment("environ"));
    let fds = place.read("fds");
    let links = fds.lines().filter_map(|line| line.rsplit_once(" -> "));
    let mut numbers: Vec<&str> = Vec::new();
    for (fd, to) in links.map(|(left, to)| (left.rsplit(' ').next().unwrap(), to)) {
        // Whoever started the tests may have left one open for all.
        let is_of_our_parent =
            fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|ours| ours.as_os_str() == to);
        let is_the_list = to.starts_with("/proc/") && to.ends_with("/fd");
        let expected = match fd {
            "0" | "2" => to.starts_with("pipe:["),
            "1" => to.ends_with("/fds"),
            _ => is_of_our_parent || is_the_list,
        };
        assert!(expected, "{fds}");
        numbers.push(fd);
    }
    assert!(["0", "1", "2"].iter().all(|fd| numbers.contains(fd)), "{fds}");
    agent.signal(Signal::TERM);
    assert_eq!(agent.end().await.0.code(), Some(0));
}

#[tokio::test]
async fn what_cannot_be_started_costs_no_event_an_attempt() {
    let place = Place::new("rmdir \"$1/room\" && exit 0; cat > \"$1/stdin\"");
    fs::create_dir(place.path("room")).unwrap();
    let more = format!("max_attempts = 1\nconcurrency = 1\nworking_directory = {:?}\n", place.path("room"));
    let (_workplace, mut agent) = start(&[("1-01", "handling"), ("2-01", "handling")], &place, &more).await;
    let failed = agent.wait_for("delivery.failed", |_| true).await;
    let error = failed["error"].as_str().unwrap();
    assert!(error.starts_with("the program could not be started: "), "{error}");
    assert_eq!(
        (&failed["order"], &failed["attempts"], &failed["failures"]),
        (&"2-01".into(), &0.into(), &1.into())
    );
    // It is deleted again by the program, which so takes the event.
    fs::create_dir(place.path("room")).unwrap();
    agent.wait_for("delivery.recovered", |record| record["sink"] == "erp").await;
    agent.signal(Signal::TERM);
    let (_, lines, _) = agent.end().await;
    assert!(!lines.iter().any(|line| line.contains("delivery.dead_lettered")), "{lines:#?}");
}

#[tokio::test]
async fn of_a_flood_nothing_is_kept_in_memory() {
    let place =
        Place::new("head -c 200000000 /dev/zero; head -c 200000000 /dev/zero >&2; echo done > \"$1/done\"");
    let (_workplace, mut agent) = start(&[("1-01", "handling")], &place, "timeout = \"1h\"\n").await;
    agent.wait_for("agent.ready", |_| true).await;
    let most_kib = |agent: &Agent| -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = most_kib(&agent);
    until(|| place.has_line("done"), "all is printed").await;
    let after = most_kib(&agent);
    assert!(after < before + 32 * 1024, "from {before} to {after} KiB");
    agent.signal(Signal::TERM);
    agent.end().await;
}

#[tokio::test]
async fn a_program_that_still_runs_at_the_shutdown_ends_with_the_agent() {
    let place = Place::new(
        "trap '' TERM; sleep 1000 & echo $! > \"$1/child\"; echo $$ > \"$1/pids\"; wait; sleep 1000",
    );
    let (_workplace, mut agent) = start(&[("1-01", "handling")], &place, "timeout = \"1h\"\n").await;
    agent.wait_for("agent.ready", |_| true).await;
    until(|| place.has_line("pids"), "it starts").await;
    agent.signal(Signal::TERM);
    let (status, lines, _) = agent.end().await;
    assert_eq!(status.code(), Some(0));
    assert!(lines.iter().any(|line| line.contains("delivery.unanswered")), "{lines:#?}");
    let (leader, child) = (place.pids()[0], place.read("child").trim().parse().unwrap());
    until(|| !is_alive(leader) && !is_alive(child), "the group is killed").await;
}
