//! Which answer a request gets: VTEX's routes over a [`World`], without a socket.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::queue::{Fate, MAX_BATCH};
use super::world::{Refused, World};

/// Answers one request at `now`.
pub(super) fn answer(world: &mut World, now: Duration, request: &Request<Bytes>) -> Response<Bytes> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let app_key = header("x-vtex-api-appkey").unwrap_or_default();
    let app_token = header("x-vtex-api-apptoken").unwrap_or_default();
    match world.admit(now, app_key, app_token) {
        Ok(()) => {}
        Err(Refused::Unauthorized) => {
            return envelope(StatusCode::UNAUTHORIZED, "1", "Unauthorized access");
        }
        Err(Refused::TooManyFeeds) => {
            return envelope(StatusCode::SERVICE_UNAVAILABLE, "1", "The sandbox holds no more app keys");
        }
    }
    match request.uri().path().trim_end_matches('/') {
        "/api/orders/feed" => match *request.method() {
            Method::GET => receive(world, now, app_key, request.uri().query().unwrap_or_default()),
            Method::POST => commit(world, now, app_key, request.body()),
            _ => wrong_method("GET, POST"),
        },
        "/api/orders/feed/config" => match *request.method() {
            Method::GET => show_config(world, now, app_key),
            _ => wrong_method("GET"),
        },
        _ => envelope(StatusCode::NOT_FOUND, "1", "No such route in the sandbox"),
    }
}

fn receive(world: &mut World, now: Duration, app_key: &str, query: &str) -> Response<Bytes> {
    let Some(maxlot) = maxlot(query) else {
        return envelope(StatusCode::BAD_REQUEST, "1", "maxlot is a number from 1 to 10");
    };
    let batch = world.receive(now, app_key, maxlot);
    let items: Vec<String> =
        batch.iter().map(|received| received.item.with_handle(&received.handle)).collect();
    json_text(StatusCode::OK, format!("[{}]", items.join(",")))
}

fn commit(world: &mut World, now: Duration, app_key: &str, body: &Bytes) -> Response<Bytes> {
    let Ok(Handles { handles }) = serde_json::from_slice(body) else {
        return envelope(StatusCode::BAD_REQUEST, "1", "The body is not {\"handles\":[\"...\"]}");
    };
    let fates: Vec<Fate> = handles.iter().map(|handle| world.commit(now, app_key, handle)).collect();
    if fates.contains(&Fate::Garbled) {
        return envelope(StatusCode::BAD_REQUEST, "1", "A handle is not valid");
    }
    if fates.contains(&Fate::Foreign) {
        return envelope(StatusCode::FORBIDDEN, "1", "A handle belongs to another key");
    }
    let mut response = Response::new(Bytes::new());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

fn show_config(world: &mut World, now: Duration, app_key: &str) -> Response<Bytes> {
    let (quantity, oldest) = world.backlog(now, app_key);
    let rules = world.rules();
    let config = json!({
        "filter": {"type": "FromWorkflow", "status": []},
        "queue": {
            "visibilityTimeoutInSeconds": rules.visibility.as_secs(),
            "messageRetentionPeriodInSeconds": rules.retention.as_secs(),
        },
        "quantity": quantity,
        "approximateAgeOfOldestMessageInSeconds": oldest.as_secs_f64(),
    });
    json_value(StatusCode::OK, &config)
}

#[derive(Deserialize)]
struct Handles {
    handles: Vec<String>,
}

/// The parameter in any case, at most [`MAX_BATCH`], which is also the default; none when it is not a number above 0.
fn maxlot(query: &str) -> Option<usize> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let given = pairs.filter(|(name, _)| name.eq_ignore_ascii_case("maxlot")).map(|(_, value)| value).next();
    let Some(given) = given else { return Some(MAX_BATCH) };
    given.parse::<usize>().ok().filter(|&n| n > 0).map(|n| n.min(MAX_BATCH))
}

/// VTEX's error body.
fn envelope(status: StatusCode, code: &str, message: &str) -> Response<Bytes> {
    json_value(status, &json!({"error": {"code": code, "message": message, "exception": null}}))
}

fn wrong_method(allowed: &'static str) -> Response<Bytes> {
    let mut response = envelope(StatusCode::METHOD_NOT_ALLOWED, "1", "The method is not allowed here");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn json_value(status: StatusCode, value: &Value) -> Response<Bytes> {
    json_text(status, value.to_string())
}

fn json_text(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Options;

    #[test]
    fn maxlot_is_clamped_defaults_to_ten_and_is_read_in_any_case() {
        let table = [
            ("", Some(10)),
            ("maxlot=3", Some(3)),
            ("maxLot=3", Some(3)),
            ("other=1&maxlot=99", Some(10)),
            ("maxlot=0", None),
            ("maxlot=-1", None),
            ("maxlot=ten", None),
            ("maxlot=", None),
        ];
        for (query, expected) in table {
            assert_eq!(maxlot(query), expected, "{query}");
        }
    }

    #[test]
    fn routes_and_methods_are_those_of_vtex() {
        let table = [
            ("GET", "/api/orders/feed", 200),
            ("GET", "/api/orders/feed/", 200),
            ("POST", "/api/orders/feed", 400),
            ("PUT", "/api/orders/feed", 405),
            ("GET", "/api/orders/feed/config", 200),
            ("PATCH", "/api/orders/feed/config", 405),
            ("GET", "/api/orders/feeds", 404),
            ("GET", "/", 404),
        ];
        for (method, path, status) in table {
            assert_eq!(ask(method, path, "").status().as_u16(), status, "{method} {path}");
        }
    }

    #[test]
    fn a_caller_without_both_headers_is_unauthorized() {
        let mut world = world();
        let request = Request::get("/api/orders/feed").header("X-VTEX-API-AppKey", "key").body(Bytes::new());
        let response = answer(&mut world, Duration::ZERO, &request.unwrap());
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["error"]["message"], "Unauthorized access");
    }

    #[test]
    fn a_malformed_commit_is_refused() {
        for body in ["", "[]", "{}", r#"{"handles":"a"}"#, r#"{"handles":[1]}"#, r#"{"handles":["a"]}"#] {
            assert_eq!(ask("POST", "/api/orders/feed", body).status().as_u16(), 400, "{body}");
        }
        assert_eq!(ask("POST", "/api/orders/feed", r#"{"handles":[]}"#).status().as_u16(), 200);
    }

    fn ask(method: &str, path: &str, body: &str) -> Response<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-vtex-api-appkey", "key")
            .header("x-vtex-api-apptoken", "token")
            .body(Bytes::from(body.to_owned()));
        answer(&mut world(), Duration::ZERO, &request.unwrap())
    }

    fn world() -> World {
        World::new(Options::default(), "2026-03-02T20:00:00Z".parse().unwrap())
    }
}
