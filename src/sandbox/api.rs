//! Which answer a request gets: VTEX's routes over a [`World`], without a socket.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Request, Response, StatusCode};

use self::answers::{envelope, plain};
use super::route::{NoRoute, Route};
use super::throttle::Verdict;
use super::wire::Reply;
use super::world::{Refused, World};

mod answers;
mod faulty;
mod feed;
mod orders;

/// Answers one request at `now`.
pub(super) fn answer(world: &mut World, now: Duration, request: &Request<Bytes>) -> Reply {
    let app_key = header(request.headers(), "x-vtex-api-appkey");
    let app_token = header(request.headers(), "x-vtex-api-apptoken");
    if let Err(refused) = world.admit(now, app_key, app_token) {
        return Reply::whole(turned_away(world, refused));
    }
    let route = match Route::find(request.method(), request.uri().path()) {
        Ok(route) => route,
        Err(none) => return Reply::whole(no_route(none)),
    };
    let verdict = world.throttle(now, app_key, route.operation());
    let fault = world.faults.decide(route.operation());
    let mut call = Call { world, now, app_key, app_token, route: &route, request };
    match (verdict, fault) {
        (Verdict::Refuse(retry_after), _) => Reply::whole(call.throttled(retry_after)),
        (Verdict::Pass(limits), None) => Reply::whole(with_headers(call.effect(), limits)),
        (Verdict::Pass(limits), Some(fault)) => {
            let reply = faulty::answer(&mut call, fault);
            Reply { response: with_headers(reply.response, limits), ..reply }
        }
    }
}

/// One request of a caller that was let in.
struct Call<'a> {
    world: &'a mut World,
    now: Duration,
    app_key: &'a str,
    app_token: &'a str,
    route: &'a Route,
    request: &'a Request<Bytes>,
}

impl Call<'_> {
    /// Does what is asked; the true answer.
    fn effect(&mut self) -> Response<Bytes> {
        let Self { world, now, app_key, request, .. } = self;
        let both = [ACCEPT, CONTENT_TYPE].iter().all(|name| request.headers().contains_key(name));
        if world.options.settings.feed.strict_headers && !both {
            return envelope(StatusCode::BAD_REQUEST, "1", "Accept and Content-Type are required");
        }
        let query = request.uri().query().unwrap_or_default();
        match self.route {
            Route::Receive => feed::receive(world, *now, app_key, query),
            Route::Commit => feed::commit(world, *now, app_key, request.body()),
            Route::ShowConfig => feed::show_config(world, *now, app_key),
            Route::SetConfig => feed::set_config(world, *now, app_key, request.body()),
            Route::DeleteConfig => feed::delete_config(world, *now, app_key),
            Route::TestExpression => orders::test_expression(request.body()),
            Route::ListOrders => orders::list(world, *now, app_key, query),
            Route::GetOrder(id) => orders::get(world, *now, app_key, id),
            Route::StartHandling(id) => orders::start_handling(world, *now, app_key, id),
        }
    }

    /// A 429 that is remembered.
    fn throttled(&mut self, retry_after: Option<String>) -> Response<Bytes> {
        self.world.answered_429(self.now, self.app_key, retry_after.as_deref());
        let response = envelope(StatusCode::TOO_MANY_REQUESTS, "429", "Too many requests");
        with_headers(response, retry_after.map(|text| ("retry-after", text)))
    }
}

/// Adds headers; one whose value cannot be sent is left out.
fn with_headers(
    mut response: Response<Bytes>,
    headers: impl IntoIterator<Item = (&'static str, String)>,
) -> Response<Bytes> {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A header's text; empty where it is missing or not text.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn turned_away(world: &World, refused: Refused) -> Response<Bytes> {
    match refused {
        Refused::Unauthorized => envelope(StatusCode::UNAUTHORIZED, "1", "Unauthorized access"),
        Refused::Forbidden => {
            let form = world.options.settings.feed.forbidden_answer;
            plain(form, StatusCode::FORBIDDEN, "The app key lacks the permission")
        }
        Refused::TooManyFeeds => {
            envelope(StatusCode::SERVICE_UNAVAILABLE, "1", "The sandbox holds no more app keys")
        }
    }
}

fn no_route(why: NoRoute) -> Response<Bytes> {
    match why {
        NoRoute::Unknown => envelope(StatusCode::NOT_FOUND, "1", "The sandbox has no such route"),
        NoRoute::WrongMethod(allowed) => {
            let response = envelope(StatusCode::METHOD_NOT_ALLOWED, "1", "The method is not allowed here");
            with_headers(response, [("allow", allowed.to_owned())])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Options, Settings};
    use serde_json::{Value, json};

    #[test]
    fn a_caller_without_both_headers_is_unauthorized() {
        let request = Request::get("/api/orders/feed").header("X-VTEX-API-AppKey", "key").body(Bytes::new());
        let response = answer(&mut world(""), Duration::ZERO, &request.unwrap()).response;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(body(&response)["error"]["message"], "Unauthorized access");
    }

    #[test]
    fn a_key_without_permission_is_forbidden_in_the_form_asked_for() {
        for (form, start) in [("envelope", "{\"error\""), ("empty", ""), ("html", "<html>")] {
            let settings = format!("[feed]\nforbidden_keys = [\"key\"]\nforbidden_answer = \"{form}\"");
            let response = ask(&mut world(&settings), "GET", "/api/orders/feed", "");
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
            assert!(response.body().starts_with(start.as_bytes()), "{form}");
            assert_eq!(response.body().is_empty(), form == "empty");
        }
    }

    #[test]
    fn a_malformed_commit_is_refused() {
        let mut world = world("");
        for body in ["", "[]", "{}", r#"{"handles":"a"}"#, r#"{"handles":[1]}"#, r#"{"handles":["a"]}"#] {
            assert_eq!(status(&mut world, "POST", "/api/orders/feed", body), 400, "{body}");
        }
        assert_eq!(status(&mut world, "POST", "/api/orders/feed", r#"{"handles":[]}"#), 200);
    }

    #[test]
    fn a_commit_is_answered_in_each_form() {
        for (form, expected) in [("empty", 200), ("no-content", 204), ("object", 200), ("text", 200)] {
            let mut world = world(&format!("[feed]\ncommit_answer = \"{form}\""));
            assert_eq!(status(&mut world, "POST", "/api/orders/feed", r#"{"handles":[]}"#), expected);
        }
    }

    #[test]
    fn more_than_ten_handles_are_refused_where_that_is_asked_for() {
        let handles = json!({ "handles": vec![""; 11] }).to_string();
        let mut lenient = world("[feed]\nunknown_handle = \"ignored\"");
        assert_eq!(status(&mut lenient, "POST", "/api/orders/feed", &handles), 200);
        let mut strict = world("[feed]\nunknown_handle = \"ignored\"\nhandles_above_ten = \"refused\"");
        assert_eq!(status(&mut strict, "POST", "/api/orders/feed", &handles), 400);
    }

    #[test]
    fn strict_headers_refuse_a_request_without_them() {
        assert_eq!(status(&mut world("[feed]\nstrict_headers = true"), "GET", "/api/orders/feed", ""), 400);
    }

    #[test]
    fn a_configuration_is_set_shown_and_deleted() {
        let mut world = world("");
        let path = "/api/orders/feed/config";
        let mixed = json!({"filter": {"type": "FromWorkflow", "status": [], "disableSingleFire": false}});
        assert_eq!(status(&mut world, "POST", path, &mixed.to_string()), 409);
        assert_eq!(status(&mut world, "POST", path, "soon"), 400);

        let config = json!({"filter": {"type": "FromOrders", "expression": "status = \"handling\""}});
        let set = ask(&mut world, "POST", path, &config.to_string());
        assert_eq!((set.status().as_u16(), set.body().len()), (200, 0));
        let shown = body(&ask(&mut world, "GET", path, ""));
        assert_eq!(shown["filter"]["expression"], "status = \"handling\"");
        assert_eq!(shown["filter"]["disableSingleFire"], false);

        assert_eq!(status(&mut world, "DELETE", path, ""), 200);
        for (method, path) in [("GET", path), ("DELETE", path), ("GET", "/api/orders/feed")] {
            assert_eq!(status(&mut world, method, path, ""), 404, "{method} {path}");
        }
    }

    #[test]
    fn an_order_has_the_size_and_shape_of_a_real_one_and_nobody_s_data() {
        let mut world = world_of("", 50);
        let item = receive(&mut world).remove(0);
        let id = item["orderId"].as_str().unwrap();
        let response = ask(&mut world, "GET", &format!("/api/oms/pvt/orders/{id}"), "");
        assert!((6_000..20_000).contains(&response.body().len()), "{}", response.body().len());
        let order = body(&response);
        assert_eq!(order["orderId"], id);
        for member in
            ["sequence", "orderGroup", "status", "value", "creationDate", "lastChange", "isCompleted"]
        {
            assert!(!order[member].is_null(), "{member}");
        }
        for personal in ["firstName", "lastName", "email", "document", "phone"] {
            assert!(order["clientProfileData"][personal].as_str().unwrap().contains("DECOY"), "{personal}");
        }
        assert_eq!(body(&ask(&mut world, "GET", &format!("/api/oms/pvt/orders/{id}"), "")), order);
        let sequence = order["sequence"].as_str().unwrap();
        assert_eq!(body(&ask(&mut world, "GET", &format!("/api/oms/pvt/orders/seq{sequence}"), "")), order);
        assert_eq!(status(&mut world, "GET", "/api/oms/pvt/orders/nobody-01", ""), 404);
    }

    #[test]
    fn an_order_may_be_missing_incomplete_of_no_status_or_late() {
        let order = |settings: &str| {
            let mut world = world_of(settings, 1);
            let id = receive(&mut world).remove(0)["orderId"].as_str().unwrap().to_owned();
            ask(&mut world, "GET", &format!("/api/oms/pvt/orders/{id}"), "")
        };
        assert_eq!(order("[orders]\nmissing = 1.0").status(), 404);
        assert_eq!(order("[orders]\nnot_found_for = \"3h\"").status(), 404);
        assert_eq!(order("[orders]\nnot_found_for = \"1s\"").status(), 200);
        assert_eq!(body(&order("[orders]\nincomplete = 1.0"))["isCompleted"], false);
        let odd = body(&order("[orders]\nodd_status = 1.0"))["status"].clone();
        assert!([Value::Null, "".into(), "detail.state.null".into()].contains(&odd), "{odd}");
    }

    #[test]
    fn handling_starts_once_and_makes_two_events() {
        let mut world = world_of("[orders]\nwait_for_start_handling = true", 500);
        let ready = std::iter::from_fn(|| Some(receive(&mut world)).filter(|batch| !batch.is_empty()))
            .flatten()
            .find(|item| {
                item["state"] == "ready-for-handling" && !item["orderId"].as_str().unwrap().contains('/')
            })
            .unwrap();
        drain(&mut world);
        let path = format!("/api/oms/pvt/orders/{}/start-handling", ready["orderId"].as_str().unwrap());
        assert_eq!(status(&mut world, "POST", &path, ""), 204);
        let mut states: Vec<Value> = receive(&mut world).iter().map(|item| item["state"].clone()).collect();
        states.sort_by_key(ToString::to_string);
        assert_eq!(states, ["handling", "start-handling"]);
        let again = ask(&mut world, "POST", &path, "");
        assert_eq!(again.status(), StatusCode::CONFLICT);
        assert_eq!(body(&again)["error"]["code"], "OMS003");
        assert_eq!(status(&mut world, "POST", "/api/oms/pvt/orders/nobody-01/start-handling", ""), 404);
    }

    #[test]
    fn orders_are_listed_in_pages() {
        let mut world = world_of("[orders]\nlisted_after = \"0s\"", 1_000);
        let first = body(&ask(&mut world, "GET", "/api/oms/pvt/orders?per_page=50", ""));
        assert_eq!(first["list"].as_array().unwrap().len(), 50);
        assert_eq!(first["paging"]["currentPage"], 1);
        assert!(first["paging"]["total"].as_u64().unwrap() > 60);
        let second = body(&ask(&mut world, "GET", "/api/oms/pvt/orders?per_page=50&page=2", ""));
        assert_ne!(first["list"][0]["orderId"], second["list"][0]["orderId"]);
        let some = body(&ask(&mut world, "GET", "/api/oms/pvt/orders?f_status=invoiced,canceled", ""));
        assert!(
            some["list"]
                .as_array()
                .unwrap()
                .iter()
                .all(|row| row["status"] == "invoiced" || row["status"] == "canceled")
        );
        assert_eq!(status(&mut world, "GET", "/api/oms/pvt/orders?page=31", ""), 400);
    }

    fn receive(world: &mut World) -> Vec<Value> {
        body(&ask(world, "GET", "/api/orders/feed", "")).as_array().unwrap().clone()
    }

    fn drain(world: &mut World) {
        while !receive(world).is_empty() {}
    }

    fn status(world: &mut World, method: &str, path: &str, body: &str) -> u16 {
        ask(world, method, path, body).status().as_u16()
    }

    fn ask(world: &mut World, method: &str, path: &str, body: &str) -> Response<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-vtex-api-appkey", "key")
            .header("x-vtex-api-apptoken", "token")
            .body(Bytes::from(body.to_owned()));
        answer(world, Duration::ZERO, &request.unwrap()).response
    }

    fn body(response: &Response<Bytes>) -> Value {
        serde_json::from_slice(response.body()).unwrap()
    }

    fn world(settings: &str) -> World {
        world_of(settings, 0)
    }

    fn world_of(settings: &str, count: u64) -> World {
        let settings = Settings::parse(settings).unwrap();
        World::new(Options { settings, count, ..Options::default() }, "2026-03-02T20:00:00Z".parse().unwrap())
    }
}
