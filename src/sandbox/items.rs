//! The items of a feed: what an event looks like on the wire, without its handle.

use std::sync::Arc;

use jiff::Timestamp;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The JSON text of one item as the feed answers it, still without a handle. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item(Arc<str>);

impl Item {
    /// Takes any JSON value. One that is not an object is answered as it is, and so is one with a `handle` of its own.
    pub fn new(value: &Value) -> Self {
        Self(value.to_string().into())
    }

    /// The item without its handle.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The text that a receive answers: the item with `handle` as one more member.
    pub fn with_handle(&self, handle: &str) -> String {
        match self.0.strip_suffix('}') {
            Some("{") => format!("{{\"handle\":\"{handle}\"}}"),
            Some(members) if self.value().get("handle").is_none() => {
                format!("{members},\"handle\":\"{handle}\"}}")
            }
            Some(_) | None => self.0.to_string(),
        }
    }

    /// The item's members; `Null` answers every look-up of an item that is not an object.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// One change of an order, before it becomes an item of some feed.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    pub order_id: &'a str,
    /// `Marketplace` or `Fulfillment`.
    pub domain: &'a str,
    pub state: &'a str,
    pub last_state: Option<&'a str>,
    /// When the order entered `last_state`.
    pub last_change: Timestamp,
    /// When it entered `state`.
    pub current_change: Timestamp,
}

/// How often items stray from VTEX's documents; each number is a probability from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Variety {
    /// `state` is null, empty, unknown, or one that the filter does not ask for.
    pub odd_state: f64,
    /// `availableDate`, which VTEX's own sample reads, and members that nobody documents.
    pub extra_fields: f64,
}

impl Event<'_> {
    /// The item of a feed whose filter is of the type `FromWorkflow`, still without `eventId`.
    pub fn from_workflow(&self) -> Value {
        json!({
            "domain": self.domain,
            "state": self.state,
            "lastState": self.last_state,
            "orderId": self.order_id,
            "lastChange": format!("{}Z", date(self.last_change)),
            "currentChange": format!("{}Z", date(self.current_change)),
        })
    }

    /// The item of a feed whose filter is of the type `FromOrders`: it tells neither state nor zone, and its
    /// `currentChange` means nothing. Still without `eventId`.
    pub fn from_orders(&self) -> Value {
        json!({
            "domain": "OrdersDocumentUpdated",
            "state": "unknow",
            "lastState": null,
            "orderId": self.order_id,
            "lastChange": date(self.current_change),
            "currentChange": "0001-01-01T00:00:00",
        })
    }
}

/// Lets an item stray, then gives it its `eventId`.
pub fn finish(mut item: Value, variety: Variety, rng: &mut StdRng) -> Item {
    if happens(variety.odd_state, rng) {
        item["state"] = ODD_STATES[rng.random_range(0..ODD_STATES.len())].into();
    }
    if happens(variety.extra_fields, rng) {
        item["availableDate"] = item["currentChange"].clone();
        item["origin"] = json!({"account": "sandbox", "key": null});
        item["workflowVersion"] = json!(3.5);
    }
    item["eventId"] = event_id(&item).into();
    Item::new(&item)
}

/// 32 upper-case hex digits that follow from the item's members, as those of VTEX's samples seem to.
pub fn event_id(item: &Value) -> String {
    let digest = Sha256::digest(item.to_string().as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02X}")).collect()
}

const ODD_STATES: [Option<&str>; 5] =
    [None, Some(""), Some("detail.state.null"), Some("a-state-of-tomorrow"), Some("replaced")];

/// A date as .NET writes it, without a zone: up to 7 fractional digits, trailing zeros trimmed.
pub fn date(at: Timestamp) -> String {
    let text = at.strftime("%Y-%m-%dT%H:%M:%S.%9f").to_string();
    let ticks = &text[..text.len() - 2];
    ticks.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws whether something of this probability happens; nothing is drawn for the impossible.
pub(super) fn happens(probability: f64, rng: &mut StdRng) -> bool {
    probability > 0.0 && rng.random::<f64>() < probability
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_handle_joins_the_members_of_any_object() {
        assert_eq!(Item::new(&json!({"a": 1})).with_handle("h"), r#"{"a":1,"handle":"h"}"#);
        assert_eq!(Item::new(&json!({})).with_handle("h"), r#"{"handle":"h"}"#);
        assert_eq!(Item::new(&json!(7)).with_handle("h"), "7");
        assert_eq!(Item::new(&json!({"handle": null})).with_handle("h"), r#"{"handle":null}"#);
    }

    #[test]
    fn a_date_has_up_to_seven_fractional_digits_and_no_trailing_zero() {
        let table = [
            ("2026-03-02T20:54:23.123456789Z", "2026-03-02T20:54:23.1234567"),
            ("2026-03-02T20:54:23.1340570Z", "2026-03-02T20:54:23.134057"),
            ("2026-03-02T20:54:20Z", "2026-03-02T20:54:20"),
            ("2026-03-02T20:54:20.00000009Z", "2026-03-02T20:54:20"),
        ];
        for (at, text) in table {
            assert_eq!(date(at.parse().unwrap()), text);
        }
    }

    #[test]
    fn an_event_id_is_32_hex_digits_that_follow_the_content() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut id = |event: Event| {
            let item = finish(event.from_workflow(), Variety::default(), &mut rng).value();
            item["eventId"].as_str().unwrap().to_owned()
        };
        let first = id(EVENT);
        assert_eq!(first.len(), 32);
        assert!(first.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)));
        assert_eq!(first, id(EVENT));
        assert_ne!(first, id(Event { state: "invoiced", ..EVENT }));
    }

    #[test]
    fn an_item_of_an_order_filter_says_neither_state_nor_zone() {
        let item = EVENT.from_orders();
        assert_eq!(item["domain"], "OrdersDocumentUpdated");
        assert_eq!((&item["state"], &item["lastState"]), (&json!("unknow"), &Value::Null));
        assert_eq!(item["lastChange"], "1970-01-01T00:00:00");
        assert_eq!(item["currentChange"], "0001-01-01T00:00:00");
    }

    #[test]
    fn items_stray_only_where_asked() {
        let mut rng = StdRng::seed_from_u64(1);
        let variety = Variety { odd_state: 1.0, extra_fields: 1.0 };
        let states: Vec<Value> = (0..50)
            .map(|_| finish(EVENT.from_workflow(), variety, &mut rng).value()["state"].clone())
            .collect();
        for odd in ODD_STATES {
            assert!(states.contains(&odd.into()), "{odd:?}");
        }
        let item = finish(EVENT.from_workflow(), variety, &mut rng).value();
        assert!(item["availableDate"].is_string() && item["workflowVersion"].is_f64());
        let item = finish(EVENT.from_workflow(), Variety::default(), &mut rng).value();
        assert_eq!(item.as_object().unwrap().len(), 7);
        assert_eq!(item["state"], "handling");
    }

    const EVENT: Event = Event {
        order_id: "1000000000123-01",
        domain: "Fulfillment",
        state: "handling",
        last_state: Some("ready-for-handling"),
        last_change: Timestamp::UNIX_EPOCH,
        current_change: Timestamp::UNIX_EPOCH,
    };
}
