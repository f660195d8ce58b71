//! The order feed (Feed v3) of one app key.
//!
//! Source: VTEX guide "Orders feed" and the Orders API reference, `GET` and `POST /api/orders/feed`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use tokio_util::sync::CancellationToken;

use super::http::{AttemptError, Http};
use super::wire;
use crate::event::Item;
use crate::journal::Journaled;
use crate::policy::classify::{Class, Operation, classify};

/// How long a receive may go without answer headers once shutdown has begun. What VTEX leased by then comes back.
pub const ABANDON_AFTER: Duration = Duration::from_secs(5);

/// At most so many handles go into one commit: the queue behind the feed deletes ten at a time.
pub const COMMIT_MAX: usize = 10;

const FEED: &[&str] = &["api", "orders", "feed"];

/// Where events come from. Each call is one attempt.
pub trait Feed: Send + Sync {
    /// Leases up to `max` visible items (1–10). Fewer, even none, do not prove that there are no more.
    ///
    /// After `shutdown` an answer that has not begun is waited for no longer than [`ABANDON_AFTER`]. Not cancel
    /// safe: dropping it may leave items leased that nobody journals; they come back.
    fn receive(
        &self,
        max: u8,
        shutdown: &CancellationToken,
    ) -> impl Future<Output = Result<Vec<Item>, FeedError>> + Send;

    /// Makes the feed forget journaled events, for good; at most [`COMMIT_MAX`], never none. The same commit
    /// sent again is harmless.
    fn commit(&self, events: &[Journaled]) -> impl Future<Output = Result<(), FeedError>> + Send;
}

impl<F: Feed> Feed for &F {
    fn receive(
        &self,
        max: u8,
        shutdown: &CancellationToken,
    ) -> impl Future<Output = Result<Vec<Item>, FeedError>> + Send {
        (**self).receive(max, shutdown)
    }

    fn commit(&self, events: &[Journaled]) -> impl Future<Output = Result<(), FeedError>> + Send {
        (**self).commit(events)
    }
}

/// Why one attempt brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    #[error("VTEX answered {status}")]
    Refused { status: StatusCode, class: Class },
    #[error("VTEX answered {status} with a body that is not an array of items")]
    Malformed { status: StatusCode, source: serde_json::Error },
    #[error("no usable answer")]
    Attempt(#[from] AttemptError),
}

impl FeedError {
    pub fn class(&self) -> Class {
        match self {
            Self::Refused { class, .. } => *class,
            Self::Malformed { .. } | Self::Attempt(AttemptError::TooLarge { .. }) => Class::Malformed,
            Self::Attempt(AttemptError::Network(_) | AttemptError::Abandoned) => Class::Transient,
        }
    }

    /// The status, where an answer came.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Malformed { status, .. } => Some(status.as_u16()),
            Self::Attempt(_) => None,
        }
    }
}

/// The feed behind HTTP.
pub struct HttpFeed {
    http: Arc<Http>,
    account: String,
}

impl HttpFeed {
    /// `account` is the feed's name in the configuration, which is part of each event's key.
    pub fn new(http: Arc<Http>, account: String) -> Self {
        Self { http, account }
    }
}

impl Feed for HttpFeed {
    async fn receive(&self, max: u8, shutdown: &CancellationToken) -> Result<Vec<Item>, FeedError> {
        let abandoned = async {
            shutdown.cancelled().await;
            tokio::time::sleep(ABANDON_AFTER).await;
        };
        let query = format!("maxlot={max}");
        let answer = self.http.send(Method::GET, FEED, Some(&query), Vec::new(), abandoned).await?;
        let status = answer.status();
        if let Some(class) = classify(Operation::Receive, status.as_u16()) {
            return Err(FeedError::Refused { status, class });
        }
        let body = answer.body().await?;
        if status == StatusCode::NO_CONTENT {
            return Ok(Vec::new());
        }
        wire::read_batch(&self.account, &body).map_err(|source| FeedError::Malformed { status, source })
    }

    async fn commit(&self, events: &[Journaled]) -> Result<(), FeedError> {
        assert!(!events.is_empty() && events.len() <= COMMIT_MAX, "a commit of {} events", events.len());
        let body = wire::commit_body(events.iter().map(Journaled::handle));
        let answer = self.http.send(Method::POST, FEED, None, body, std::future::pending()).await?;
        // What a success says in its body is undocumented and proves nothing.
        match classify(Operation::Commit, answer.status().as_u16()) {
            None => Ok(()),
            Some(class) => Err(FeedError::Refused { status: answer.status(), class }),
        }
    }
}
