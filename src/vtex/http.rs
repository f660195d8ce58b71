//! One HTTP attempt against one VTEX account.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, InvalidHeaderValue};
use reqwest::{Certificate, Client, Method, Response, StatusCode, Url};

use crate::config::{self, Proxy};

/// The client of one feed: its connections, its address, its credentials.
pub struct Http {
    client: Client,
    base_url: Url,
    credentials: HeaderMap,
    max_body: u64,
}

/// The client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{key} cannot be sent in a header")]
    Credential { key: &'static str, source: InvalidHeaderValue },
    /// Most often: no CA certificates on this machine.
    #[error("cannot make an HTTP client")]
    Build(#[source] reqwest::Error),
}

/// A status and headers have come, the body has not.
pub struct Answer {
    response: Response,
    max_body: u64,
}

/// No usable answer came. The texts hold no URL, since its query may be the user's.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    #[error("no whole answer")]
    Network(#[source] Box<dyn Error + Send + Sync>),
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: u64 },
    /// The shutdown did not wait any longer for an answer that had not begun.
    #[error("given up at shutdown")]
    Abandoned,
}

impl Http {
    /// # Errors
    /// A credential that no header can carry, or no CA certificates on this machine.
    pub fn new(account: &config::Account) -> Result<Self, ClientError> {
        let requests = &account.requests;
        // Every repetition, redirect and cookie would be a request that no policy decided and no gate let pass;
        // a followed redirect would also hand the credentials to another host.
        let mut builder = Client::builder()
            .user_agent(concat!("order-feed-agent/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .https_only(account.base_url.scheme() == "https")
            .connect_timeout(requests.connect_timeout)
            .timeout(requests.timeout)
            .pool_idle_timeout(Duration::from_secs(50))
            .pool_max_idle_per_host(2);
        builder = match &requests.proxy {
            Proxy::None => builder.no_proxy(),
            // What reqwest does by itself.
            Proxy::Env => builder,
            Proxy::Url(url) => {
                builder.no_proxy().proxy(reqwest::Proxy::all(url.clone()).map_err(ClientError::Build)?)
            }
        };
        if let Some(ca_file) = &requests.ca_file {
            let certificates = Certificate::from_pem_bundle(&ca_file.pem).map_err(ClientError::Build)?;
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder.build().map_err(ClientError::Build)?;
        let mut credentials = HeaderMap::new();
        for (header, key, secret) in [
            ("x-vtex-api-appkey", "app_key", &account.app_key),
            ("x-vtex-api-apptoken", "app_token", &account.app_token),
        ] {
            let mut value = HeaderValue::from_str(secret.expose())
                .map_err(|source| ClientError::Credential { key, source })?;
            value.set_sensitive(true);
            credentials.insert(header, value);
        }
        Ok(Self { client, base_url: account.base_url.clone(), credentials, max_body: requests.max_body })
    }

    /// Asks and waits for status and headers, until `abandoned` ends. `path` is made of fixed segments.
    ///
    /// Dropping the future closes the connection; VTEX may or may not have acted by then.
    ///
    /// # Errors
    /// No answer came: no connection, a time-out, a reset, or `abandoned` ended first.
    pub async fn send(
        &self,
        method: Method,
        path: &[&'static str],
        query: Option<&str>,
        body: Vec<u8>,
        abandoned: impl Future<Output = ()>,
    ) -> Result<Answer, AttemptError> {
        let mut url = self.base_url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url.set_query(query);
        let request = self
            .client
            .request(method, url)
            .headers(self.credentials.clone())
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .send();
        tokio::select! {
            biased;
            answer = request => Ok(Answer { response: answer.map_err(network)?, max_body: self.max_body }),
            () = abandoned => Err(AttemptError::Abandoned),
        }
    }
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
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
}

fn network(error: reqwest::Error) -> AttemptError {
    AttemptError::Network(error.without_url().into())
}
