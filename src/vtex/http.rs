//! One HTTP attempt at one feed's VTEX account.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};

use super::path::Segment;
use crate::config::{self, Secret};
use crate::http::client::Transport;
use crate::http::{self, Answer, NoAnswer};

const APP_KEY: HeaderName = HeaderName::from_static("x-vtex-api-appkey");
const APP_TOKEN: HeaderName = HeaderName::from_static("x-vtex-api-apptoken");

/// Connections kept while nothing is to be sent.
const IDLE_CONNECTIONS: usize = 2;

/// The way to one feed: its connections, its address, its credentials.
pub struct Http {
    client: Arc<Client>,
    base_url: Url,
    app_key: Secret,
    /// Read again from its file after a refusal.
    app_token: Mutex<Secret>,
    max_body: u64,
}

/// No usable answer came. The texts hold no URL, since its query may be the user's.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
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
        let request = self
            .client
            .request(request.method, url)
            .headers(self.credentials()?)
            .headers(length.into_iter().collect())
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(request.body);
        tokio::select! {
            biased;
            answer = http::send(request) => Ok(answer?),
            () = abandoned => Err(AttemptError::Abandoned),
        }
    }

    /// Reads the whole body, decompressed.
    ///
    /// # Errors
    /// It was cut short, took too long, or is larger than `requests.max_body`.
    pub async fn body(&self, answer: Answer) -> Result<Vec<u8>, AttemptError> {
        answer.body(self.max_body).await?.ok_or(AttemptError::TooLarge { limit: self.max_body })
    }

    /// Takes our secrets, and `more` of them, out of a text that somebody else wrote.
    pub fn redact<'a>(&self, text: &str, more: impl Iterator<Item = &'a str>) -> String {
        let token = self.app_token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut secrets = vec![self.app_key.expose(), token.expose()];
        more.for_each(|secret| secrets.push(secret));
        http::redact(text, secrets.into_iter())
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

impl From<&config::Account> for Transport {
    fn from(account: &config::Account) -> Self {
        Self {
            https_only: account.base_url.scheme() == "https",
            connect_timeout: account.requests.connect_timeout,
            timeout: account.requests.timeout,
            proxy: account.requests.proxy.clone(),
            ca_file: account.requests.ca_file.clone(),
            client_cert: None,
            n_idle: IDLE_CONNECTIONS,
        }
    }
}
