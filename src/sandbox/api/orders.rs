//! The routes of orders: one order, the list of orders, the start of handling, and the test of an expression.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::{envelope, json_text, json_value, no_content};
use crate::sandbox::account::{Account, signed};
use crate::sandbox::document::{Traits, document, list_row};
use crate::sandbox::jsonata::unclosed;
use crate::sandbox::life::Order;
use crate::sandbox::route::parameters;
use crate::sandbox::strict::Table;
use crate::sandbox::world::World;

pub(super) fn get(world: &World, now: Duration, app_key: &str, id: &str) -> Response<Bytes> {
    let Some((account, order)) = find(world, now, app_key, id) else { return not_found() };
    let traits = Traits::draw(&world.options.settings.orders, &mut world.rng("traits", &order.id));
    if traits.missing {
        return not_found();
    }
    let mut rng = world.rng("document", &order.id);
    json_value(StatusCode::OK, &document(order, traits, account.epoch, &mut rng))
}

pub(super) fn start_handling(world: &mut World, now: Duration, app_key: &str, id: &str) -> Response<Bytes> {
    let Some((_, order)) = find(world, now, app_key, id) else { return not_found() };
    let id = order.id.to_string();
    if world.start_handling(now, app_key, &id) {
        return no_content();
    }
    envelope(StatusCode::CONFLICT, "OMS003", "The order is not in the status ready-for-handling")
}

/// The newest orders first; what VTEX has not indexed yet is left out.
pub(super) fn list(world: &World, now: Duration, app_key: &str, query: &str) -> Response<Bytes> {
    let Some(query) = ListQuery::parse(query) else {
        return envelope(
            StatusCode::BAD_REQUEST,
            "1",
            "page is 1 to 30, per_page 1 to 100, a date range [A TO B]",
        );
    };
    let Some(account) = world.account(app_key) else { return not_found() };
    let indexed = signed(now).saturating_sub(signed(world.options.settings.orders.listed_after));
    let found: Vec<&Order> = account
        .life
        .orders()
        .filter(|order| order.purchased_at <= indexed && query.matches(order, account.epoch))
        .collect();
    let pages = found.len().div_ceil(query.per_page);
    let rows = found.iter().skip((query.page - 1) * query.per_page).take(query.per_page);
    let rows: Vec<Value> = rows.map(|order| list_row(order, account.epoch)).collect();
    let paging =
        json!({"total": found.len(), "pages": pages, "currentPage": query.page, "perPage": query.per_page});
    let body = json!({"list": rows, "facets": [], "paging": paging, "stats": {"stats": {}}, "reportRecordsLimit": 3000});
    json_value(StatusCode::OK, &body)
}

/// Accepts every expression whose brackets and quotes close; it is not evaluated.
pub(super) fn test_expression(body: &Bytes) -> Response<Bytes> {
    let bad = |message: &str| envelope(StatusCode::BAD_REQUEST, "1", message);
    let Ok(Table(test)) = serde_json::from_slice::<Table<ExpressionTest>>(body) else {
        return bad("The body is not {\"Expression\":\"...\",\"Document\":\"...\"}");
    };
    if serde_json::from_str::<Value>(&test.document).is_err() {
        return bad("The document is not JSON");
    }
    match unclosed(&test.expression) {
        None => json_text(StatusCode::OK, "true".into()),
        Some(what) => bad(&what),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExpressionTest {
    expression: String,
    /// JSON as a text.
    document: String,
}

struct ListQuery {
    page: usize,
    per_page: usize,
    created: Option<(Timestamp, Timestamp)>,
    statuses: Vec<String>,
}

impl ListQuery {
    fn parse(query: &str) -> Option<Self> {
        let given: BTreeMap<String, String> = parameters(query).into_iter().collect();
        let number =
            |name: &str, default: usize| given.get(name).map_or(Some(default), |text| text.parse().ok());
        let page = number("page", 1).filter(|page| (1..=30).contains(page))?;
        let per_page = number("per_page", 15).filter(|n| (1..=100).contains(n))?;
        let created =
            given.get("f_creationDate").map(|range| date_range(range).ok_or(())).transpose().ok()?;
        let statuses =
            given.get("f_status").map_or(Vec::new(), |list| list.split(',').map(str::to_owned).collect());
        Some(Self { page, per_page, created, statuses })
    }

    fn matches(&self, order: &Order, epoch: Timestamp) -> bool {
        let created = epoch.saturating_add(order.purchased_at).unwrap_or(epoch);
        let in_range = self.created.is_none_or(|(from, to)| (from..=to).contains(&created));
        let status = order.state().unwrap_or_default();
        in_range && (self.statuses.is_empty() || self.statuses.iter().any(|wanted| wanted == status))
    }
}

/// Reads `creationDate:[2026-03-02T00:00:00.000Z TO 2026-03-03T00:00:00.000Z]`.
fn date_range(range: &str) -> Option<(Timestamp, Timestamp)> {
    let (from, to) = range.strip_prefix("creationDate:[")?.strip_suffix(']')?.split_once(" TO ")?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// The order, unless VTEX would not have it yet.
fn find<'a>(world: &'a World, now: Duration, app_key: &str, id: &str) -> Option<(&'a Account, &'a Order)> {
    let account = world.account(app_key)?;
    let order = account.life.order(id).filter(|order| order.state().is_some())?;
    let age: SignedDuration = signed(now).saturating_sub(order.last_change());
    (age >= signed(world.options.settings.orders.not_found_for)).then_some((account, order))
}

fn not_found() -> Response<Bytes> {
    envelope(StatusCode::NOT_FOUND, "OMS007", "Order Not Found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_the_list_are_those_of_vtex() {
        for query in [
            "",
            "page=30&per_page=100",
            "f_creationDate=creationDate%3A%5B2026-03-02T00%3A00%3A00.000Z+TO+2026-03-03T00%3A00%3A00.000Z%5D",
        ] {
            assert!(ListQuery::parse(query).is_some(), "{query}");
        }
        for query in ["page=0", "page=31", "per_page=0", "per_page=101", "page=x", "f_creationDate=yesterday"]
        {
            assert!(ListQuery::parse(query).is_none(), "{query}");
        }
    }

    #[test]
    fn an_expression_is_tested_for_wholeness_only() {
        let ask = |body: Value| test_expression(&Bytes::from(body.to_string()));
        let whole = ask(json!({"Expression": "status = \"handling\"", "Document": "{\"status\":1}"}));
        assert_eq!((whole.status(), &whole.body()[..]), (StatusCode::OK, &b"true"[..]));
        for body in [
            json!({"Expression": "(status", "Document": "{}"}),
            json!({"Expression": "status", "Document": "{"}),
            json!({"Expression": "status", "Document": {}}),
            json!({}),
            json!(["status", "{}"]),
        ] {
            assert_eq!(ask(body.clone()).status(), StatusCode::BAD_REQUEST, "{body}");
        }
    }
}
