//! The example that notifies price changes: what it sends, in which order, and what it sends twice.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use order_feed_agent::account::gate::Attempt;
use order_feed_agent::account::{Gate, gate};
use order_feed_agent::http::Hints;
use order_feed_agent::http::client::Clients;
use order_feed_agent::observe::liveness::Liveness;
use order_feed_agent::observe::metrics::Totals;
use order_feed_agent::policy::backoff::Backoff;
use order_feed_agent::policy::classify::{Class, Operation};
use order_feed_agent::policy::pace::Preset;
use order_feed_agent::policy::retry::Retry;
use order_feed_agent::policy::retry_after::Hint;
use order_feed_agent::policy::{breaker, pause};
use order_feed_agent::vtex::http::Http;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::support::account;
use sending::{Done, NotSent, Notifier, send_all};

#[path = "../../examples/price_notifications/input.rs"]
mod input;
#[path = "../../examples/price_notifications/sending.rs"]
mod sending;

const MINUTE: Duration = Duration::from_secs(60);

/// How the server answers; after the last one with 200.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Status(u16),
    /// With this Retry-After in seconds.
    StatusAfter(u16, u64),
    /// The connection is closed instead.
    Closed,
}

/// A marketplace that notes each request as it stands on the wire.
#[derive(Clone, Default)]
struct Marketplace {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Marketplace {
    async fn start(answers: &[Answer]) -> (Self, SocketAddr) {
        let marketplace = Self::default();
        marketplace.answers.lock().unwrap().extend(answers);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = marketplace.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let serving = serving.clone();
                tokio::spawn(async move {
                    let service = service_fn(async |request| serving.answer(&request));
                    let connection = hyper::server::conn::http1::Builder::new();
                    connection.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        (marketplace, address)
    }

    fn answer(&self, request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, &'static str> {
        // Some servers refuse a POST without it.
        assert_eq!(request.headers()["content-length"], "0");
        self.seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Answer::Status(200));
        let response = Response::builder();
        let response = match answer {
            Answer::Status(status) => response.status(status),
            Answer::StatusAfter(status, seconds) => response.status(status).header("retry-after", seconds),
            Answer::Closed => return Err("closed"),
        };
        Ok(response.body(Bytes::from("so it is").into()).unwrap())
    }

    /// The SKUs as they stood in the paths.
    fn skus(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let sku = |line: &String| {
            let rest = line.strip_prefix("POST /notificator/my%20seller/changenotification/").unwrap();
            rest.strip_suffix("/price").unwrap().to_owned()
        };
        seen.iter().map(sku).collect()
    }
}

fn gate() -> Arc<Gate> {
    let Preset { per_second, credits, .. } = Preset::PRICING_WRITE;
    let settings = gate::Settings {
        per_second,
        burst: credits,
        concurrency: 4,
        rate_limit: pause::Settings { pause: MINUTE, max_pause: 15 * MINUTE },
        circuit_breaker: breaker::Settings { failures: 5, recovery: MINUTE, successes: 3 },
    };
    Arc::new(Gate::new("my seller".to_owned(), settings, 7))
}

fn notifier(address: SocketAddr, resend: bool) -> Arc<Notifier> {
    let account = account(&format!("http://{address}"), "");
    Arc::new(Notifier {
        http: Http::new(Clients::default().client(&account).unwrap(), &account),
        gate: gate(),
        seller: "my seller".to_owned(),
        retry: Retry {
            backoff: Backoff { base: Duration::from_millis(1), max: Duration::from_millis(1) },
            max_retries: 2,
            budget: MINUTE,
        },
        resend,
    })
}

/// Sends these one after another; returns what became of each, in their order.
async fn send(
    notifier: &Arc<Notifier>,
    skus: impl IntoIterator<Item = &str>,
    shutdown: &CancellationToken,
) -> Vec<Result<(), NotSent>> {
    let skus: Vec<&str> = skus.into_iter().collect();
    let input = input::read(std::io::Cursor::new(skus.join("\n")));
    let mut expected = skus.iter().filter(|sku| !sku.is_empty());
    let (_workers, mut results) = send_all(Arc::clone(notifier), 1, input.skus, shutdown.clone());
    let mut all = Vec::new();
    while let Some(Done { sku, result }) = results.recv().await {
        assert_eq!(expected.next().map(|sku| sku.trim()), Some(sku.as_str()));
        all.push(result);
    }
    all
}

#[tokio::test]
async fn each_sku_is_one_segment_of_one_request_in_its_order_or_refused_by_name() {
    let (marketplace, address) = Marketplace::start(&[]).await;
    let long = "x".repeat(10_000);
    let skus = ["1", "../../x?y=1#z", "a/b", "%2e%2e", "..", "a\0b", &long, " 2 ", ""];
    let results = send(&notifier(address, false), skus, &CancellationToken::new()).await;
    assert_eq!(marketplace.skus(), ["1", "..%2F..%2Fx%3Fy%3D1%23z", "a%2Fb", "%252e%252e", "2"]);
    let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!((results.len(), refused.len()), (8, 3), "{refused:?}");
    for (refused, text) in refused.iter().zip([r#"".." stands"#, r#""a\0b" holds"#, "longer than 256"]) {
        assert!(refused.to_string().contains(text), "{refused}");
    }
}

#[tokio::test]
async fn stdin_is_read_line_by_line_until_what_is_no_text_and_no_line_is_kept_whole_that_is_too_long() {
    let long = "é".repeat(1_000_000);
    let text = [b"1\r\n\nx", long.as_bytes(), b"\n2\n\xff\n3\n"].concat();
    let mut input = input::read(std::io::Cursor::new(text));
    let mut skus = Vec::new();
    while let Some(sku) = input.skus.recv().await {
        skus.push(sku);
    }
    assert_eq!((skus.len(), skus[0].as_str(), skus[2].as_str()), (3, "1", "2"));
    assert!((1_000..=64 * 1024).contains(&skus[1].len()), "{} bytes", skus[1].len());
    assert_eq!(input.n_read.load(Ordering::Relaxed), 3);
    assert_eq!(input.broken.recv().await.unwrap().to_string(), "a line is not UTF-8");
}

#[tokio::test]
async fn a_notification_that_may_have_arrived_is_repeated_only_where_the_call_site_says_so() {
    use Answer::{Closed, Status};
    for (answer, without_resend, with_resend) in [
        (Status(500), 1, 2),
        (Status(502), 1, 2),
        (Status(504), 1, 2),
        (Closed, 1, 2),
        // Refused for its load: without effect.
        (Status(503), 2, 2),
        (Status(400), 1, 1),
    ] {
        for (resend, expected) in [(false, without_resend), (true, with_resend)] {
            let (marketplace, address) = Marketplace::start(&[answer]).await;
            send(&notifier(address, resend), ["1"], &CancellationToken::new()).await;
            assert_eq!(marketplace.skus().len(), expected, "{answer:?}, resend {resend}");
        }
    }
}

#[tokio::test]
async fn what_was_never_sent_is_tried_again() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let notifier = notifier(address, false);
    assert!(send(&notifier, ["1"], &CancellationToken::new()).await[0].is_err());
    let expected = Totals { requests: 3, throttled: 0, retried_well: 0, given_up: 1 };
    assert_eq!(notifier.gate.metrics().totals(), expected);
}

#[tokio::test]
async fn a_refused_token_ends_it_all() {
    let (marketplace, address) = Marketplace::start(&[Answer::Status(401)]).await;
    let shutdown = CancellationToken::new();
    let results = send(&notifier(address, false), ["1", "2", "3"], &shutdown).await;
    assert_eq!((results.len(), marketplace.skus()), (1, vec!["1".to_owned()]));
    assert_eq!(results[0].as_ref().unwrap_err().told(), ": so it is");
    assert!(shutdown.is_cancelled());
}

#[tokio::test]
async fn after_a_429_nothing_is_sent_and_a_shutdown_does_not_wait_for_its_end() {
    let (marketplace, address) = Marketplace::start(&[Answer::StatusAfter(429, 90)]).await;
    let (notifier, shutdown) = (notifier(address, false), CancellationToken::new());
    let stopping = async {
        while notifier.gate.pause_left().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
        assert!(MINUTE < notifier.gate.pause_left().unwrap());
        shutdown.cancel();
    };
    let both = async { tokio::join!(send(&notifier, ["1", "2"], &shutdown), stopping) };
    let (results, ()) = timeout(MINUTE, both).await.unwrap();
    assert_eq!((results.len(), marketplace.skus().len()), (1, 1));
    assert!(matches!(&results[0], Err(NotSent::Failed(error)) if error.class() == Class::Throttled));
}

#[tokio::test(start_paused = true)]
async fn the_gate_holds_back_every_notification_for_as_long_as_a_429_asks() {
    let (gate, liveness) = (gate(), Liveness::default());
    let heartbeat = liveness.register("test");
    let start = Instant::now();
    let throttled = gate.pass(Operation::NotifyPrice, &heartbeat).await;
    let hints = Hints { wait: Some(Hint { wait: Duration::from_secs(90), capped: false }), slow_down: None };
    throttled.settle(Attempt { account: "s", failure: Some(Class::Throttled), hints, counts: true });
    let (sender, mut passed) = mpsc::unbounded_channel();
    for _ in 0..4 {
        let (gate, sender, heartbeat) = (Arc::clone(&gate), sender.clone(), liveness.register("test"));
        tokio::spawn(async move {
            drop(gate.pass(Operation::NotifyPrice, &heartbeat).await);
            sender.send(start.elapsed()).unwrap();
        });
    }
    drop(sender);
    while let Some(at) = passed.recv().await {
        assert!(Duration::from_secs(90) <= at && at < Duration::from_secs(100), "{at:?}");
    }
    assert_eq!(gate.metrics().totals().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn the_credits_go_at_once_and_the_rest_at_the_documented_rate() {
    let (gate, heartbeat) = (gate(), Liveness::default().register("test"));
    let start = Instant::now();
    for _ in 0..1_000 {
        drop(gate.pass(Operation::NotifyPrice, &heartbeat).await);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    for _ in 0..400 {
        drop(gate.pass(Operation::NotifyPrice, &heartbeat).await);
    }
    let took = start.elapsed().as_secs_f64();
    assert!((9.9..11.0).contains(&took), "{took} s");
}
