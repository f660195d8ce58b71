//! The order feed (Feed v3) of one app key.
//!
//! Source: VTEX guide "Orders feed" and the Orders API reference, `/api/orders/feed` and `/api/orders/feed/config`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use tokio_util::sync::CancellationToken;

use super::ask::ask;
use super::http::{AttemptError, Http, Request};
use super::path::Segment::{self, Fixed};
use super::wire::{self, NotUnderstood};
use crate::config::Secret;
use crate::event::Item;
use crate::http::{Answer, Hints, NoAnswer};
use crate::journal::Journaled;
use crate::policy::classify::{Class, Operation};
use crate::policy::replay::Reached;

/// How long a request may go without answer headers once shutdown has begun. What VTEX leased by then comes back.
pub const ABANDON_AFTER: Duration = Duration::from_secs(5);

/// At most so many handles go into one commit: the queue behind the feed deletes ten at a time.
pub const COMMIT_MAX: usize = 10;

const FEED: &[Segment<'_>] = &[Fixed("api"), Fixed("orders"), Fixed("feed")];
const CONFIG: &[Segment<'_>] = &[Fixed("api"), Fixed("orders"), Fixed("feed"), Fixed("config")];

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
    ) -> impl Future<Output = Result<Reply<Vec<Item>>, FeedError>> + Send;

    /// Makes the feed forget journaled events, for good; at most [`COMMIT_MAX`], never none. The same commit
    /// sent again is harmless.
    fn commit(&self, events: &[Journaled]) -> impl Future<Output = Result<Reply<()>, FeedError>> + Send;

    /// Reads how long an item is hidden (the visibility timeout), which leases nothing. Cancel safe.
    fn visibility(&self) -> impl Future<Output = Result<Reply<Duration>, FeedError>> + Send;

    /// Takes another token from the next request on; returns whether it is another one.
    fn set_app_token(&self, token: Secret) -> bool;
}

impl<F: Feed> Feed for &F {
    fn receive(
        &self,
        max: u8,
        shutdown: &CancellationToken,
    ) -> impl Future<Output = Result<Reply<Vec<Item>>, FeedError>> + Send {
        (**self).receive(max, shutdown)
    }

    fn commit(&self, events: &[Journaled]) -> impl Future<Output = Result<Reply<()>, FeedError>> + Send {
        (**self).commit(events)
    }

    fn visibility(&self) -> impl Future<Output = Result<Reply<Duration>, FeedError>> + Send {
        (**self).visibility()
    }

    fn set_app_token(&self, token: Secret) -> bool {
        (**self).set_app_token(token)
    }
}

/// A success, and what it asks of the pace.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply<T> {
    pub status: StatusCode,
    pub body: T,
    pub hints: Hints,
}

/// Why one attempt brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    #[error("VTEX answered {status}")]
    Refused {
        status: StatusCode,
        class: Class,
        hints: Hints,
        /// The beginning of what VTEX said, without secrets; at most 512 characters.
        excerpt: String,
    },
    #[error("VTEX answered {status} with a body that is not what it should be")]
    Malformed { status: StatusCode, source: NotUnderstood },
    #[error("no usable answer")]
    Attempt(#[from] AttemptError),
}

impl FeedError {
    pub fn class(&self) -> Class {
        match self {
            Self::Refused { class, .. } => *class,
            Self::Malformed { .. } | Self::Attempt(AttemptError::TooLarge { .. }) => Class::Malformed,
            Self::Attempt(AttemptError::Credential(_)) => Class::Unauthorized,
            Self::Attempt(AttemptError::NoAnswer(_) | AttemptError::Abandoned) => Class::Transient,
        }
    }

    /// The status, where an answer came.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Malformed { status, .. } => Some(status.as_u16()),
            Self::Attempt(_) => None,
        }
    }

    /// How far the request got.
    pub fn reached(&self) -> Reached {
        match self {
            Self::Refused { status, .. } | Self::Malformed { status, .. } => {
                Reached::Answered(status.as_u16())
            }
            Self::Attempt(
                AttemptError::NoAnswer(NoAnswer::NotConnected(_)) | AttemptError::Credential(_),
            ) => Reached::NotSent,
            Self::Attempt(
                AttemptError::NoAnswer(NoAnswer::Broken(_))
                | AttemptError::TooLarge { .. }
                | AttemptError::Abandoned,
            ) => Reached::Unanswered,
        }
    }

    pub fn hints(&self) -> Hints {
        match self {
            Self::Refused { hints, .. } => *hints,
            Self::Malformed { .. } | Self::Attempt(_) => Hints::default(),
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

    /// Returns the answer where it is a success.
    async fn ask(
        &self,
        operation: Operation,
        request: Request<'_>,
        handles: &[Journaled],
        abandoned: impl Future<Output = ()>,
    ) -> Result<Answer, FeedError> {
        let handles = handles.iter().map(|event| event.handle().expose());
        ask(&self.http, operation, request, handles, abandoned).await
    }
}

impl Feed for HttpFeed {
    async fn receive(&self, max: u8, shutdown: &CancellationToken) -> Result<Reply<Vec<Item>>, FeedError> {
        let query = format!("maxlot={max}");
        let request = Request { method: Method::GET, path: FEED, query: Some(&query), body: Vec::new() };
        let answer = self.ask(Operation::Receive, request, &[], abandoned(shutdown)).await?;
        let (status, hints) = (answer.status(), answer.hints());
        let body = self.http.body(answer).await?;
        if status == StatusCode::NO_CONTENT {
            return Ok(Reply { status, body: Vec::new(), hints });
        }
        match wire::read_batch(&self.account, &body) {
            Ok(body) => Ok(Reply { status, body, hints }),
            Err(source) => Err(FeedError::Malformed { status, source }),
        }
    }

    async fn commit(&self, events: &[Journaled]) -> Result<Reply<()>, FeedError> {
        assert!(!events.is_empty() && events.len() <= COMMIT_MAX, "a commit of {} events", events.len());
        let body = wire::commit_body(events.iter().map(Journaled::handle));
        let request = Request { method: Method::POST, path: FEED, query: None, body };
        let answer = self.ask(Operation::Commit, request, events, std::future::pending()).await?;
        // What a success says in its body is undocumented and proves nothing.
        Ok(Reply { status: answer.status(), body: (), hints: answer.hints() })
    }

    async fn visibility(&self) -> Result<Reply<Duration>, FeedError> {
        let request = Request { method: Method::GET, path: CONFIG, query: None, body: Vec::new() };
        let answer = self.ask(Operation::Config, request, &[], std::future::pending()).await?;
        let (status, hints) = (answer.status(), answer.hints());
        match wire::read_visibility(&self.http.body(answer).await?) {
            Ok(body) => Ok(Reply { status, body, hints }),
            Err(source) => Err(FeedError::Malformed { status, source }),
        }
    }

    fn set_app_token(&self, token: Secret) -> bool {
        self.http.set_app_token(token)
    }
}

async fn abandoned(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(ABANDON_AFTER).await;
}
