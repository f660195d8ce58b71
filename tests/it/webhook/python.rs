//! Webhooks are verified by a receiver of another language.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use order_feed_agent::sink::EventSink;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{OTHER_SECRET, RefusalCause, Request, SECRET, envelope, record, sink};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/webhook_receiver.py");
const N_EVENTS: usize = 100;

#[tokio::test]
async fn a_receiver_of_another_language_takes_every_event_and_none_with_a_changed_byte() {
    let Some(mut receiver) = Receiver::start(&["--secret", SECRET]) else { return };
    // As while rotating: the receiver knows one of the two.
    for secrets in [SECRET, &format!("{OTHER_SECRET}\", \"{SECRET}")] {
        let sink = sink(&receiver.url, &format!("signing_secret = [\"{secrets}\"]\n"));
        for n in 0..N_EVENTS {
            sink.deliver(&envelope(n)).await.unwrap();
            let taken = receiver.line();
            assert_eq!((&taken["status"], taken["body"].as_str()), (&204.into(), Some(&*envelope(n).line)));
            assert_eq!(
                (&taken["id"], &taken["subject"]),
                (&envelope(n).id.into(), &format!("order-{n}").into())
            );
        }
    }
    let foreign = sink(&receiver.url, &format!("signing_secret = \"{OTHER_SECRET}\"\n"));
    let refusal = foreign.deliver(&envelope(1)).await.unwrap_err();
    assert!(matches!(refusal.cause, RefusalCause::Status(401)), "{refusal:?}");
    assert_eq!(receiver.line()["why"], "no signature is right");

    let genuine = signed().await;
    assert_eq!(send(&receiver.url, &genuine.head, &genuine.body).await, 204);
    for at in (0..genuine.body.len()).step_by(7).filter(|at| genuine.body.is_char_boundary(*at)) {
        let mut body = genuine.body.clone().into_bytes();
        body[at] ^= 1;
        let Ok(body) = String::from_utf8(body) else { continue };
        assert_eq!(send(&receiver.url, &genuine.head, &body).await, 401, "changed at {at}");
    }
    let head = genuine.head.replace(&envelope(1).id, &envelope(2).id);
    assert_eq!(send(&receiver.url, &head, &genuine.body).await, 401, "another id");
    let later = genuine.header("webhook-timestamp")[0].parse::<i64>().unwrap() + 1;
    let head = genuine.head.replace(genuine.header("webhook-timestamp")[0], &later.to_string());
    assert_eq!(send(&receiver.url, &head, &genuine.body).await, 401, "another time");
}

#[tokio::test]
async fn the_receiver_refuses_what_it_is_told_to() {
    let options = ["--secret", SECRET, "--fail-rate", "0.3", "--seed", "7", "--refuse-subject", "order-3"];
    let Some(mut receiver) = Receiver::start(&options) else { return };
    let sink = sink(&receiver.url, &format!("signing_secret = \"{SECRET}\"\n"));
    let mut n_refused = 0;
    for n in 0..N_EVENTS {
        let taken = sink.deliver(&envelope(n)).await;
        n_refused += usize::from(taken.is_err());
        assert!(n != 3 || taken.is_err());
        assert_eq!(receiver.line()["status"], if taken.is_ok() { 204 } else { 503 });
    }
    assert!((1..N_EVENTS).contains(&n_refused), "{n_refused}");
}

/// The script as a process of its own, which ends with this value.
struct Receiver {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    url: String,
}

impl Receiver {
    /// `None` where there is no Python, which only a developer's machine may lack.
    fn start(options: &[&str]) -> Option<Self> {
        if let Err(missing) = Command::new("python3").arg("--version").output() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "python3 cannot be run: {missing}");
            eprintln!("skipped: python3 cannot be run: {missing}");
            return None;
        }
        let mut process =
            Command::new("python3").arg(SCRIPT).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.next().expect("the receiver says where it listens").unwrap();
        Some(Self { process, lines, url: format!("http://{address}/") })
    }

    /// What it says of the next request; it is said before the answer.
    fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A request as the sink signs it, caught on its way.
async fn signed() -> Request {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, mut requests) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        record(stream, 0, "HTTP/1.1 204 No Content\r\n\r\n", sender).await.ok();
    });
    sink(&url, &format!("signing_secret = \"{SECRET}\"\n")).deliver(&envelope(1)).await.unwrap();
    requests.recv().await.unwrap()
}

/// Sends these bytes and returns the status.
async fn send(url: &str, head: &str, body: &str) -> u16 {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}
