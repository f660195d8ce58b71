//! Programs that take events, and those that hang, fork, flood, fail and leave things behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use order_feed_agent::config::{self, Limits, SinkKind};
use order_feed_agent::observe::logging::ErrorChain;
use order_feed_agent::sink::{CommandSink, Envelope, EventSink, ProgramError, Refusal, RefusalCause};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::support::agent::PATIENCE;
use crate::support::load;

mod binary;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Nobody waits for that.
const FOREVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_program_gets_the_envelope_on_stdin_and_exactly_the_documented_variables() {
    let place = Place::new("cat > \"$1/stdin\"; cat /proc/$$/environ > \"$1/environ\"; pwd > \"$1/pwd\"");
    let command = place.command(
        "env.API_TOKEN = \"two words\"\nenv.TZ = \"America/Sao_Paulo\"\nargs = [\"DIR/script\", \"DIR\", \"$HOME; *\", \"\"]\n",
    );
    let event = envelope("1000000000123-01");
    CommandSink::new("erp", command).deliver(&event).await.unwrap();
    assert_eq!(place.read("stdin"), format!("{}\n", event.line));
    let expected = [
        ("API_TOKEN", "two words"),
        ("ORDER_FEED_ACCOUNT", "store"),
        ("ORDER_FEED_ID", "abababababababababababababababab"),
        ("ORDER_FEED_ORDER_ID", "1000000000123-01"),
        ("ORDER_FEED_SEQUENCE", "00000000000000000042"),
        ("ORDER_FEED_STATE", "ready-for-handling"),
        ("ORDER_FEED_TIME", "2026-03-02T20:54:23.7153839Z"),
        ("PATH", PATH),
        ("TZ", "America/Sao_Paulo"),
    ];
    assert_eq!(place.environment("environ"), expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
    assert_eq!(place.read("pwd"), "/\n");
}

#[tokio::test]
async fn arguments_path_and_folder_are_those_of_the_configuration() {
    let place = Place::new(
        "cat /proc/$$/cmdline > \"$1/cmdline\"; pwd > \"$1/pwd\"; cat /proc/$$/environ > \"$1/environ\"",
    );
    let more = "args = [\"DIR/script\", \"DIR\", \"$HOME; *\", \"\", \"a\\nb\"]\nworking_directory = \"DIR\"\nenv.PATH = \"/bin:/usr/bin\"\n";
    CommandSink::new("erp", place.command(more)).deliver(&envelope("1-01")).await.unwrap();
    let (script, dir) = (place.path("script").display().to_string(), place.path("").display().to_string());
    let dir = dir.trim_end_matches('/');
    assert_eq!(place.read("cmdline"), format!("/bin/sh\0{script}\0{dir}\0$HOME; *\0\0a\nb\0"));
    assert_eq!(place.read("pwd"), format!("{dir}\n"));
    assert_eq!(place.environment("environ")["PATH"], "/bin:/usr/bin");
}

#[tokio::test]
async fn no_order_id_forges_an_argument_or_a_variable() {
    let (ten_kb, longest, too_long) = ("x".repeat(10_000), "x".repeat(32 * 1024), "x".repeat(32 * 1024 + 1));
    for (id, passed) in [
        ("../../x?y=1#z", true),
        ("a/b", true),
        ("%2e%2e", true),
        ("", true),
        ("a\nORDER_FEED_STATE=forged\r\nx: y", true),
        ("$(touch forged)`touch forged`; touch forged", true),
        ("() { :;}; touch forged", true),
        ("-rf", true),
        ("\u{1b}[31mé\u{202e}", true),
        (&ten_kb, true),
        (&longest, true),
        ("a\0ORDER_FEED_STATE=forged", false),
        ("\0", false),
        (&too_long, false),
    ] {
        let place = Place::new(
            "cat > \"$1/stdin\"; cat /proc/$$/environ > \"$1/environ\"; cat /proc/$$/cmdline > \"$1/cmdline\"",
        );
        let mut event = envelope(id);
        event.state = id.to_owned();
        CommandSink::new("erp", place.command("")).deliver(&event).await.unwrap();
        let environment = place.environment("environ");
        for name in ["ORDER_FEED_ORDER_ID", "ORDER_FEED_STATE"] {
            assert_eq!(environment.get(name).map(String::as_str), passed.then_some(id), "{id:?}");
        }
        assert_eq!(environment.len(), if passed { 7 } else { 5 }, "{environment:?}");
        assert_eq!(place.read("cmdline").matches('\0').count(), 3);
        let read: serde_json::Value = serde_json::from_str(&place.read("stdin")).unwrap();
        assert_eq!((&read["subject"], place.read("stdin").lines().count()), (&id.into(), 1));
        let mut files: Vec<String> = fs::read_dir(place.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        assert_eq!(files, ["cmdline", "environ", "script", "stdin"]);
    }
}

#[tokio::test]
async fn exit_status_0_is_success_and_nothing_else() {
    for (script, expected) in [
        ("exit 0", ""),
        ("exec 0<&- 1>&- 2>&-; exit 0", ""),
        ("exit 1", "the program ended with exit status 1"),
        ("exit 255", "the program ended with exit status 255"),
        ("kill -KILL $$", "the program was ended by signal 9"),
        ("kill -TERM $$", "the program was ended by signal 15"),
        ("exec /nowhere", "the program ended with exit status 127"),
    ] {
        let ended = Place::new(script).sink(FOREVER).deliver(&envelope("1-01")).await;
        let told = ended.err().map(|refusal| ErrorChain(&refusal.cause).to_string()).unwrap_or_default();
        assert_eq!(told, expected, "{script}");
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_so_and_nothing_of_the_event() {
    let place = Place::new("");
    let command = place.command("");
    for broken in [
        config::Command { program: place.path("missing"), ..command.clone() },
        config::Command { program: place.path(""), ..command.clone() },
        // Not executable.
        config::Command { program: place.path("script"), ..command.clone() },
        config::Command { working_directory: place.path("missing"), ..command.clone() },
    ] {
        let refusal = CommandSink::new("erp", broken).deliver(&envelope("1-01")).await.unwrap_err();
        assert!(matches!(refusal.cause, RefusalCause::Program(ProgramError::NotStarted(_))), "{refusal:?}");
        let told = ErrorChain(&refusal).to_string();
        assert!(told.starts_with("not delivered: the program could not be started: "), "{told}");
    }
}

#[tokio::test]
async fn a_program_need_not_read_its_stdin_and_none_is_left_waiting_for_it() {
    let mut event = envelope("1-01");
    event.line = "x".repeat(1 << 20);
    for script in ["exit 0", "exec 0<&-; exit 0", "head -c 10 > /dev/null; exit 0"] {
        soon(Place::new(script).sink(FOREVER).deliver(&event)).await.unwrap();
    }
    let place = Place::new("cat > \"$1/stdin\"");
    soon(place.sink(FOREVER).deliver(&event)).await.unwrap();
    assert_eq!(place.read("stdin").len(), (1 << 20) + 1);
}

#[tokio::test]
async fn at_the_time_out_a_program_is_killed_with_all_it_started() {
    for script in [
        "echo $$ >> \"$1/pids\"; sleep 1000",
        "echo $$ >> \"$1/pids\"; exec sleep 1000",
        // Forks; some stay behind in the background.
        "echo $$ >> \"$1/pids\"; sleep 1000 & echo $! >> \"$1/pids\"; sleep 1000 & echo $! >> \"$1/pids\"; wait",
        "echo $$ >> \"$1/pids\"; (sleep 1000 & echo $! >> \"$1/pids\"; wait) & (sleep 1000; :)",
        // Ignores the polite signal, and so do its children.
        "trap '' TERM; echo $$ >> \"$1/pids\"; sleep 1000 & echo $! >> \"$1/pids\"; while :; do sleep 1000; done",
        // Ends at the polite signal, its child does not.
        "(trap '' TERM; sleep 1000) & echo $! >> \"$1/pids\"; echo $$ >> \"$1/pids\"; sleep 1000",
        // Cannot answer any signal.
        "echo $$ >> \"$1/pids\"; kill -STOP $$",
        // Has closed its output, and never stops printing.
        "echo $$ >> \"$1/pids\"; exec 1>&- 2>&-; sleep 1000",
        "echo $$ >> \"$1/pids\"; yes & echo $! >> \"$1/pids\"; yes >&2",
    ] {
        let place = Place::new(script);
        let started = Instant::now();
        let refusal = soon(place.sink(Duration::from_secs(1)).deliver(&envelope("1-01"))).await.unwrap_err();
        assert!(
            matches!(refusal.cause, RefusalCause::Program(ProgramError::TimedOut)),
            "{script}: {refusal:?}"
        );
        assert!(Duration::from_secs(1) <= started.elapsed());
        let pids = place.pids();
        assert!(!pids.is_empty(), "{script}");
        // The leader was waited for before the attempt ended; who waits for the others is not our business.
        let leader = if script.starts_with('(') { pids[1] } else { pids[0] };
        assert!(!is_child_of_ours(leader), "{script}: a zombie");
        for pid in pids {
            until(|| !is_alive(pid), &format!("{script}: {pid} lives")).await;
        }
    }
}

#[tokio::test]
async fn a_program_may_clean_up_when_its_time_is_over() {
    let place = Place::new(
        "trap 'echo bye > \"$1/bye\"; exit 0' TERM; echo $$ > \"$1/pids\"; while :; do sleep 0.05; done",
    );
    let refusal = soon(place.sink(Duration::from_secs(1)).deliver(&envelope("1-01"))).await.unwrap_err();
    assert!(matches!(refusal.cause, RefusalCause::Program(ProgramError::TimedOut)), "{refusal:?}");
    assert_eq!(place.read("bye"), "bye\n");
}

#[tokio::test]
async fn what_a_program_leaves_in_the_background_holds_nothing_up_and_ends_with_the_attempt() {
    for script in [
        "sleep 1000 & echo $! > \"$1/pids\"; exit 0",
        "sleep 1000 > /dev/null 2>&1 < /dev/null & echo $! > \"$1/pids\"; exit 0",
        "yes & echo $! > \"$1/pids\"; exit 0",
        "(trap '' TERM HUP; sleep 1000) & echo $! > \"$1/pids\"; exit 0",
    ] {
        let place = Place::new(script);
        soon(place.sink(FOREVER).deliver(&envelope("1-01"))).await.unwrap();
        let pid = place.pids()[0];
        until(|| !is_alive(pid), &format!("{script}: {pid} lives")).await;
    }
}

#[tokio::test]
async fn who_gives_up_on_an_attempt_leaves_no_program_and_no_zombie_behind() {
    let place = Place::new(
        "trap '' TERM; sleep 1000 & echo $! > \"$1/child\"; echo $$ > \"$1/pids\"; wait; sleep 1000",
    );
    let sink = Arc::new(place.sink(FOREVER));
    let attempt = tokio::spawn(async move { sink.deliver(&envelope("1-01")).await.is_ok() });
    until(|| place.has_line("pids"), "it starts").await;
    let (leader, child) = (place.pids()[0], place.read("child").trim().parse().unwrap());
    assert!(is_alive(leader) && is_alive(child) && is_child_of_ours(leader));
    attempt.abort();
    assert!(attempt.await.unwrap_err().is_cancelled());
    until(|| !is_alive(leader) && !is_alive(child), "the group is killed").await;
    until(|| !is_child_of_ours(leader), "the leader is waited for").await;
}

#[tokio::test]
async fn many_programs_at_once_are_all_waited_for() {
    let place = Place::new("echo $$ >> \"$1/pids\"; cat > /dev/null");
    let sink = Arc::new(place.sink(FOREVER));
    let mut attempts = tokio::task::JoinSet::new();
    for n in 0..64 {
        let sink = Arc::clone(&sink);
        attempts.spawn(async move { sink.deliver(&envelope(&format!("{n}-01"))).await });
    }
    while let Some(ended) = soon(attempts.join_next()).await {
        ended.unwrap().unwrap();
    }
    let pids = place.pids();
    assert_eq!(pids.len(), 64);
    assert_eq!(pids.iter().filter(|pid| is_child_of_ours(**pid)).count(), 0);
}

#[tokio::test]
async fn what_a_program_that_failed_printed_is_its_answer_without_secrets_and_short() {
    let more = "env.TOKEN = \"CANARY-TOKEN-4711 CANARY-OTHER\"\n";
    for (script, expected) in [
        ("echo out; echo 'no  such\norder' >&2; exit 1", Some("no such order")),
        ("echo out; exit 1", Some("out")),
        ("exit 1", None),
        ("echo \"got $TOKEN and ${TOKEN#* }\" >&2; exit 1", Some("got *** and ***")),
        ("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1", Some("***")),
        ("printf '\\377\\000\\033[31m' >&2; exit 1", Some("\u{fffd}\0\u{1b}[31m")),
    ] {
        let sink = CommandSink::new("erp", Place::new(script).leak().command(more));
        let refusal = sink.deliver(&envelope("1-01")).await.unwrap_err();
        assert_eq!(refusal.answer.as_deref(), expected, "{script}");
        assert_tells_nothing(&refusal);
    }
    let long = Place::new("yes word | head -n 100000 >&2; exit 1");
    let answer = long.sink(FOREVER).deliver(&envelope("1-01")).await.unwrap_err().answer.unwrap();
    assert!(answer.starts_with("word word") && answer.chars().count() == 512, "{answer}");
}

fn assert_tells_nothing(refusal: &Refusal) {
    let text = format!("{} {refusal:?}", ErrorChain(refusal));
    assert!(!text.contains("CANARY"), "{text}");
}

/// A folder with a script that `/bin/sh` runs: a script that has just been written cannot be executed itself while
/// another test forks. Its `$1` is the folder.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new(script: &str) -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        fs::write(place.path("script"), script).unwrap();
        place
    }

    /// The folder stays until the process ends.
    fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command as the configuration makes it; `more` are further keys of it, and `DIR` in it is the folder.
    fn command(&self, more: &str) -> config::Command {
        let args = if more.contains("args = ") { "" } else { "args = [\"DIR/script\", \"DIR\"]\n" };
        let text = format!(
            "[accounts.store]\napp_key = \"k\"\napp_token = \"t\"\n[sinks.erp]\ntype = \"command\"\nprogram = \"/bin/sh\"\n{args}{more}"
        );
        let text = text.replace("DIR", self.directory.path().to_str().unwrap());
        let SinkKind::Command(command) = load(&text).sinks.remove(0).kind else { panic!("{text}") };
        command
    }

    fn sink(&self, timeout: Duration) -> CommandSink {
        let command = self.command("");
        let limits = Limits { timeout, ..command.limits.clone() };
        CommandSink::new("erp", config::Command { limits, ..command })
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn has_line(&self, name: &str) -> bool {
        fs::read_to_string(self.path(name)).is_ok_and(|text| text.ends_with('\n'))
    }

    fn pids(&self) -> Vec<i32> {
        self.read("pids").lines().map(|line| line.parse().unwrap()).collect()
    }

    /// What a program was started with; a variable without `=` fails the test.
    fn environment(&self, name: &str) -> BTreeMap<String, String> {
        let text = self.read(name);
        let text = text.strip_suffix('\0').unwrap();
        let pair = |variable: &str| {
            let (name, value) = variable.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        let variables: Vec<_> = text.split('\0').map(pair).collect();
        let n_variables = variables.len();
        let environment: BTreeMap<_, _> = variables.into_iter().collect();
        assert_eq!(environment.len(), n_variables, "a variable stands twice");
        environment
    }
}

fn envelope(order_id: &str) -> Envelope {
    let id = "ab".repeat(16);
    let line = serde_json::json!({ "specversion": "1.0", "id": id, "subject": order_id, "state": "é" });
    Envelope {
        id,
        order_id: order_id.to_owned(),
        account: "store".to_owned(),
        state: "ready-for-handling".to_owned(),
        seq: 42,
        time: "2026-03-02T20:54:23.7153839Z".parse().unwrap(),
        line: line.to_string(),
    }
}

/// State and parent of a process; `None` once it is gone.
fn stat(pid: i32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Not even a zombie counts as alive.
fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state.as_str(), "Z" | "X"))
}

fn is_child_of_ours(pid: i32) -> bool {
    stat(pid).is_some_and(|(_, parent)| parent == std::process::id())
}

/// Waits for a state, not for a time.
async fn until(is_it: impl Fn() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_it() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap()
}
