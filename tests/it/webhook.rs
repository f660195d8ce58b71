//! The webhook against exact requests, servers that misbehave, and certificates.

use std::net::SocketAddr;
use std::time::Duration;

use order_feed_agent::config::{self, SinkKind};
use order_feed_agent::http::NoAnswer;
use order_feed_agent::observe::logging::ErrorChain;
use order_feed_agent::sink::{Envelope, EventSink, Refusal, RefusalCause, WebhookSink};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use crate::support::load;
use crate::support::raw_server::{Script, serve};

mod python;
mod tls;

/// That of the examples of Standard Webhooks.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[tokio::test]
async fn a_delivery_is_exactly_this_request() {
    let (address, mut requests) = recorder("HTTP/1.1 204 No Content\r\n\r\n").await;
    let more = format!(
        "signing_secret = \"{SECRET}\"\nheaders.Authorization = \"Bearer xyz 1\"\nheaders.x-shop = \"7\"\n"
    );
    let event = envelope(1);
    let before = jiff::Timestamp::now().as_second();
    sink(&format!("http://{address}/hook?shop=7"), &more).deliver(&event).await.unwrap();
    let request = requests.recv().await.unwrap();
    assert!(request.head.starts_with("POST /hook?shop=7 HTTP/1.1\r\n"), "{}", request.head);
    for (name, value) in [
        ("content-type", "application/cloudevents+json"),
        ("webhook-id", &event.id),
        ("content-length", &event.line.len().to_string()),
        ("authorization", "Bearer xyz 1"),
        ("x-shop", "7"),
        ("user-agent", concat!("order-feed-agent/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(request.header(name), [value], "{}", request.head);
    }
    assert_eq!(request.body, event.line);
    let timestamp: i64 = request.header("webhook-timestamp")[0].parse().unwrap();
    assert!((before..=jiff::Timestamp::now().as_second()).contains(&timestamp));
    let [signature] = request.header("webhook-signature")[..] else { panic!("{}", request.head) };
    assert!(signature.starts_with("v1,") && signature.len() == "v1,".len() + 44, "{signature}");
}

#[tokio::test]
async fn each_secret_gives_a_signature_and_without_one_there_is_none() {
    for (secrets, n_signatures) in
        [("", 0), (&format!("signing_secret = [\"{SECRET}\", \"{OTHER_SECRET}\"]\n"), 2)]
    {
        let (address, mut requests) = recorder("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        sink(&format!("http://{address}"), secrets).deliver(&envelope(1)).await.unwrap();
        let request = requests.recv().await.unwrap();
        let signatures: Vec<&str> =
            request.header("webhook-signature").iter().flat_map(|value| value.split(' ')).collect();
        assert_eq!(signatures.len(), n_signatures, "{}", request.head);
        assert_eq!(request.header("webhook-id").len(), 1);
    }
}

#[tokio::test]
async fn a_connection_serves_again_after_a_success() {
    // Too long to have come along with its head.
    let long = format!("HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n{}", "x".repeat(60_000));
    for answer in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno",
        long.leak(),
    ] {
        let (address, mut requests) = recorder(answer).await;
        let sink = sink(&format!("http://{address}"), "");
        for _ in 0..3 {
            let taken = sink.deliver(&envelope(1)).await.is_ok();
            assert_eq!(taken, !answer.contains("503"));
            assert_eq!(requests.recv().await.unwrap().connection, 0, "{answer}");
        }
    }
}

#[tokio::test]
async fn any_success_will_do_whatever_its_body_is() {
    for answer in [
        Script::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        Script::Say(b"HTTP/1.1 202 Accepted\r\n\r\n<html>"),
        Script::Say(b"HTTP/1.1 299 Odd\r\ncontent-length: 500\r\n\r\ncut"),
        Script::Drip(b"HTTP/1.1 200 OK\r\n\r\n"),
        Script::Drip(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n"),
    ] {
        let sink = sink(&format!("http://{}", serve(answer).await), "timeout = \"1h\"\n");
        timeout(Duration::from_secs(60), sink.deliver(&envelope(1))).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_is_no_success() {
    let (other, mut requests) = recorder("HTTP/1.1 204 No Content\r\n\r\n").await;
    for status in [301, 302, 303, 307, 308] {
        let answer =
            format!("HTTP/1.1 {status} Moved\r\nlocation: http://{other}/\r\ncontent-length: 0\r\n\r\n");
        let url = format!("http://{}", serve(Script::Say(answer.leak().as_bytes())).await);
        let refusal = sink(&url, "").deliver(&envelope(1)).await.unwrap_err();
        assert!(matches!(refusal.cause, RefusalCause::Status(found) if found == status), "{refusal:?}");
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn what_the_receiver_asks_to_wait_is_heard_as_seconds_and_as_a_date() {
    for (head, seconds) in [
        ("retry-after: 90", Some(90)),
        ("date: Mon, 02 Mar 2026 12:00:00 GMT\r\nretry-after: Mon, 02 Mar 2026 12:02:00 GMT", Some(121)),
        ("retry-after: 99999999", Some(86_400)),
        ("retry-after: 0", None),
        ("retry-after: soon", None),
        ("x: y", None),
    ] {
        for status in [429, 503] {
            let answer = format!("HTTP/1.1 {status} No\r\n{head}\r\ncontent-length: 0\r\n\r\n");
            let url = format!("http://{}", serve(Script::Say(answer.leak().as_bytes())).await);
            let refusal = sink(&url, "").deliver(&envelope(1)).await.unwrap_err();
            assert_eq!(refusal.retry_after, seconds.map(Duration::from_secs), "{status} {head}");
            assert_eq!(refusal.answer, None);
        }
    }
}

#[tokio::test]
async fn of_an_answer_without_end_only_the_beginning_is_read() {
    let giant = format!("HTTP/1.1 500 No\r\ncontent-length: 1000000000\r\n\r\n{}", "word ".repeat(200_000));
    for answer in [Script::Say(giant.leak().as_bytes()), Script::Drip(b"HTTP/1.1 500 No\r\n\r\nword word")] {
        let sink = sink(&format!("http://{}", serve(answer).await), "timeout = \"1h\"\n");
        let taken = timeout(Duration::from_secs(60), sink.deliver(&envelope(1))).await.unwrap();
        let said = taken.unwrap_err().answer.unwrap();
        assert!(said.starts_with("word word") && said.chars().count() <= 512, "{said}");
    }
}

#[tokio::test]
async fn an_attempt_ends_at_its_time_out() {
    for answer in [Script::Hang, Script::Drip(b"HTTP/1.1 200 OK\r\nx:"), Script::Drip(b"HTTP/1.1 200")] {
        let sink = sink(&format!("http://{}", serve(answer).await), "timeout = \"1s\"\n");
        let started = Instant::now();
        let taken = timeout(Duration::from_secs(60), sink.deliver(&envelope(1))).await.unwrap();
        assert!(Duration::from_secs(1) <= started.elapsed());
        assert!(matches!(taken.unwrap_err().cause, RefusalCause::NoAnswer(NoAnswer::Broken(_))));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_success_and_nobody_at_all_is_told_apart() {
    for answer in [
        Script::Say(b""),
        Script::SayAndReset(b""),
        Script::Say(b"HTTP/1.1 2"),
        Script::Say(b"SSH-2.0-x\r\n"),
    ] {
        let url = format!("http://{}", serve(answer).await);
        let refusal = sink(&url, "").deliver(&envelope(1)).await.unwrap_err();
        assert!(matches!(refusal.cause, RefusalCause::NoAnswer(NoAnswer::Broken(_))), "{answer:?}");
    }
    let refusal = sink(&closed().await, "").deliver(&envelope(1)).await.unwrap_err();
    assert!(matches!(refusal.cause, RefusalCause::NoAnswer(NoAnswer::NotConnected(_))), "{refusal:?}");
    assert!(ErrorChain(&refusal).to_string().starts_with("not delivered: no connection: "));
}

#[tokio::test]
async fn no_refusal_tells_a_secret_or_the_address() {
    let more = format!(
        "signing_secret = [\"{SECRET}\", \"{OTHER_SECRET}\"]\nheaders.authorization = \"Bearer CANARY-TOKEN\"\n"
    );
    // What we sent, said back whole, taken apart, and as one word.
    let said = "we got CANARY-TOKEN, Bearer CANARY-TOKEN, MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, \
                whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA and /hook/CANARY-IN-THE-PATH?key=CANARY-QUERY";
    let answer = format!("HTTP/1.1 400 No\r\ncontent-length: {}\r\n\r\n{said}", said.len());
    let url = format!(
        "http://{}/hook/CANARY-IN-THE-PATH?key=CANARY-QUERY",
        serve(Script::Say(answer.leak().as_bytes())).await
    );
    let refused = sink(&url, &more).deliver(&envelope(1)).await.unwrap_err();
    assert_eq!(refused.answer.as_deref(), Some("we got ***, ***, ***, whsec_*** and /hook/***?***"));
    assert_eq!(ErrorChain(&refused).to_string(), "not delivered: the receiver answered 400");
    let closed = closed().await + "/hook/CANARY-IN-THE-PATH?key=CANARY-QUERY";
    for refusal in [refused, sink(&closed, &more).deliver(&envelope(1)).await.unwrap_err()] {
        assert_tells_nothing(&refusal);
    }
}

fn assert_tells_nothing(refusal: &Refusal) {
    let text = format!("{} {refusal:?}", ErrorChain(refusal));
    for secret in ["CANARY", "key=", &SECRET[6..], &OTHER_SECRET[6..]] {
        assert!(!text.contains(secret), "{text}");
    }
}

/// A webhook as the configuration makes it; `more` are further keys of it.
fn webhook(url: &str, more: &str) -> config::Webhook {
    let text = format!(
        "[accounts.store]\napp_key = \"k\"\napp_token = \"t\"\n[sinks.hook]\ntype = \"webhook\"\nurl = \"{url}\"\n{more}"
    );
    let SinkKind::Webhook(webhook) = load(&text).sinks.remove(0).kind else { panic!("{text}") };
    *webhook
}

fn sink(url: &str, more: &str) -> WebhookSink {
    WebhookSink::new(&webhook(url, more)).unwrap()
}

/// The event of an order with this number.
fn envelope(n: usize) -> Envelope {
    let id = format!("{n:032x}");
    let line = serde_json::json!({
        "specversion": "1.0", "id": id, "source": "http://x/api/orders/feed", "type": "com.vtex.orders.feed.v3.event",
        "subject": format!("order-{n}"), "account": "store", "state": "handling", "sequence": format!("{n:020}"),
        "superseded": false, "data": { "event": { "orderId": format!("order-{n}"), "name": "Zoë" } },
    });
    Envelope { id, order_id: "1-01".to_owned(), line: line.to_string(), ..Envelope::default() }
}

/// The URL of a port where nobody listens.
async fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A request as it arrived.
struct Request {
    /// Which connection it came on, from 0.
    connection: usize,
    /// Request line and headers, with the empty line.
    head: String,
    body: String,
}

impl Request {
    fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

/// Gives every request the same answer on connections that stay; what arrives is handed out.
async fn recorder(answer: &'static str) -> (SocketAddr, UnboundedReceiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = unbounded_channel();
    tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(record(stream, connection, answer, sender.clone()));
        }
    });
    (address, requests)
}

/// Serves one connection until it is closed.
async fn record(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    answer: &'static str,
    requests: UnboundedSender<Request>,
) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let mut request = Request { connection, head: String::from_utf8(head).unwrap(), body: String::new() };
        let mut body = vec![0; request.header("content-length")[0].parse().unwrap()];
        stream.read_exact(&mut body).await?;
        request.body = String::from_utf8(body).unwrap();
        requests.send(request).ok();
        stream.write_all(answer.as_bytes()).await?;
    }
}
