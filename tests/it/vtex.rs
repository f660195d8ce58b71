//! The client against exact requests and against servers that break off, drip, hang and lie.

use std::io::Write;
use std::time::Duration;

use mockito::{Matcher, Server};
use order_feed_agent::event::Item;
use order_feed_agent::observe::logging::ErrorChain;
use order_feed_agent::policy::classify::Class;
use order_feed_agent::vtex::feed::{Feed, FeedError};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::support::raw_server::{Script, serve};
use crate::support::{TOKEN, feed, journaled};

const ITEM: &str =
    r#"{"handle":"h.1","orderId":"1-01","state":"handling","currentChange":"2026-03-02T20:54:23Z"}"#;

async fn receive(base_url: &str, more: &str) -> Result<Vec<Item>, FeedError> {
    feed(base_url, more).receive(10, &CancellationToken::new()).await.map(|reply| reply.body)
}

#[tokio::test]
async fn a_receive_is_exactly_this_request() {
    let mut server = Server::new_async().await;
    let mock = server
        .mock("GET", "/api/orders/feed")
        .match_query(Matcher::Exact("maxlot=10".into()))
        .match_header("x-vtex-api-appkey", "vtexappkey-store-ABCDEF")
        .match_header("x-vtex-api-apptoken", TOKEN)
        .match_header("accept", "application/json")
        .match_header("content-type", "application/json")
        .match_header("cookie", Matcher::Missing)
        .with_header("set-cookie", "session=1")
        .with_body(format!("[{ITEM}]"))
        .expect(2)
        .create_async()
        .await;
    let feed = feed(&server.url(), "");
    for _ in 0..2 {
        assert_eq!(feed.receive(10, &CancellationToken::new()).await.unwrap().body.len(), 1);
    }
    mock.assert_async().await;
}

#[tokio::test]
async fn a_commit_is_exactly_this_request_and_any_success_will_do() {
    for (status, body) in [(200, ""), (204, ""), (200, "ok"), (202, "{\"errors\":true}")] {
        let mut server = Server::new_async().await;
        let mock = server
            .mock("POST", "/api/orders/feed")
            .match_body(Matcher::Exact(r#"{"handles":["h.1","AQEB+/="]}"#.into()))
            .match_header("x-vtex-api-apptoken", TOKEN)
            .with_status(status)
            .with_body(body)
            .expect(1)
            .create_async()
            .await;
        server
            .mock("GET", "/api/orders/feed")
            .match_query(Matcher::Any)
            .with_body(format!("[{ITEM},{}]", ITEM.replace("h.1", "AQEB+/=")))
            .create_async()
            .await;
        let feed = feed(&server.url(), "");
        let items = feed.receive(10, &CancellationToken::new()).await.unwrap().body;
        let directory = tempfile::tempdir().unwrap();
        feed.commit(&journaled(directory.path(), items).await).await.unwrap();
        mock.assert_async().await;
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_is_no_commit() {
    let mut other = Server::new_async().await;
    let nobody = other.mock("GET", Matcher::Any).expect(0).create_async().await;
    let nobody_posts = other.mock("POST", Matcher::Any).expect(0).create_async().await;
    let mut server = Server::new_async().await;
    for method in ["GET", "POST"] {
        server
            .mock(method, Matcher::Any)
            .with_status(302)
            .with_header("location", &format!("{}/api/orders/feed", other.url()))
            .create_async()
            .await;
    }
    assert_eq!(receive(&server.url(), "").await.unwrap_err().class(), Class::Permanent);

    let directory = tempfile::tempdir().unwrap();
    let items = {
        let mut good = Server::new_async().await;
        good.mock("GET", Matcher::Any).with_body(format!("[{ITEM}]")).create_async().await;
        receive(&good.url(), "").await.unwrap()
    };
    let events = journaled(directory.path(), items).await;
    assert_eq!(feed(&server.url(), "").commit(&events).await.unwrap_err().class(), Class::Permanent);
    nobody.assert_async().await;
    nobody_posts.assert_async().await;
}

#[tokio::test]
async fn an_empty_feed_answers_an_empty_array_or_nothing() {
    for (status, body) in [(200, "[]"), (204, "")] {
        let mut server = Server::new_async().await;
        server.mock("GET", Matcher::Any).with_status(status).with_body(body).create_async().await;
        assert_eq!(receive(&server.url(), "").await.unwrap(), []);
    }
}

#[tokio::test]
async fn every_refusal_has_its_class() {
    for (status, class) in [
        (401, Class::Unauthorized),
        (404, Class::Unconfigured),
        (429, Class::Throttled),
        (503, Class::Transient),
        (418, Class::Permanent),
    ] {
        let mut server = Server::new_async().await;
        server.mock("GET", Matcher::Any).with_status(status).with_body("<html>").create_async().await;
        let error = receive(&server.url(), "").await.unwrap_err();
        assert_eq!((error.class(), error.status()), (class, Some(status as u16)));
    }
}

#[tokio::test]
async fn nothing_of_a_body_that_is_cut_is_used() {
    let whole = "HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n[{\"handle\":\"h\",\"orderId\":\"1\"}]";
    for script in [
        Script::Say(whole.as_bytes()),
        Script::SayAndReset(whole.as_bytes()),
        Script::Say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1e\r\n[{\"handle\":\"h\",\"orderId\":\"1\"}]\r\n"),
        Script::Say(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00"),
        Script::Say(b"HTTP/1.1 2"),
        Script::Say(b"SSH-2.0-OpenSSH_9.2\r\n"),
        Script::Say(b""),
        Script::SayAndReset(b""),
    ] {
        let url = format!("http://{}", serve(script).await);
        let error = receive(&url, "").await.unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{script:?}: {}", ErrorChain(&error));
    }
    let url = format!("http://{}", serve(Script::Say(b"HTTP/1.1 200 OK\r\n\r\n[{\"handle\":\"h\"")).await);
    assert_eq!(receive(&url, "").await.unwrap_err().class(), Class::Malformed);
}

#[tokio::test]
async fn a_drip_ends_at_the_deadline_of_the_attempt() {
    let more = "[requests]\ntimeout = \"1s\"";
    for script in
        [Script::Drip(b"HTTP/1.1 200 OK\r\n\r\n["), Script::Drip(b"HTTP/1.1 200 OK\r\nx:"), Script::Hang]
    {
        let url = format!("http://{}", serve(script).await);
        let error = timeout(Duration::from_secs(60), receive(&url, more)).await.unwrap().unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{script:?}");
    }
}

#[tokio::test]
async fn a_body_is_capped_after_decompression() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![b' '; 4 * 1024 * 1024]).unwrap();
    let mut server = Server::new_async().await;
    server
        .mock("GET", Matcher::Any)
        .with_header("content-encoding", "gzip")
        .with_body(gzip.finish().unwrap())
        .create_async()
        .await;
    let error = receive(&server.url(), "[requests]\nmax_body = \"1MiB\"").await.unwrap_err();
    assert_eq!(error.class(), Class::Malformed);
    assert!(ErrorChain(&error).to_string().contains("1048576"), "{}", ErrorChain(&error));
}

#[tokio::test]
async fn a_receive_without_answer_is_dropped_five_seconds_after_the_signal() {
    let url = format!("http://{}", serve(Script::Hang).await);
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    let started = Instant::now();
    let error = feed(&url, "").receive(10, &shutdown).await.unwrap_err();
    assert!(Duration::from_secs(5) <= started.elapsed());
    assert!(ErrorChain(&error).to_string().contains("given up at shutdown"));
}

#[tokio::test]
async fn no_error_tells_address_or_token() {
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let error = receive(&format!("http://{closed}"), "").await.unwrap_err();
    let text = format!("{} {error:?}", ErrorChain(&error));
    assert!(!text.contains("maxlot") && !text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn what_an_answer_asks_of_the_pace_is_read_from_its_headers() {
    let wait = |error: &FeedError| error.hints().wait.map(|hint| hint.wait.as_secs());
    for (headers, expected) in [
        (&[("retry-after", "90")][..], Some(90)),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "0")], None),
        (&[("retry-after", "7"), ("retry-after", "120")], Some(120)),
        (&[("x-ratelimit-reset", "100")], Some(100)),
    ] {
        let mut server = Server::new_async().await;
        let mut mock = server.mock("GET", Matcher::Any).with_status(429);
        for (name, value) in headers {
            mock = mock.with_header(*name, value);
        }
        mock.create_async().await;
        assert_eq!(wait(&receive(&server.url(), "").await.unwrap_err()), expected, "{headers:?}");
    }
    let mut server = Server::new_async().await;
    let mock = server.mock("GET", Matcher::Any).with_body("[]").with_header("x-ratelimit-remaining", "3");
    mock.with_header("x-ratelimit-reset", "20").create_async().await;
    let reply = feed(&server.url(), "").receive(10, &CancellationToken::new()).await.unwrap();
    assert_eq!(reply.hints.slow_down.map(|hint| hint.length), Some(Duration::from_secs(20)));
}

#[tokio::test]
async fn what_vtex_says_of_an_error_is_told_short_and_without_secrets() {
    let long = "x".repeat(200);
    for (body, expected) in [
        (
            "{\"error\":{\"code\":\"1\",\"message\":\"Unauthorized access\"}}".to_owned(),
            "Unauthorized access",
        ),
        (format!("bad token {TOKEN} for vtexappkey-store-ABCDEF"), "bad token *** for ***"),
        (format!("no such handle: {long} here"), "no such handle: *** here"),
        ("word ".repeat(1_000), "word word"),
    ] {
        let mut server = Server::new_async().await;
        server.mock("GET", Matcher::Any).with_status(403).with_body(&body).create_async().await;
        let Err(FeedError::Refused { excerpt, .. }) = receive(&server.url(), "").await else {
            panic!("{body}")
        };
        assert!(excerpt.contains(expected) && excerpt.chars().count() <= 512, "{excerpt}");
    }
}
