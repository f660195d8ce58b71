//! The sandbox on a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
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
use super::wire::{Manner, Outgoing, Reply};

/// Connections served at the same time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 2_000;
/// Longer than clients keep idle connections, so that it is they who close them.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(600);
const MAX_REQUEST_BYTES: usize = 4 << 20;
/// How long requests in hand may take after the shutdown began.
const GRACE: Duration = Duration::from_secs(2);

impl Sandbox {
    /// Answers HTTP/1.1 requests until `shutdown`; then ends the requests in hand and returns.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) {
        let sandbox = self.clone();
        serve(listener, shutdown, move |request| sandbox.answer(request)).await;
    }
}

/// Puts a function from requests to replies on a socket.
pub(super) async fn serve<A>(listener: TcpListener, shutdown: CancellationToken, answer: A)
where
    A: Fn(&Request<Bytes>) -> Reply + Clone + Send + Sync + 'static,
{
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    while let Some(accepted) = shutdown.run_until_cancelled(accept(&listener, &places)).await {
        let Some((stream, place)) = accepted else { continue };
        let (answer, shutdown, abort) = (answer.clone(), shutdown.clone(), abort.clone());
        connections.spawn(async move {
            abort.run_until_cancelled(serve_connection(stream, shutdown, answer)).await;
            drop(place);
        });
    }
    connections.close();
    if timeout(GRACE, connections.wait()).await.is_err() {
        abort.cancel();
        connections.wait().await;
    }
}

async fn respond<A>(
    request: Request<Incoming>,
    answer: &A,
    reset: &AtomicBool,
) -> Result<Response<Outgoing>, NoAnswer>
where
    A: Fn(&Request<Bytes>) -> Reply,
{
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(body) => body,
        Err(error) => {
            let mut refusal = Response::default();
            *refusal.status_mut() = match error.downcast_ref::<LengthLimitError>() {
                Some(_) => StatusCode::PAYLOAD_TOO_LARGE,
                // It broke off, or is not what its head says.
                None => StatusCode::BAD_REQUEST,
            };
            return Reply::whole(refusal).outgoing().ok_or(NoAnswer);
        }
    };
    let reply = answer(&Request::from_parts(head, body.to_bytes()));
    sleep(reply.delay).await;
    reset.store(reply.manner == Manner::Reset, Ordering::Relaxed);
    reply.outgoing().ok_or(NoAnswer)
}

/// The connection ends here, on purpose.
#[derive(Debug, thiserror::Error)]
#[error("no answer, on purpose")]
struct NoAnswer;

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

async fn serve_connection<A>(stream: TcpStream, shutdown: CancellationToken, answer: A)
where
    A: Fn(&Request<Bytes>) -> Reply,
{
    let reset = AtomicBool::new(false);
    let service = service_fn(|request| respond(request, &answer, &reset));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = shutdown.cancelled() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the sandbox ended early");
    }
    if reset.load(Ordering::Relaxed)
        && let Err(error) = connection.into_parts().io.into_inner().set_zero_linger()
    {
        tracing::debug!(%error, "a connection to the sandbox could not be reset");
    }
}
