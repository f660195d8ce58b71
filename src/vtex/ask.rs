//! One question: a request whose answer counts only where it is a success.

use std::future::Future;

use super::feed::FeedError;
use super::http::{Http, Request};
use crate::http::Answer;
use crate::policy::classify::{Operation, classify};

/// Makes one attempt. `secrets` of the request are taken out of what VTEX says of an error; see [`Http::send`] for
/// `abandoned`.
///
/// # Errors
/// No usable answer, or a refusal with its class.
pub async fn ask<'a>(
    http: &Http,
    operation: Operation,
    request: Request<'_>,
    secrets: impl Iterator<Item = &'a str>,
    abandoned: impl Future<Output = ()>,
) -> Result<Answer, FeedError> {
    let answer = http.send(request, abandoned).await?;
    let (status, hints) = (answer.status(), answer.hints());
    match classify(operation, status.as_u16()) {
        None => Ok(answer),
        Some(class) => {
            let excerpt = http.redact(&answer.excerpt().await, secrets);
            Err(FeedError::Refused { status, class, hints, excerpt })
        }
    }
}
