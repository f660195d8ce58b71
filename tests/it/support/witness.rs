//! A server in front of the sandbox that looks into the journal before each commit takes effect.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

/// What the witness saw.
#[derive(Default)]
pub(crate) struct Testimony {
    /// Handles that arrived in commits.
    pub(crate) n_handles: usize,
    /// Committed events that could not be read in the journal at that moment.
    pub(crate) unjournaled: Vec<(String, String)>,
}

/// Passes everything on to `upstream`; returns its own address.
pub(crate) async fn serve(
    upstream: SocketAddr,
    journal: PathBuf,
    testimony: Arc<Mutex<Testimony>>,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (client, journal, testimony) = (client.clone(), journal.clone(), Arc::clone(&testimony));
            let service = service_fn(move |request| {
                let (client, journal, testimony) = (client.clone(), journal.clone(), Arc::clone(&testimony));
                async move { Ok::<_, Infallible>(pass_on(request, upstream, client, journal, testimony).await) }
            });
            // A killed agent breaks its connections: that is what the test is about.
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    address
}

async fn pass_on(
    request: Request<Incoming>,
    upstream: SocketAddr,
    client: reqwest::Client,
    journal: PathBuf,
    testimony: Arc<Mutex<Testimony>>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return Response::new(Full::default());
    };
    if head.method == Method::POST {
        look(&body, &journal, &testimony);
    }
    let url = format!("http://{upstream}{}", head.uri);
    let answer = client.request(head.method, url).headers(head.headers).body(body).send().await.unwrap();
    let status = answer.status();
    let mut response = Response::new(Full::new(answer.bytes().await.unwrap()));
    *response.status_mut() = status;
    response
}

fn look(body: &[u8], journal: &PathBuf, testimony: &Mutex<Testimony>) {
    let body: Value = serde_json::from_slice(body).unwrap();
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(journal, flags).unwrap();
    let mut statement = connection.prepare("SELECT order_id, state FROM events").unwrap();
    let journaled: BTreeSet<(String, String)> =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    let mut testimony = testimony.lock().unwrap();
    for handle in body["handles"].as_array().unwrap() {
        let claims = handle.as_str().unwrap().split('.').nth(1).unwrap();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        let text = |name: &str| claims[name].as_str().unwrap().to_owned();
        let event = (text("OrderId"), text("State"));
        testimony.n_handles += 1;
        if !journaled.contains(&event) {
            testimony.unjournaled.push(event);
        }
    }
}
