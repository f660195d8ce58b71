//! One HTTP attempt at one feed's VTEX account.

use std::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{
    ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{Client, Method, Response, StatusCode, Url};
use tokio::time::timeout;

use super::path::Segment;
use crate::config::{self, Secret};
use crate::policy::retry_after::{self, Hint};
use crate::policy::slow_down::{self, SlowDown};

const APP_KEY: HeaderName = HeaderName::from_static("x-vtex-api-appkey");
const APP_TOKEN: HeaderName = HeaderName::from_static("x-vtex-api-apptoken");
const LIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// How long the text of an error may take, and how much of it is read; it is for the log only.
const EXCERPT_TIME: Duration = Duration::from_secs(2);
const EXCERPT_BYTES: usize = 4 * 1024;
const EXCERPT_CHARS: usize = 512;
const LONGEST_WORD: usize = 80;

/// The way to one feed: its connections, its address, its credentials.
pub struct Http {
    client: Arc<Client>,
    base_url: Url,
    app_key: Secret,
    /// Read again from its file after a refusal.
    app_token: Mutex<Secret>,
    max_body: u64,
}

/// A status and headers have come, the body has not.
pub struct Answer {
    response: Response,
    hints: Hints,
    max_body: u64,
}

/// What an answer asks of the pace, besides its status.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Hints {
    /// No request before this long.
    pub wait: Option<Hint>,
    /// Fewer requests until the limit is reset.
    pub slow_down: Option<SlowDown>,
}

/// No usable answer came. The texts hold no URL, since its query may be the user's.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// Nothing was sent.
    #[error("no connection")]
    NotConnected(#[source] Box<dyn Error + Send + Sync>),
    /// The request may have arrived and had its effect.
    #[error("no whole answer")]
    Network(#[source] Box<dyn Error + Send + Sync>),
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("{0} cannot be sent in a header")]
    Credential(&'static str),
    /// The shutdown did not wait any longer for an answer that had not begun.
    #[error("given up at shutdown")]
    Abandoned,
}

/// One request.
pub struct Request<'a> {
    pub method: Method,
    /// Below the path of the base URL.
    pub path: &'a [Segment<'a>],
    pub query: Option<&'a str>,
    pub body: Vec<u8>,
}

impl Http {
    pub fn new(client: Arc<Client>, account: &config::Account) -> Self {
        Self {
            client,
            base_url: account.base_url.clone(),
            app_key: account.app_key.clone(),
            app_token: Mutex::new(account.app_token.clone()),
            max_body: account.requests.max_body,
        }
    }

    /// Takes another token from the next request on; returns whether it is another one.
    pub fn set_app_token(&self, token: Secret) -> bool {
        let mut current = self.app_token.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = *current != token;
        *current = token;
        differs
    }

    /// Asks and waits for status and headers, until `abandoned` ends.
    ///
    /// Dropping the future closes the connection; VTEX may or may not have acted by then.
    ///
    /// # Errors
    /// No answer came: no connection, a time-out, a reset, or `abandoned` ended first.
    pub async fn send(
        &self,
        request: Request<'_>,
        abandoned: impl Future<Output = ()>,
    ) -> Result<Answer, AttemptError> {
        let url = self.url(request.path, request.query);
        // Some servers refuse a POST that does not say how long it is, and nothing says so for an empty one.
        let is_empty_post = request.method == Method::POST && request.body.is_empty();
        let length = is_empty_post.then_some((CONTENT_LENGTH, HeaderValue::from_static("0")));
        let sent = self
            .client
            .request(request.method, url)
            .headers(self.credentials()?)
            .headers(length.into_iter().collect())
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(request.body)
            .send();
        let response = tokio::select! {
            biased;
            answer = sent => answer.map_err(not_answered)?,
            () = abandoned => return Err(AttemptError::Abandoned),
        };
        let hints = hints(response.headers(), Timestamp::now());
        Ok(Answer { response, hints, max_body: self.max_body })
    }

    /// Takes our secrets, and `more` of them, out of a text that somebody else wrote.
    pub fn redact<'a>(&self, text: &str, more: impl Iterator<Item = &'a str>) -> String {
        let token = self.app_token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = text.replace(self.app_key.expose(), "***").replace(token.expose(), "***");
        let text = more.fold(text, |text, secret| text.replace(secret, "***"));
        // A token may come back escaped or cut. No word of a message for people is that long.
        let words = text.split_whitespace().map(|word| if LONGEST_WORD < word.len() { "***" } else { word });
        words.collect::<Vec<_>>().join(" ").chars().take(EXCERPT_CHARS).collect()
    }

    fn url(&self, path: &[Segment<'_>], query: Option<&str>) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        let path = path.iter().fold(base, |path, segment| path + "/" + segment.encoded());
        url.set_path(&path);
        url.set_query(query);
        url
    }

    fn credentials(&self) -> Result<HeaderMap, AttemptError> {
        let token = self.app_token.lock().unwrap_or_else(PoisonError::into_inner);
        let mut headers = HeaderMap::new();
        for (name, key, secret) in [(APP_KEY, "app_key", &self.app_key), (APP_TOKEN, "app_token", &*token)] {
            let mut value =
                HeaderValue::from_str(secret.expose()).map_err(|_| AttemptError::Credential(key))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn hints(&self) -> Hints {
        self.hints
    }

    /// Reads the whole body, decompressed.
    ///
    /// # Errors
    /// It was cut short, took too long, or is larger than `requests.max_body`.
    pub async fn body(mut self) -> Result<Vec<u8>, AttemptError> {
        let limit = self.max_body;
        let mut body = Vec::new();
        while let Some(chunk) = self.response.chunk().await.map_err(network)? {
            if limit < (body.len() + chunk.len()) as u64 {
                return Err(AttemptError::TooLarge { limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads the beginning of an error's text, as far as it comes soon. It may hold anything: see [`Http::redact`].
    pub async fn excerpt(mut self) -> String {
        let mut text = Vec::new();
        let reading = async {
            while let Ok(Some(chunk)) = self.response.chunk().await {
                text.extend_from_slice(&chunk);
                if EXCERPT_BYTES <= text.len() {
                    break;
                }
            }
        };
        // What came until then is enough.
        timeout(EXCERPT_TIME, reading).await.ok();
        text.truncate(EXCERPT_BYTES);
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn not_answered(error: reqwest::Error) -> AttemptError {
    if error.is_connect() { AttemptError::NotConnected(error.without_url().into()) } else { network(error) }
}

fn network(error: reqwest::Error) -> AttemptError {
    AttemptError::Network(error.without_url().into())
}

fn hints(headers: &HeaderMap, received_at: Timestamp) -> Hints {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let retry_after = headers.get_all(RETRY_AFTER).iter().filter_map(|value| value.to_str().ok());
    let (date, reset) = (text(&DATE), text(&LIMIT_RESET));
    Hints {
        wait: retry_after::hint(retry_after, date, reset, received_at),
        slow_down: slow_down::slow_down(text(&LIMIT_REMAINING), reset, date, received_at),
    }
}
