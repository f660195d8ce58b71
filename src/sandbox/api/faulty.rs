//! Carries out what a fault decided, as far as that is a matter of effect and answer; `wire` does the rest.

use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::Call;
use super::answers::{envelope, json_text};
use crate::sandbox::faults::{Action, Canned, Effect, Fault, gzip};
use crate::sandbox::throttle::Verdict;
use crate::sandbox::wire::{Manner, Reply};

/// The answer to a request that goes wrong.
pub(super) fn answer(call: &mut Call<'_>, fault: Fault) -> Reply {
    let whole = |response| (response, Manner::Whole);
    let mut delay = fault.delay;
    let (response, manner) = match fault.action {
        Action::DelayOnly => whole(call.effect()),
        Action::Answer { canned, effect } => {
            take(call, effect);
            whole(canned_answer(call, canned))
        }
        Action::Truncate(bytes) => whole(call.effect().map(|body| body.slice(..bytes.min(body.len())))),
        Action::Pad(bytes) => {
            whole(call.effect().map(|body| [&body[..], &vec![b' '; bytes]].concat().into()))
        }
        Action::ContentType(value) => whole(with_header(call.effect(), CONTENT_TYPE, value)),
        Action::Gzip => whole(compressed(call.effect())),
        Action::GzipBomb(body) => {
            let response = json_text(StatusCode::OK, String::new()).map(|_| body);
            whole(with_header(response, CONTENT_ENCODING, GZIP))
        }
        Action::Drip { bytes, every } => (call.effect(), Manner::Drip { bytes, every }),
        Action::Cut { after } => (call.effect(), Manner::Cut { after }),
        Action::LoseAnswer(effect) => (take(call, effect), Manner::Close),
        Action::Reset(effect) => (take(call, effect), Manner::Reset),
        Action::Hang(length) => {
            delay += length;
            (Response::default(), Manner::Close)
        }
        Action::Throttle { lasting, retry_after } => {
            whole(match call.world.throttle_for(call.now, call.app_key, lasting, retry_after) {
                Verdict::Refuse(retry_after) => call.throttled(retry_after),
                Verdict::Pass(_) => call.effect(),
            })
        }
        Action::RotateToken(lasting) => {
            call.world.retire_token(call.now, call.app_key, call.app_token, lasting);
            whole(envelope(StatusCode::UNAUTHORIZED, "1", "Unauthorized access"))
        }
        Action::RemoveConfig(lasting) => {
            call.world.remove_config(call.now, call.app_key, lasting);
            whole(call.effect())
        }
    };
    Reply { response, delay, manner }
}

const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// Does what is asked where the fault comes after the effect.
fn take(call: &mut Call<'_>, effect: Effect) -> Response<Bytes> {
    match effect {
        Effect::None => Response::default(),
        Effect::Taken => call.effect(),
    }
}

fn canned_answer(call: &mut Call<'_>, canned: Canned) -> Response<Bytes> {
    let mut response = Response::new(canned.body);
    *response.status_mut() = canned.status;
    response.headers_mut().extend(canned.headers);
    if canned.status == StatusCode::TOO_MANY_REQUESTS {
        let hint = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        call.world.answered_429(call.now, call.app_key, hint);
    }
    response
}

fn compressed(response: Response<Bytes>) -> Response<Bytes> {
    match gzip(response.body()) {
        Ok(body) => with_header(response.map(|_| body), CONTENT_ENCODING, GZIP),
        Err(_) => response,
    }
}

fn with_header(mut response: Response<Bytes>, name: HeaderName, value: HeaderValue) -> Response<Bytes> {
    response.headers_mut().insert(name, value);
    response
}
