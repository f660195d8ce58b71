//! The fact that an order changed, and what it is called on its way through the agent.
//!
//! An [`Item`] is one appearance of an event in a batch. A [`Leased`] item is ours until its lease lapses; its
//! [`Event`] is journaled, its [`Handle`] is only ever sent back to the feed.

use std::fmt;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// The opaque token that commits one item. It has no `Display` and its `Debug` is redacted, since whoever
/// holds it can make VTEX forget the event (invariant 6).
#[derive(Clone, PartialEq, Eq)]
pub struct Handle(String);

impl Handle {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The token itself, for the one request that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(***)")
    }
}

/// One element of a batch, as far as it could be read.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Leased(Leased),
    Unusable(Unusable),
}

/// An event that is hidden from other readers until its lease lapses.
#[derive(Debug, Clone, PartialEq)]
pub struct Leased {
    pub handle: Handle,
    pub event: Event,
}

/// An item that no event can be made of. It is quarantined, so that it costs the batch nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Unusable {
    /// Absent where the item had none; such an item cannot be committed and comes back.
    pub handle: Option<Handle>,
    /// Over the feed's name and `rest`: the same item again has the same hash.
    pub hash: [u8; 16],
    /// The item as received, without its handle.
    pub rest: String,
    pub reason: UnusableReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnusableReason {
    #[error("the item is not an object")]
    NotAnObject,
    #[error("the item has no handle")]
    NoHandle,
    #[error("the item has no orderId")]
    NoOrderId,
}

/// A change of an order, as VTEX told it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub key: EventKey,
    pub order_id: String,
    /// An open set of words; empty where VTEX sent null, nothing, or something that is not text.
    pub state: String,
    /// When the order entered `state`; absent where the date is missing, year 1, or not a date.
    pub current_change: Option<Timestamp>,
    /// The item as received, in one line, without its handle.
    pub item: String,
}

/// What makes an event the same event when it comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKey {
    /// Hours since 1970 of the event's own date, 0 without one. It keeps the journal's key inserts local.
    pub hour: i64,
    /// The first half of a SHA-256 over the identifying fields.
    pub hash: [u8; 16],
    pub reach: Reach,
}

/// How far an equal key proves an equal event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// A date or an eventId tells two changes apart.
    Always,
    /// Nothing tells two changes apart: equal keys are one event only while the first one's lease may run.
    Lease,
}

/// The fields of an item that identify it, as received: `None` for null or missing.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    pub account: &'a str,
    pub domain: Option<&'a str>,
    pub order_id: &'a str,
    pub state: Option<&'a str>,
    pub last_state: Option<&'a str>,
    pub last_change: Option<&'a str>,
    pub current_change: Option<&'a str>,
    pub event_id: Option<&'a str>,
}

impl Identity<'_> {
    /// Returns the deduplication key. The eventId joins in only where no date means anything, since VTEX does
    /// not promise that it stays the same when an item is given again.
    pub fn key(&self) -> EventKey {
        let date = self.current_change.and_then(date).or_else(|| self.last_change.and_then(date));
        let event_id = self.event_id.filter(|id| date.is_none() && !id.is_empty());
        let fields = [
            Some(self.account),
            self.domain,
            Some(self.order_id),
            self.state,
            self.last_state,
            self.last_change,
            self.current_change,
            event_id,
        ];
        EventKey {
            hour: date.map_or(0, |date| date.as_second().div_euclid(3600)),
            hash: hash(fields),
            reach: if date.is_some() || event_id.is_some() { Reach::Always } else { Reach::Lease },
        }
    }
}

/// Hashes fields so that no two different lists of fields are written alike: each with its presence and length.
pub fn hash<'a>(fields: impl IntoIterator<Item = Option<&'a str>>) -> [u8; 16] {
    let mut hasher = Sha256::new();
    for field in fields {
        match field {
            None => hasher.update([0]),
            Some(text) => {
                hasher.update([1]);
                hasher.update((text.len() as u64).to_le_bytes());
                hasher.update(text);
            }
        }
    }
    let mut half = [0; 16];
    half.copy_from_slice(&hasher.finalize()[..16]);
    half
}

/// How ids are shown.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a date of the feed: 0–9 fractional digits, `Z`, an offset, or nothing (then UTC). Year 1, which VTEX
/// sends for "none", and whatever is not a date are `None`.
pub fn date(text: &str) -> Option<Timestamp> {
    let timestamp = text.parse::<Timestamp>().ok().or_else(|| {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        jiff::tz::Offset::UTC.to_timestamp(civil).ok()
    })?;
    let year = jiff::tz::Offset::UTC.to_datetime(timestamp).year();
    (year > 1).then_some(timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity<'static> {
        Identity {
            account: "store",
            domain: Some("Fulfillment"),
            order_id: "1000000000123-01",
            state: Some("handling"),
            last_state: Some("ready-for-handling"),
            last_change: Some("2026-03-02T20:54:01.134057Z"),
            current_change: Some("2026-03-02T20:54:23.7153839Z"),
            event_id: Some("0A1B"),
        }
    }

    #[test]
    fn a_date_is_read_in_every_form_the_feed_sends() {
        let at = |text: &str| date(text).map(|date| date.to_string());
        for (text, expected) in [
            ("2026-03-02T20:54:23Z", Some("2026-03-02T20:54:23Z")),
            ("2026-03-02T20:54:23.7153839Z", Some("2026-03-02T20:54:23.7153839Z")),
            ("2026-03-02T20:54:23.7153839+00:00", Some("2026-03-02T20:54:23.7153839Z")),
            ("2026-03-02T18:54:23-02:00", Some("2026-03-02T20:54:23Z")),
            ("2026-03-02T20:32:06.6120711", Some("2026-03-02T20:32:06.6120711Z")),
            ("0001-01-01T00:00:00", None),
            ("0001-01-01T00:00:00Z", None),
            ("", None),
            ("soon", None),
            ("2026-13-45T99:00:00Z", None),
        ] {
            assert_eq!(at(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn every_identifying_field_changes_the_key() {
        let key = identity().key();
        let others = [
            Identity { account: "other", ..identity() },
            Identity { domain: None, ..identity() },
            Identity { order_id: "1000000000123-02", ..identity() },
            Identity { state: Some(""), ..identity() },
            Identity { last_state: None, ..identity() },
            Identity { last_change: None, ..identity() },
            Identity { current_change: Some("2026-03-02T20:54:23.7153838Z"), ..identity() },
        ];
        for other in others {
            assert_ne!(other.key().hash, key.hash, "{other:?}");
        }
    }

    #[test]
    fn the_event_id_counts_only_where_no_date_means_anything() {
        let other = Identity { event_id: Some("FFFF"), ..identity() };
        assert_eq!(other.key(), identity().key());

        let dateless =
            Identity { last_change: None, current_change: Some("0001-01-01T00:00:00"), ..identity() };
        assert_ne!(Identity { event_id: Some("FFFF"), ..dateless }.key(), dateless.key());
        assert_eq!(dateless.key().reach, Reach::Always);
        assert_eq!(Identity { event_id: None, ..dateless }.key().reach, Reach::Lease);
        assert_eq!(Identity { event_id: Some(""), ..dateless }.key().reach, Reach::Lease);
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(hash([Some("ab"), Some("c")]), hash([Some("a"), Some("bc")]));
        assert_ne!(hash([None, Some("")]), hash([Some(""), None]));
    }

    #[test]
    fn a_handle_is_not_printed() {
        assert_eq!(format!("{:?}", Handle::new("AQEBsecret".into())), "Handle(***)");
    }
}
