//! What came back, or why nothing did.

use std::error::Error;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode};
use tokio::time::timeout;

use crate::policy::retry_after::{self, Hint};
use crate::policy::slow_down::{self, SlowDown};

const LIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// How long the text of an error may take, and how much of it is read; it is for the log only.
const EXCERPT_TIME: Duration = Duration::from_secs(2);
const EXCERPT_BYTES: usize = 4 * 1024;
const EXCERPT_CHARS: usize = 512;
const LONGEST_WORD: usize = 80;

/// How long a body that nobody wants may take, and how much of it is read, so that its connection serves again.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const DRAIN_BYTES: usize = 64 * 1024;

/// A status and headers have come, the body has not.
pub struct Answer {
    response: Response,
    hints: Hints,
}

/// What an answer asks of the pace, besides its status.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Hints {
    /// No request before this long.
    pub wait: Option<Hint>,
    /// Fewer requests until the limit is reset.
    pub slow_down: Option<SlowDown>,
}

/// Why no whole answer came. The texts hold no URL, since its query may be the user's.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Nothing was sent.
    #[error("no connection")]
    NotConnected(#[source] Box<dyn Error + Send + Sync>),
    /// The request may have arrived and had its effect.
    #[error("no whole answer")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

/// Asks and waits for status and headers. Dropping the future closes the connection; the request may have arrived.
///
/// # Errors
/// No connection, a time-out, a reset.
pub async fn send(request: RequestBuilder) -> Result<Answer, NoAnswer> {
    let response = request.send().await.map_err(not_answered)?;
    let hints = hints(response.headers(), Timestamp::now());
    Ok(Answer { response, hints })
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn hints(&self) -> Hints {
        self.hints
    }

    /// Reads the whole body, decompressed; `None` where it is larger than `limit` bytes.
    ///
    /// # Errors
    /// It was cut short or took too long.
    pub async fn body(mut self, limit: u64) -> Result<Option<Vec<u8>>, NoAnswer> {
        let mut body = Vec::new();
        while let Some(chunk) = self.response.chunk().await.map_err(broken)? {
            if limit < (body.len() + chunk.len()) as u64 {
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some(body))
    }

    /// Reads the beginning of an error's text, as far as it comes soon. It may hold anything: see [`redact`].
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

    /// Reads what is left where that is little and comes soon; else the connection is closed.
    pub async fn drain(mut self) {
        let mut n_read = 0;
        let reading = async {
            while let Ok(Some(chunk)) = self.response.chunk().await {
                n_read += chunk.len();
                if DRAIN_BYTES < n_read {
                    break;
                }
            }
        };
        timeout(DRAIN_TIME, reading).await.ok();
    }
}

/// Takes secrets out of a text that somebody else wrote, and all but its beginning.
pub fn redact<'a>(text: &str, secrets: impl Iterator<Item = &'a str>) -> String {
    let text = secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "***"));
    // A token may come back escaped or cut. No word of a message for people is that long.
    let words = text.split_whitespace().map(|word| if LONGEST_WORD < word.len() { "***" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(EXCERPT_CHARS).collect()
}

fn not_answered(error: reqwest::Error) -> NoAnswer {
    if error.is_connect() { NoAnswer::NotConnected(error.without_url().into()) } else { broken(error) }
}

fn broken(error: reqwest::Error) -> NoAnswer {
    NoAnswer::Broken(error.without_url().into())
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
