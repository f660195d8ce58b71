//! The sandbox on a socket.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Sandbox;

/// Connections served at the same time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 2_000;
const MAX_REQUEST_BYTES: usize = 4 << 20;
/// How long requests in hand may take after the shutdown began.
const GRACE: Duration = Duration::from_secs(2);

impl Sandbox {
    /// Answers HTTP/1.1 requests until `shutdown`; then ends the requests in hand and returns.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        let abort = CancellationToken::new();
        while let Some(accepted) = shutdown.run_until_cancelled(accept(&listener, &places)).await {
            let Some((stream, place)) = accepted else { continue };
            let (sandbox, shutdown, abort) = (self.clone(), shutdown.clone(), abort.clone());
            connections.spawn(async move {
                abort.run_until_cancelled(serve_connection(sandbox, stream, shutdown)).await;
                drop(place);
            });
        }
        connections.close();
        if timeout(GRACE, connections.wait()).await.is_err() {
            abort.cancel();
            connections.wait().await;
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_REQUEST_BYTES).collect().await else {
            let mut refusal = Response::new(Full::default());
            *refusal.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
            return Ok(refusal);
        };
        Ok(self.answer(&Request::from_parts(head, body.to_bytes())).map(Full::new))
    }
}

/// The next connection and its place; none when accepting failed, which is waited out.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(_) => {
            // Out of file handles, most likely: they come back when connections end.
            sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

async fn serve_connection(sandbox: Sandbox, stream: TcpStream, shutdown: CancellationToken) {
    let service = service_fn(|request| sandbox.respond(request));
    let mut connection = std::pin::pin!(
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the sandbox ended early");
    }
}
