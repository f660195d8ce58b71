//! An HTTP POST for each event, signed by the convention of Standard Webhooks.
//!
//! Source: Standard Webhooks 1.0.0 (headers, signature); CloudEvents HTTP binding 1.0, structured content mode.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Url};

use super::{Envelope, EventSink, Refusal, RefusalCause, secrets};
use crate::config::{self, Proxy};
use crate::http::client::{ClientError, Transport};
use crate::http::{self, Answer};

use signature::Signer;

mod signature;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const STRUCTURED: HeaderValue = HeaderValue::from_static("application/cloudevents+json");

/// Whoever does not answer a connection by then is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A part of a path that is shorter is a name; some addresses end in a token instead.
const SHORTEST_TOKEN: usize = 16;

/// The sink of `type = "webhook"`.
pub struct WebhookSink {
    client: Client,
    url: Url,
    /// The user's own.
    headers: HeaderMap,
    signer: Signer,
    /// What must not come back from an answer.
    secrets: Vec<String>,
}

impl WebhookSink {
    /// # Errors
    /// The HTTP client could not be made; most often there are no CA certificates on this machine.
    pub fn new(webhook: &config::Webhook) -> Result<Self, ClientError> {
        Ok(Self {
            client: Transport::from(webhook).client()?,
            url: webhook.url.clone(),
            headers: headers(webhook),
            signer: Signer::new(&webhook.signing_secrets),
            secrets: secrets(webhook),
        })
    }

    fn request(&self, envelope: &Envelope, now: Timestamp) -> RequestBuilder {
        let timestamp = now.as_second();
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, STRUCTURED)
            .header(ID, &envelope.id)
            .header(TIMESTAMP, timestamp);
        let signature = self.signer.sign(&envelope.id, timestamp, &envelope.line);
        signature
            .into_iter()
            .fold(request, |request, signature| request.header(SIGNATURE, signature))
            .body(envelope.line.clone())
    }

    async fn refusal(&self, answer: Answer) -> Refusal {
        let cause = RefusalCause::Status(answer.status().as_u16());
        let retry_after = answer.hints().wait.map(|hint| hint.wait);
        let said = http::redact(&answer.excerpt().await, self.secrets.iter().map(String::as_str));
        Refusal { cause, retry_after, answer: (!said.is_empty()).then_some(said) }
    }
}

impl EventSink for WebhookSink {
    async fn deliver(&self, envelope: &Envelope) -> Result<(), Refusal> {
        let sent = http::send(self.request(envelope, Timestamp::now())).await;
        let answer =
            sent.map_err(|error| Refusal { cause: error.into(), retry_after: None, answer: None })?;
        if !answer.status().is_success() {
            return Err(self.refusal(answer).await);
        }
        answer.drain().await;
        Ok(())
    }
}

impl From<&config::Webhook> for Transport {
    fn from(webhook: &config::Webhook) -> Self {
        Self {
            https_only: webhook.url.scheme() == "https",
            connect_timeout: CONNECT_TIMEOUT,
            timeout: webhook.limits.timeout,
            proxy: Proxy::None,
            ca_file: webhook.ca_file.clone(),
            client_cert: webhook.client_cert.clone(),
            n_idle: webhook.limits.concurrency as usize,
        }
    }
}

fn headers(webhook: &config::Webhook) -> HeaderMap {
    let header = |(name, value): &(HeaderName, config::Secret)| {
        #[expect(clippy::expect_used, reason = "the configuration takes printable ASCII only")]
        let mut value = HeaderValue::from_str(value.expose()).expect("it fits into a header");
        value.set_sensitive(true);
        (name.clone(), value)
    };
    webhook.headers.iter().map(header).collect()
}

/// Each secret, and each of its parts that a receiver may have taken it apart into.
fn secrets(webhook: &config::Webhook) -> Vec<String> {
    let headers = webhook.headers.iter().map(|(_, value)| value.expose().to_owned());
    let words = webhook.headers.iter().flat_map(|(_, value)| value.expose().split(' ').map(str::to_owned));
    let keys = webhook.signing_secrets.iter().map(|secret| secret.expose().replacen("whsec_", "", 1));
    let query = webhook.url.query().map(str::to_owned);
    let values = webhook.url.query_pairs().map(|(_, value)| value.into_owned());
    let segments = webhook.url.path_segments().into_iter().flatten().map(str::to_owned);
    let tokens = segments.filter(|segment| SHORTEST_TOKEN <= segment.len());
    secrets::in_order(headers.chain(words).chain(keys).chain(query).chain(values).chain(tokens))
}
