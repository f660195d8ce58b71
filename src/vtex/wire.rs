//! The shapes on the wire. Items are read leniently: one that cannot be used must not cost the batch.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
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
pub(crate) fn read_batch(account: &str, body: &[u8]) -> Result<Vec<Item>, NotUnderstood> {
    // A byte that is no text costs at most the item it is in.
    let text = String::from_utf8_lossy(body);
    let Elements(elements) = serde_json::from_str(text.trim_start_matches('\u{feff}'))?;
    Ok(elements.into_iter().map(|element| read_item(account, element.get())).collect())
}

/// Where a body stops being what it should be. The parser's own words would repeat what stands there.
#[derive(Debug, thiserror::Error)]
#[error("not understood at line {line}, column {column}")]
pub struct NotUnderstood {
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for NotUnderstood {
    fn from(error: serde_json::Error) -> Self {
        Self { line: error.line(), column: error.column() }
    }
}

/// Reads the visibility timeout from the feed's configuration. Keys are matched whatever their case, as VTEX does.
///
/// # Errors
/// The body is not JSON, or names no timeout from 0 to 12 hours.
pub(super) fn read_visibility(body: &[u8]) -> Result<Duration, NotUnderstood> {
    const LONGEST: u64 = 12 * 3600;
    let configuration: Members<'_> = serde_json::from_slice(body)?;
    let missing = NotUnderstood { line: 0, column: 0 };
    let Some(queue) = configuration.value("queue") else { return Err(missing) };
    let queue: Members<'_> = serde_json::from_str(queue.get())?;
    let Some(timeout) = queue.value("visibilityTimeoutInSeconds") else { return Err(missing) };
    let seconds: u64 = serde_json::from_str(timeout.get())?;
    if seconds <= LONGEST { Ok(Duration::from_secs(seconds)) } else { Err(missing) }
}

fn read_item(account: &str, text: &str) -> Item {
    let Ok(members) = serde_json::from_str::<Members<'_>>(text) else {
        return not_an_object(account, text);
    };
    let item = members.without("handle");
    let is_token = |handle: &String| !handle.is_empty() && !handle.contains(char::REPLACEMENT_CHARACTER);
    let Some(handle) = members.text("handle").filter(is_token) else {
        return unusable(account, UnusableReason::NoHandle, None, item);
    };
    let handle = Handle::new(handle);
    match read_event(account, &members) {
        Some(event) => Item::Leased(Leased { handle, event }),
        None => unusable(account, UnusableReason::NoOrderId, Some(handle), item),
    }
}

/// Reads an item that was kept without its handle, as [`read_batch`] reads one that has it.
///
/// # Errors
/// What the item lacks.
pub(crate) fn read_kept(account: &str, item: &str) -> Result<Event, UnusableReason> {
    let Ok(members) = serde_json::from_str::<Members<'_>>(item) else {
        return Err(UnusableReason::NotAnObject);
    };
    match read_event(account, &members) {
        Some(event) => Ok(event),
        None if members.is_kind_only() => Err(UnusableReason::NotAnObject),
        None => Err(UnusableReason::NoOrderId),
    }
}

/// Returns nothing where no order is named.
fn read_event(account: &str, members: &Members<'_>) -> Option<Event> {
    let order_id = members.text("orderId").filter(|id| !id.is_empty())?;
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
    Some(Event {
        key,
        state: members.text("state").unwrap_or_default(),
        current_change: current_change.as_deref().and_then(event::date),
        order_id,
        item: members.without("handle"),
    })
}

/// What it is, but not what it says: it may be a bare handle.
fn not_an_object(account: &str, text: &str) -> Item {
    let kind = match text.as_bytes().first() {
        Some(b'"') => "text",
        Some(b'[') => "array",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        Some(_) | None => "number",
    };
    let rest = format!(r#"{{"kind":"{kind}","bytes":{}}}"#, text.len());
    let hash = event::hash([Some(account), Some(text)]);
    Item::Unusable(Unusable { handle: None, hash, rest, reason: UnusableReason::NotAnObject })
}

fn unusable(account: &str, reason: UnusableReason, handle: Option<Handle>, rest: String) -> Item {
    Item::Unusable(Unusable { handle, hash: event::hash([Some(account), Some(&rest)]), rest, reason })
}

/// The elements of a JSON array, the first [`ITEMS_MAX`] of them.
struct Elements<'a>(Vec<&'a RawValue>);

/// VTEX answers at most ten; what lies beyond this is left to come back.
const ITEMS_MAX: usize = 1_000;

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ElementsVisitor;
        impl<'de> Visitor<'de> for ElementsVisitor {
            type Value = Elements<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while elements.len() < ITEMS_MAX
                    && let Some(element) = array.next_element()?
                {
                    elements.push(element);
                }
                while array.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Elements(elements))
            }
        }
        deserializer.deserialize_seq(ElementsVisitor)
    }
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

    /// Whether it is what [`not_an_object`] keeps.
    fn is_kind_only(&self) -> bool {
        self.0.iter().map(|(name, _)| name.as_str()).eq(["kind", "bytes"])
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
        let error = read_batch("store", b"[\"secret\"").unwrap_err();
        assert_eq!(error.to_string(), "not understood at line 1, column 9");
        assert_eq!(read_batch("store", b" [] ").unwrap(), []);
    }

    #[test]
    fn the_visibility_timeout_is_read_in_any_case_and_must_be_plausible() {
        let read = |text: &str| read_visibility(text.as_bytes()).ok().map(|timeout| timeout.as_secs());
        assert_eq!(
            read(r#"{"filter":{},"queue":{"visibilityTimeoutInSeconds":240},"quantity":0}"#),
            Some(240)
        );
        assert_eq!(read(r#"{"Queue":{"VisibilityTimeoutInSeconds":30}}"#), Some(30));
        for odd in ["{}", "[]", "", r#"{"queue":null}"#, r#"{"queue":{"visibilityTimeoutInSeconds":"soon"}}"#]
        {
            assert_eq!(read(odd), None, "{odd}");
        }
        assert_eq!(read(r#"{"queue":{"visibilityTimeoutInSeconds":99999999}}"#), None);
    }

    #[test]
    fn bytes_that_are_no_text_cost_at_most_their_item() {
        let body = b"\xef\xbb\xbf[{\"handle\":\"a\",\"orderId\":\"1\"},{\"handle\":\"b\",\"orderId\":\"2\",\"x\":\"\xff\"},\
            {\"handle\":\"\xff\",\"orderId\":\"3\"}]";
        let items = read_batch("store", body).unwrap();
        let is_usable = items.iter().map(|item| matches!(item, Item::Leased(_)));
        assert_eq!(is_usable.collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn an_array_of_millions_is_read_to_its_end_but_not_kept() {
        let body = format!("[{}0]", "0,".repeat(1_000_000));
        assert_eq!(read_batch("store", body.as_bytes()).unwrap().len(), ITEMS_MAX);
        assert!(read_batch("store", &body.as_bytes()[..body.len() - 1]).is_err());
    }

    #[test]
    fn what_is_not_an_object_is_kept_by_its_kind_only() {
        for (text, kind) in [
            ("\"secret\"", "text"),
            ("[{\"handle\":\"secret\"}]", "array"),
            ("-1", "number"),
            ("true", "boolean"),
        ] {
            let Item::Unusable(unusable) = one(text) else { panic!("{text}") };
            assert_eq!(unusable.rest, format!("{{\"kind\":\"{kind}\",\"bytes\":{}}}", text.len()));
        }
        assert_ne!(one("1"), one("2"));
    }

    #[test]
    fn an_item_kept_without_its_handle_is_the_same_event() {
        for text in [
            r#"{"handle":"h","orderId":"1","state":"x","currentChange":"2026-03-02T20:54:23Z","n":1.50}"#,
            r#"{"Handle":"h","orderId":"1","eventId":"0A"}"#,
            "{\"orderId\":\"1\",\n\"handle\":\"h\",\"state\":null}",
        ] {
            let event = leased(text).event;
            assert_eq!(read_kept("store", &event.item), Ok(event), "{text}");
        }
        let Item::Unusable(handleless) = one(r#"{"orderId":"1","state":"x"}"#) else { panic!() };
        assert_eq!(read_kept("store", &handleless.rest).unwrap().order_id, "1");
    }

    #[test]
    fn what_an_item_still_lacks_is_said() {
        let still = |text: &str| {
            let Item::Unusable(unusable) = one(text) else { panic!("{text}") };
            read_kept("store", &unusable.rest).unwrap_err()
        };
        assert_eq!(still(r#"{"handle":"h","orderId":""}"#), UnusableReason::NoOrderId);
        assert_eq!(still("\"a bare handle\""), UnusableReason::NotAnObject);
        assert_eq!(read_kept("store", "edited by hand"), Err(UnusableReason::NotAnObject));
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
