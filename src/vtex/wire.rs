//! The shapes on the wire. Items are read leniently: one that cannot be used must not cost the batch.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::event::{self, Event, Handle, Identity, Item, Leased, Unusable, UnusableReason};

/// Writes the body of a commit.
pub(super) fn commit_body<'a>(handles: impl Iterator<Item = &'a Handle>) -> Vec<u8> {
    let handles: Vec<&str> = handles.map(Handle::expose).collect();
    serde_json::json!({ "handles": handles }).to_string().into_bytes()
}

/// Reads the body of a receive: a JSON array whose elements are looked at one by one. `account` is the feed's
/// name, which is part of each event's key.
///
/// # Errors
/// The body is not a JSON array. Nothing of it may be used then, since it may have been cut.
pub(crate) fn read_batch(account: &str, body: &[u8]) -> Result<Vec<Item>, serde_json::Error> {
    let elements: Vec<&RawValue> = serde_json::from_slice(body)?;
    Ok(elements.into_iter().map(|element| read_item(account, element.get())).collect())
}

fn read_item(account: &str, text: &str) -> Item {
    let Ok(members) = serde_json::from_str::<Members<'_>>(text) else {
        return unusable(account, UnusableReason::NotAnObject, None, in_one_line(text));
    };
    let item = members.without("handle");
    let Some(handle) = members.text("handle").filter(|handle| !handle.is_empty()) else {
        return unusable(account, UnusableReason::NoHandle, None, item);
    };
    let handle = Handle::new(handle);
    let Some(order_id) = members.text("orderId").filter(|id| !id.is_empty()) else {
        return unusable(account, UnusableReason::NoOrderId, Some(handle), item);
    };
    let current_change = members.as_received("currentChange");
    let key = Identity {
        account,
        domain: members.as_received("domain").as_deref(),
        order_id: &order_id,
        state: members.as_received("state").as_deref(),
        last_state: members.as_received("lastState").as_deref(),
        last_change: members.as_received("lastChange").as_deref(),
        current_change: current_change.as_deref(),
        event_id: members.as_received("eventId").as_deref(),
    }
    .key();
    Item::Leased(Leased {
        handle,
        event: Event {
            key,
            state: members.text("state").unwrap_or_default(),
            current_change: current_change.as_deref().and_then(event::date),
            order_id,
            item,
        },
    })
}

fn unusable(account: &str, reason: UnusableReason, handle: Option<Handle>, rest: String) -> Item {
    Item::Unusable(Unusable { handle, hash: event::hash([Some(account), Some(&rest)]), rest, reason })
}

/// The members of a JSON object in their order, values byte for byte. Unlike a map of parsed values it keeps
/// numbers exact and reads an object of which one value is no valid text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The last member of that name. VTEX writes camelCase; its own client ignores the case, so ours does.
    fn value(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// The member's text, where it is text.
    fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.value(name)?.get()).ok()
    }

    /// The member's text, or its JSON where it is not text; `None` for null or missing.
    fn as_received(&self, name: &str) -> Option<Cow<'a, str>> {
        match self.value(name)?.get() {
            "null" => None,
            other => Some(self.text(name).map_or(Cow::Borrowed(other), Cow::Owned)),
        }
    }

    /// The object in one line, without any member of that name.
    fn without(&self, name: &str) -> String {
        let members: Vec<String> = self
            .0
            .iter()
            .filter(|(key, _)| !key.eq_ignore_ascii_case(name))
            .map(|(key, value)| {
                format!("{}:{}", serde_json::Value::from(key.as_str()), in_one_line(value.get()))
            })
            .collect();
        format!("{{{}}}", members.join(","))
    }
}

/// Valid JSON has line breaks only between its tokens, where a space means the same.
fn in_one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A member's name. Read as bytes, since an escaped half of a surrogate pair is valid JSON but not text.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Name, E> {
                Ok(Name(String::from_utf8_lossy(bytes).into_owned()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Name, E> {
                Ok(Name(text.to_owned()))
            }
        }
        deserializer.deserialize_bytes(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Item {
        let mut items = read_batch("store", format!("[{text}]").as_bytes()).unwrap();
        assert_eq!(items.len(), 1);
        items.remove(0)
    }

    fn leased(text: &str) -> Leased {
        match one(text) {
            Item::Leased(leased) => leased,
            Item::Unusable(unusable) => panic!("{unusable:?}"),
        }
    }

    #[test]
    fn a_workflow_event_is_read_whole_and_kept_without_its_handle() {
        let item = leased(
            r#"{"eventId":"0A","handle":"h.1","domain":"Fulfillment","state":"handling","lastState":null,
               "orderId":"1-01","lastChange":"2026-03-02T20:54:01Z","currentChange":"2026-03-02T20:54:23.7153839Z",
               "extra":{"exact": 12345678901234567890.10}}"#,
        );
        assert_eq!(item.handle.expose(), "h.1");
        assert_eq!((item.event.order_id.as_str(), item.event.state.as_str()), ("1-01", "handling"));
        assert_eq!(item.event.current_change.unwrap().to_string(), "2026-03-02T20:54:23.7153839Z");
        assert_eq!(
            item.event.item,
            r#"{"eventId":"0A","domain":"Fulfillment","state":"handling","lastState":null,"orderId":"1-01","lastChange":"2026-03-02T20:54:01Z","currentChange":"2026-03-02T20:54:23.7153839Z","extra":{"exact": 12345678901234567890.10}}"#
        );
    }

    #[test]
    fn only_handle_and_order_id_are_needed() {
        for (state, expected) in [
            (r#""handling""#, "handling"),
            (r#""a state of tomorrow""#, "a state of tomorrow"),
            (r#""""#, ""),
            ("null", ""),
            ("7", ""),
            (r#"{"a":1}"#, ""),
        ] {
            let item =
                leased(&format!(r#"{{"handle":"h","orderId":"1","state":{state},"currentChange":"soon"}}"#));
            assert_eq!(item.event.state, expected);
            assert_eq!(item.event.current_change, None);
        }
        assert_eq!(leased(r#"{"Handle":"h","OrderId":"1"}"#).event.item, r#"{"OrderId":"1"}"#);
    }

    #[test]
    fn an_unusable_item_is_kept_without_its_handle_and_does_not_cost_the_batch() {
        let body = r#"[7, {"orderId":"1"}, {"handle":"secret","orderId":null}, {"handle":"secret","orderId":"\ud800"},
            {"handle":"ok","orderId":"1"}, {"handle":{"a":"secret"},"HANDLE":"","orderId":"1"}, null, {"\ud800":1,"handle":"secret"}]"#;
        let items = read_batch("store", body.as_bytes()).unwrap();
        let reasons: Vec<_> = items
            .iter()
            .map(|item| match item {
                Item::Leased(_) => None,
                Item::Unusable(unusable) => {
                    assert!(!unusable.rest.contains("secret"), "{}", unusable.rest);
                    Some((unusable.reason, unusable.handle.is_some()))
                }
            })
            .collect();
        use UnusableReason::{NoHandle, NoOrderId, NotAnObject};
        assert_eq!(
            reasons,
            [
                Some((NotAnObject, false)),
                Some((NoHandle, false)),
                Some((NoOrderId, true)),
                Some((NoOrderId, true)),
                None,
                Some((NoHandle, false)),
                Some((NotAnObject, false)),
                Some((NoOrderId, true)),
            ]
        );
    }

    #[test]
    fn a_body_that_is_not_an_array_is_refused_whole() {
        for body in ["", "{}", "null", r#"[{"handle":"h","orderId":"1"}"#, r#"[{"handle":"h"}] x"#, "<html>"]
        {
            assert!(read_batch("store", body.as_bytes()).is_err(), "{body}");
        }
        assert!(read_batch("store", b"[\"\xff\"]").is_err());
        assert_eq!(read_batch("store", b" [] ").unwrap(), []);
    }

    #[test]
    fn a_redelivered_item_has_another_handle_and_the_same_key() {
        let first =
            leased(r#"{"handle":"a","orderId":"1","state":"x","currentChange":"2026-03-02T20:54:23Z"}"#);
        let again =
            leased(r#"{"orderId":"1","handle":"b","state":"x","currentChange":"2026-03-02T20:54:23Z"}"#);
        assert_eq!(first.event.key, again.event.key);
        assert_ne!(first.handle, again.handle);
    }
}
