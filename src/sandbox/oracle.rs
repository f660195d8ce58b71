//! The oracle: a second address at which a test pushes events, moves the clock and reads the ledger.
//!
//! It asks for no key and tells handles of nobody, but it lets whoever reaches it change what the sandbox does: it
//! listens on loopback only.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Sandbox;
use super::server::serve;
use super::strict::Table;
use super::text::Span;
use super::wire::Reply;

/// One jump of the clock; what happens in it has to be made up at once.
const LONGEST_JUMP: Duration = Duration::from_secs(31 * 86_400);

impl Sandbox {
    /// Serves the oracle until `shutdown`.
    ///
    /// # Errors
    /// When the listener is on an address that others can reach.
    pub async fn serve_oracle(&self, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
        if !listener.local_addr()?.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the oracle listens on loopback only"));
        }
        let sandbox = self.clone();
        serve(listener, shutdown, move |request| Reply::whole(sandbox.consult(request))).await;
        Ok(())
    }

    fn consult(&self, request: &Request<Bytes>) -> Response<Bytes> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/ledger") => answer(StatusCode::OK, &self.ledger()),
            (&Method::GET, "/clock") => answer(StatusCode::OK, &json!({"now_ms": self.now_ms()})),
            (&Method::POST, "/clock") => self.move_clock(request.body()),
            (&Method::POST, "/events") => self.push_events(request.body()),
            _ => refused(StatusCode::NOT_FOUND, "GET /ledger, GET or POST /clock, POST /events"),
        }
    }

    fn move_clock(&self, body: &Bytes) -> Response<Bytes> {
        match serde_json::from_slice(body) {
            Ok(Table(Jump { advance: Span(by) })) if by <= LONGEST_JUMP => {
                self.advance(by);
                answer(StatusCode::OK, &json!({"now_ms": self.now_ms()}))
            }
            Ok(_) => refused(StatusCode::BAD_REQUEST, "the clock moves by at most 31 days at once"),
            Err(error) => refused(StatusCode::BAD_REQUEST, &format!("{{\"advance\":\"30s\"}}: {error}")),
        }
    }

    fn push_events(&self, body: &Bytes) -> Response<Bytes> {
        match serde_json::from_slice(body) {
            Ok(Table(Events { app_key, items })) => match self.push(&app_key, &items) {
                Ok(()) => answer(StatusCode::OK, &json!({"pushed": items.len()})),
                Err(unconfigured) => refused(StatusCode::CONFLICT, &unconfigured.to_string()),
            },
            Err(error) => {
                let form = "{\"app_key\":\"...\",\"items\":[...]}";
                refused(StatusCode::BAD_REQUEST, &format!("{form}: {error}"))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jump {
    advance: Span,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    app_key: String,
    /// JSON of any shape; normally objects without `handle`.
    items: Vec<Value>,
}

fn refused(status: StatusCode, why: &str) -> Response<Bytes> {
    answer(status, &json!({ "error": why }))
}

fn answer(status: StatusCode, value: &impl Serialize) -> Response<Bytes> {
    let mut response = Response::new(serde_json::to_vec(value).unwrap_or_default().into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
