//! A receiver of webhooks in this process, which remembers what came and answers as it is told to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

/// One delivery as it came.
#[derive(Debug, Clone)]
pub(crate) struct Came {
    pub(crate) id: String,
    pub(crate) order: String,
    pub(crate) sequence: String,
    /// What was answered.
    pub(crate) status: u16,
}

#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
}

impl Receiver {
    /// Serves on `address` until the runtime ends; `status` decides on each delivery.
    pub(crate) async fn serve(
        address: SocketAddr,
        status: impl Fn(&Came) -> u16 + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), came: Arc::default() };
        let (came, status) = (Arc::clone(&receiver.came), Arc::new(status));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (came, status) = (Arc::clone(&came), Arc::clone(&status));
                let service =
                    service_fn(move |request| answer(request, Arc::clone(&came), Arc::clone(&status)));
                // A client that is killed breaks its connections.
                tokio::spawn(async move {
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok()
                });
            }
        });
        receiver
    }

    /// All that came so far, in the order of the answers.
    pub(crate) fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap().clone()
    }

    pub(crate) fn n_taken(&self) -> usize {
        self.came.lock().unwrap().iter().filter(|came| came.status < 300).count()
    }
}

async fn answer(
    request: Request<Incoming>,
    came: Arc<Mutex<Vec<Came>>>,
    status: Arc<impl Fn(&Came) -> u16>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut answer = Response::new(Empty::new());
    // Half a delivery is none: the client is gone.
    let Ok(body) = request.into_body().collect().await else { return Ok(answer) };
    let envelope: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
    let text = |member: &str| envelope[member].as_str().unwrap().to_owned();
    let mut it = Came { id: text("id"), order: text("subject"), sequence: text("sequence"), status: 0 };
    it.status = status(&it);
    *answer.status_mut() = StatusCode::from_u16(it.status).unwrap();
    came.lock().unwrap().push(it);
    Ok(answer)
}
