//! The items of a feed: what an event looks like on the wire, without its handle.

use std::sync::Arc;

use jiff::Timestamp;
use rand::Rng;
use rand::RngExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The JSON text of one item as the feed answers it, still without a handle. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item(Arc<str>);

impl Item {
    /// Takes any JSON value; one that is not an object can be answered but has no place for a handle.
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
            Some(members) => format!("{members},\"handle\":\"{handle}\"}}"),
            None => self.0.to_string(),
        }
    }

    /// The item's members; `Null` answers every look-up of an item that is not an object.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// One change of an order's workflow.
#[derive(Debug, Clone)]
pub struct WorkflowEvent<'a> {
    pub order_id: &'a str,
    pub domain: &'a str,
    pub state: &'a str,
    pub last_state: Option<&'a str>,
    /// When the order entered `last_state`, as [`date`] writes it.
    pub last_change: &'a str,
    /// When it entered `state`.
    pub current_change: &'a str,
}

impl WorkflowEvent<'_> {
    /// The eight documented fields but the handle. `eventId` is a digest of the others, as the 32 hex digits of
    /// VTEX's samples seem to be.
    pub fn item(&self) -> Item {
        let mut item = json!({
            "domain": self.domain,
            "state": self.state,
            "lastState": self.last_state,
            "orderId": self.order_id,
            "lastChange": self.last_change,
            "currentChange": self.current_change,
        });
        item["eventId"] = Value::String(event_id(&item));
        Item::new(&item)
    }
}

/// 32 upper-case hex digits that depend on every member of the item.
pub fn event_id(item: &Value) -> String {
    let digest = Sha256::digest(item.to_string().as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02X}")).collect()
}

/// A date as .NET writes it: UTC with `Z`, 0–7 fractional digits, trailing zeros trimmed. How many digits there
/// are is drawn, so that every length occurs.
pub fn date(at: Timestamp, rng: &mut impl Rng) -> String {
    let digits = rng.random_range(0..=7_usize);
    let seconds = at.strftime("%Y-%m-%dT%H:%M:%S");
    let fraction: String = at.strftime("%9f").to_string().chars().take(digits).collect();
    match fraction.trim_end_matches('0') {
        "" => format!("{seconds}Z"),
        kept => format!("{seconds}.{kept}Z"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn a_handle_joins_the_members_of_any_object() {
        assert_eq!(Item::new(&json!({"a": 1})).with_handle("h"), r#"{"a":1,"handle":"h"}"#);
        assert_eq!(Item::new(&json!({})).with_handle("h"), r#"{"handle":"h"}"#);
        assert_eq!(Item::new(&json!(7)).with_handle("h"), "7");
    }

    #[test]
    fn dates_have_none_to_seven_fractional_digits_and_no_trailing_zero() {
        let mut rng = StdRng::seed_from_u64(1);
        let at: Timestamp = "2026-03-02T20:54:23.123456789Z".parse().unwrap();
        let mut lengths: Vec<usize> = (0..200).map(|_| date(at, &mut rng).len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        assert_eq!(lengths, [20, 22, 23, 24, 25, 26, 27, 28]);

        let round: Timestamp = "2026-03-02T20:54:23.5Z".parse().unwrap();
        for _ in 0..50 {
            let text = date(round, &mut rng);
            assert!(["2026-03-02T20:54:23Z", "2026-03-02T20:54:23.5Z"].contains(&text.as_str()), "{text}");
        }
    }

    #[test]
    fn an_event_id_is_32_hex_digits_that_follow_the_content() {
        let event = WorkflowEvent {
            order_id: "1000000000123-01",
            domain: "Fulfillment",
            state: "handling",
            last_state: Some("ready-for-handling"),
            last_change: "2026-03-02T20:54:01Z",
            current_change: "2026-03-02T20:54:23Z",
        };
        let id = |event: &WorkflowEvent| event.item().value()["eventId"].as_str().unwrap().to_owned();
        assert_eq!(id(&event).len(), 32);
        assert!(id(&event).bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)));
        assert_eq!(id(&event), id(&event.clone()));
        assert_ne!(id(&event), id(&WorkflowEvent { state: "invoiced", ..event }));
    }
}
