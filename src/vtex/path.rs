//! The path of a request: fixed segments, and ids that cannot leave theirs.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// No id of VTEX is nearly that long; encoded it fits into any server's limit on a path.
const ID_MAX_BYTES: usize = 256;

/// How much of a refused id is shown.
const SHOWN_CHARS: usize = 40;

/// What means nothing in a path stays (`unreserved` of RFC 3986). All else is encoded, also what may stand in a path:
/// some servers take `;` for the start of a parameter.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What stands between two slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment<'a> {
    /// A part of the API's own paths, which needs no encoding.
    Fixed(&'static str),
    Id(Id<'a>),
}

/// An id that somebody else chose, encoded so that it is exactly one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id<'a>(Cow<'a, str>);

/// An id that no segment can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {what} {shown} {problem}")]
pub struct IdError {
    /// What it is the id of.
    what: &'static str,
    /// Its beginning, quoted and escaped.
    shown: String,
    pub problem: IdProblem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdProblem {
    #[error("is empty")]
    Empty,
    /// `.` and `..`, which stand for other paths and are taken for them even when encoded.
    #[error("stands for another path")]
    Dots,
    #[error("holds a control character")]
    Control,
    #[error("is longer than {ID_MAX_BYTES} bytes")]
    TooLong,
}

impl<'a> Id<'a> {
    /// Encodes an id; `what` names it in errors ("SKU", "order id").
    ///
    /// # Errors
    /// It is empty, `.` or `..`, holds a control character, or is longer than 256 bytes.
    pub fn new(what: &'static str, id: &'a str) -> Result<Self, IdError> {
        let problem = if id.is_empty() {
            IdProblem::Empty
        } else if matches!(id, "." | "..") {
            IdProblem::Dots
        } else if id.chars().any(char::is_control) {
            IdProblem::Control
        } else if ID_MAX_BYTES < id.len() {
            IdProblem::TooLong
        } else {
            return Ok(Self(utf8_percent_encode(id, ENCODED).into()));
        };
        let beginning: String = id.chars().take(SHOWN_CHARS).collect();
        let mark = if beginning.len() < id.len() { "…" } else { "" };
        Err(IdError { what, shown: format!("{beginning:?}{mark}"), problem })
    }
}

impl Segment<'_> {
    /// As it stands on the wire.
    pub(super) fn encoded(&self) -> &str {
        match self {
            Self::Fixed(text) => text,
            Self::Id(Id(encoded)) => encoded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use reqwest::Url;

    #[test]
    fn whatever_means_something_in_a_url_is_encoded() {
        for (id, encoded) in [
            ("1", "1"),
            ("v-1_0.9~b", "v-1_0.9~b"),
            ("../../x?y=1#z", "..%2F..%2Fx%3Fy%3D1%23z"),
            ("a/b", "a%2Fb"),
            ("%2e%2e", "%252e%252e"),
            ("..;", "..%3B"),
            ("...", "..."),
            (r"a\b", "a%5Cb"),
            ("a b", "a%20b"),
            ("ß", "%C3%9F"),
            ("\u{2028}", "%E2%80%A8"),
        ] {
            assert_eq!(Segment::Id(Id::new("SKU", id).unwrap()).encoded(), encoded, "{id}");
        }
    }

    #[test]
    fn what_cannot_be_one_segment_is_refused_by_name() {
        for (id, text) in [
            (String::new(), "the SKU \"\" is empty".to_owned()),
            (".".into(), "the SKU \".\" stands for another path".into()),
            ("..".into(), "the SKU \"..\" stands for another path".into()),
            ("a\0b".into(), r#"the SKU "a\0b" holds a control character"#.into()),
            ("a\r\nb".into(), r#"the SKU "a\r\nb" holds a control character"#.into()),
            ("\u{85}".into(), r#"the SKU "\u{85}" holds a control character"#.into()),
            ("x".repeat(10_000), format!("the SKU \"{}\"… is longer than 256 bytes", "x".repeat(40))),
        ] {
            assert_eq!(Id::new("SKU", &id).unwrap_err().to_string(), text);
        }
        assert!(Id::new("SKU", &"x".repeat(256)).is_ok());
    }

    proptest! {
        #[test]
        fn an_id_stays_the_one_segment_it_is(id in "[./%\\\\;?# a-zé2eE]{0,12}|\\PC{0,60}") {
            if let Ok(id) = Id::new("SKU", &id) {
                let encoded = Segment::Id(id).encoded().to_owned();
                let mut url = Url::parse("https://store.example/api").unwrap();
                url.set_path(&format!("/api/{encoded}/price"));
                let segments: Vec<_> = url.path_segments().unwrap().collect();
                prop_assert_eq!(segments, ["api", &encoded, "price"]);
                prop_assert_eq!((url.query(), url.fragment()), (None, None));
            }
        }
    }
}
