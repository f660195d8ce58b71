//! The bodies that VTEX, or some edge before it, answers with.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::sandbox::behaviour::PlainBody;

pub(super) fn json_text(status: StatusCode, text: String) -> Response<Bytes> {
    with_body(status, "application/json; charset=utf-8", text.into())
}

pub(super) fn json_value(status: StatusCode, value: &Value) -> Response<Bytes> {
    json_text(status, value.to_string())
}

/// VTEX's error body.
pub(super) fn envelope(status: StatusCode, code: &str, message: &str) -> Response<Bytes> {
    json_value(status, &json!({"error": {"code": code, "message": message, "exception": null}}))
}

/// An error in the form asked for.
pub(super) fn plain(form: PlainBody, status: StatusCode, message: &str) -> Response<Bytes> {
    match form {
        PlainBody::Envelope => envelope(status, "1", message),
        PlainBody::Object => json_text(status, "{}".into()),
        PlainBody::Empty => with_body(status, "text/plain", Bytes::new()),
        PlainBody::Text => with_body(status, "text/plain", message.to_owned().into()),
        PlainBody::Html => {
            let page =
                format!("<html><head><title>{status}</title></head><body><h1>{message}</h1></body></html>");
            with_body(status, "text/html", page.into())
        }
    }
}

pub(super) fn with_body(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn no_content() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
