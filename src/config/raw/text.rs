//! Values that are written as text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// A type that is written as text.
pub(in crate::config) trait Word: Sized {
    /// A regular expression for editors; never stricter than [`Word::read`].
    const PATTERN: Option<&str> = None;

    /// Completes "must be …"; says all that is allowed, because what was written is not repeated.
    fn allowed() -> String;

    fn read(text: &str) -> Option<Self>;

    /// What may be shown of the text.
    fn shown(&self, text: &str) -> String {
        text.to_owned()
    }
}

/// A [`Word`] as serde reads it, and what may be shown of its text.
#[derive(Debug, Clone)]
pub(in crate::config) struct Text<T> {
    pub(in crate::config) value: T,
    shown: String,
}

impl<'de, T: Word> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WordVisitor(PhantomData))
    }
}

impl<T> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown)
    }
}

impl<T: Word> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::allowed().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "string", super::ALLOWED: T::allowed() });
        if let Some(pattern) = T::PATTERN {
            schema.insert("pattern".to_owned(), pattern.into());
        }
        schema
    }
}

struct WordVisitor<T>(PhantomData<T>);

impl<T: Word> Visitor<'_> for WordVisitor<T> {
    type Value = Text<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::allowed())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<T>, E> {
        let value = T::read(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))?;
        let shown = value.shown(text);
        Ok(Text { value, shown })
    }
}
