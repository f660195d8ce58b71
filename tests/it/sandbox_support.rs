//! A sandbox on a free port and a client that speaks raw HTTP to it.

use std::io;
use std::net::SocketAddr;

use order_feed_agent::sandbox::{Options, Sandbox};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const APP_KEY: &str = "vtexappkey-mystore-ABCDEF";

/// Stops the server when it is dropped.
pub(crate) struct Stop {
    pub(crate) shutdown: DropGuard,
    pub(crate) served: JoinHandle<()>,
}

pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    app_token: &'static str,
}

/// All that came back on one connection.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// How reading ended; an error where the connection was reset.
    pub(crate) end: io::Result<()>,
}

pub(crate) async fn start(options: Options) -> (Sandbox, Client, Stop) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sandbox = Sandbox::new(options);
    let shutdown = CancellationToken::new();
    let server = sandbox.clone();
    let served = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { server.serve(listener, shutdown).await }
    });
    (sandbox, Client { address, app_token: "token" }, Stop { shutdown: shutdown.drop_guard(), served })
}

pub(crate) async fn start_oracle(sandbox: &Sandbox) -> (Client, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let oracle = sandbox.clone();
    tokio::spawn({
        let shutdown = shutdown.clone();
        async move { oracle.serve_oracle(listener, shutdown).await.unwrap() }
    });
    (Client { address, app_token: "" }, shutdown.drop_guard())
}

impl Client {
    pub(crate) fn with_token(&self, app_token: &'static str) -> Self {
        Self { address: self.address, app_token }
    }

    pub(crate) async fn receive(&self) -> Vec<Value> {
        let (status, body) = self.ask("GET", "/api/orders/feed?maxlot=10", "").await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) async fn commit(&self, items: &[Value]) -> (u16, String) {
        let handles: Vec<&Value> = items.iter().map(|item| &item["handle"]).collect();
        self.ask("POST", "/api/orders/feed", &json!({ "handles": handles }).to_string()).await
    }

    /// Status and body of an answer that is whole.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let answer = self.send(method, path, body).await;
        answer.end.unwrap();
        (answer.status, String::from_utf8(answer.body).unwrap())
    }

    /// Whatever comes back; status 0 where nothing does.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: sandbox\r\nX-VTEX-API-AppKey: {APP_KEY}\r\n\
             X-VTEX-API-AppToken: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.app_token,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer).await.map(|_| ());
        let split = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
        let head = String::from_utf8(answer[..split].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).map_or(0, |status| status.parse().unwrap());
        Answer { status, head, body: answer[split..].to_vec(), end }
    }
}
