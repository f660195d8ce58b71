//! The CloudEvents envelope that every sink receives.
//!
//! Source: CloudEvents 1.0, JSON format; our extensions are `account`, `state`, `sequence` and `superseded`.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::event::hex;
use crate::journal::Entry;
use crate::sink::Envelope;

#[derive(Serialize)]
struct Line<'a> {
    specversion: &'a str,
    id: &'a str,
    source: &'a str,
    r#type: &'a str,
    subject: &'a str,
    time: Timestamp,
    datacontenttype: &'a str,
    account: &'a str,
    state: &'a str,
    sequence: String,
    superseded: bool,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    event: &'a RawValue,
}

/// Wraps a journaled event; the same entry always gives the same line, but for `superseded`.
pub(super) fn envelope(entry: &Entry) -> Envelope {
    let id = hex(&entry.id);
    let time = entry.current_change.unwrap_or(entry.received_at);
    let line = Line {
        specversion: "1.0",
        id: &id,
        source: &entry.source,
        r#type: "com.vtex.orders.feed.v3.event",
        subject: &entry.order_id,
        time,
        datacontenttype: "application/json",
        account: &entry.account,
        state: &entry.state,
        sequence: format!("{:020}", entry.seq),
        superseded: entry.superseded,
        data: Data { event: raw(&entry.item) },
    };
    #[expect(clippy::expect_used, reason = "strings, numbers and checked JSON always serialize")]
    let line = serde_json::to_string(&line).expect("an envelope serializes");
    Envelope {
        id,
        order_id: entry.order_id.clone(),
        account: entry.account.clone(),
        state: entry.state.clone(),
        seq: entry.seq,
        time,
        line,
    }
}

/// The item is JSON since it was read as such before it was journaled; a journal that was edited by hand may
/// hold anything, which must not end the agent.
fn raw(item: &str) -> &RawValue {
    serde_json::from_str(item).unwrap_or(RawValue::NULL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_one_line_with_the_item_as_received() {
        let entry = Entry {
            seq: 42,
            id: [0xab; 16],
            account: "store".into(),
            source: "https://store.vtexcommercestable.com.br/api/orders/feed".into(),
            order_id: "1000000000123-01".into(),
            state: "handling".into(),
            current_change: crate::event::date("2026-03-02T20:54:23.7153839Z"),
            received_at: "2026-03-02T21:00:00Z".parse().unwrap(),
            superseded: false,
            item: r#"{"orderId":"1000000000123-01","n":1.50}"#.into(),
        };
        assert_eq!(
            envelope(&entry).line,
            concat!(
                r#"{"specversion":"1.0","id":"abababababababababababababababab","#,
                r#""source":"https://store.vtexcommercestable.com.br/api/orders/feed","#,
                r#""type":"com.vtex.orders.feed.v3.event","subject":"1000000000123-01","#,
                r#""time":"2026-03-02T20:54:23.7153839Z","datacontenttype":"application/json","account":"store","#,
                r#""state":"handling","sequence":"00000000000000000042","superseded":false,"#,
                r#""data":{"event":{"orderId":"1000000000123-01","n":1.50}}}"#
            )
        );
        let dateless = Entry { current_change: None, ..entry };
        assert!(envelope(&dateless).line.contains(r#""time":"2026-03-02T21:00:00Z""#));
    }
}
