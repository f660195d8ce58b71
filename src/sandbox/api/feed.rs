//! The feed's routes: receive, commit and configuration.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use serde::Deserialize;

use super::answers::{envelope, json_text, json_value, no_content, plain, with_body};
use crate::sandbox::behaviour::{AboveTen, CommitAnswer, SingleFire};
use crate::sandbox::feed::FeedRefusal;
use crate::sandbox::feed_config::{ConfigRefused, FeedConfig};
use crate::sandbox::queue::MAX_BATCH;
use crate::sandbox::route::parameters;
use crate::sandbox::strict::Table;
use crate::sandbox::world::World;

pub(super) fn receive(world: &mut World, now: Duration, app_key: &str, query: &str) -> Response<Bytes> {
    let Some(maxlot) = maxlot(query, world.options.settings.feed.maxlot_above_ten) else {
        return envelope(StatusCode::BAD_REQUEST, "1", "maxlot is a number from 1 to 10");
    };
    match world.receive(now, app_key, maxlot) {
        Ok(batch) => {
            let items: Vec<String> =
                batch.iter().map(|received| received.item.with_handle(&received.handle)).collect();
            json_text(StatusCode::OK, format!("[{}]", items.join(",")))
        }
        Err(refusal) => refused(world, refusal),
    }
}

pub(super) fn commit(world: &mut World, now: Duration, app_key: &str, body: &Bytes) -> Response<Bytes> {
    let Ok(Table(Handles { handles })) = serde_json::from_slice(body) else {
        return envelope(StatusCode::BAD_REQUEST, "1", "The body is not {\"handles\":[\"...\"]}");
    };
    if let Err(refusal) = world.commit(now, app_key, &handles) {
        return refused(world, refusal);
    }
    match world.options.settings.feed.commit_answer {
        CommitAnswer::Empty => with_body(StatusCode::OK, "text/plain", Bytes::new()),
        CommitAnswer::NoContent => no_content(),
        CommitAnswer::Object => json_text(StatusCode::OK, "{}".into()),
        CommitAnswer::Text => with_body(StatusCode::OK, "text/plain", Bytes::from_static(b"Committed")),
    }
}

pub(super) fn show_config(world: &mut World, now: Duration, app_key: &str) -> Response<Bytes> {
    match world.feed(app_key).ok_or(FeedRefusal::Unconfigured).and_then(|(feed, _)| feed.show(now)) {
        Ok(config) => json_value(StatusCode::OK, &config),
        Err(refusal) => refused(world, refusal),
    }
}

pub(super) fn set_config(world: &mut World, now: Duration, app_key: &str, body: &Bytes) -> Response<Bytes> {
    let tolerant = world.options.settings.feed.disable_single_fire_with_statuses == SingleFire::Tolerated;
    match FeedConfig::parse(body, tolerant) {
        Ok(config) => {
            if let Some((feed, _)) = world.feed(app_key) {
                feed.configure(now, config);
            }
            with_body(StatusCode::OK, "text/plain", Bytes::new())
        }
        Err(why @ ConfigRefused::Mixed) => envelope(StatusCode::CONFLICT, "1", &why.to_string()),
        Err(why @ (ConfigRefused::Malformed | ConfigRefused::OutOfRange)) => {
            envelope(StatusCode::BAD_REQUEST, "1", &why.to_string())
        }
    }
}

pub(super) fn delete_config(world: &mut World, now: Duration, app_key: &str) -> Response<Bytes> {
    match world.feed(app_key).ok_or(FeedRefusal::Unconfigured).and_then(|(feed, _)| feed.remove(now)) {
        Ok(()) => with_body(StatusCode::OK, "text/plain", Bytes::new()),
        Err(refusal) => refused(world, refusal),
    }
}

#[derive(Deserialize)]
struct Handles {
    handles: Vec<String>,
}

fn refused(world: &World, refusal: FeedRefusal) -> Response<Bytes> {
    match refusal {
        FeedRefusal::Unconfigured => {
            let form = world.options.settings.feed.unconfigured_answer;
            plain(form, StatusCode::NOT_FOUND, "There is no feed configuration for this app key")
        }
        FeedRefusal::TooManyHandles => {
            envelope(StatusCode::BAD_REQUEST, "1", "There are more than 10 handles")
        }
        FeedRefusal::BadHandle => envelope(StatusCode::BAD_REQUEST, "1", "A handle is not valid"),
        FeedRefusal::ForeignHandle => {
            envelope(StatusCode::FORBIDDEN, "1", "A handle belongs to another app key")
        }
    }
}

/// The parameter in any case, at most [`MAX_BATCH`], which is also the default; none when it is refused.
fn maxlot(query: &str, above: AboveTen) -> Option<usize> {
    let parameters = parameters(query);
    let Some((_, given)) = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case("maxlot")) else {
        return Some(MAX_BATCH);
    };
    match (given.parse().ok()?, above) {
        (n @ 1..=MAX_BATCH, _) => Some(n),
        (0, _) | (_, AboveTen::Refused) => None,
        (_, AboveTen::Accepted) => Some(MAX_BATCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxlot_is_clamped_defaults_to_ten_and_is_read_in_any_case() {
        let table = [
            ("", Some(10)),
            ("maxlot=3", Some(3)),
            ("maxLot=3", Some(3)),
            ("other=1&maxlot=99", Some(10)),
            ("maxlot=%31", Some(1)),
            ("max%4Cot=2", Some(2)),
            ("maxlot=0", None),
            ("maxlot=-1", None),
            ("maxlot=ten", None),
            ("maxlot=", None),
        ];
        for (query, expected) in table {
            assert_eq!(maxlot(query, AboveTen::Accepted), expected, "{query}");
        }
        assert_eq!(maxlot("maxlot=11", AboveTen::Refused), None);
    }
}
