//! What serde's derives would let pass and nobody means: a list for a table, a table for a word.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// A table of the settings file or an object of a body. A derived type alone would take a list for its values, in the
/// order of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Table<T>(pub(super) T);

/// One of some words. A derived type alone would say "wanted string or table" of anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice<T>(pub(super) T);

/// For fields that hold the type itself.
pub(super) fn de_choice<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Choice::deserialize(from).map(|Choice(word)| word)
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(TableVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(WordOnly(from)).map(Self)
    }
}

struct TableVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
    type Value = Table<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Table)
    }
}

struct WordOnly<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WordOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let word = self.0.deserialize_str(WordVisitor(words))?;
        visitor.visit_enum(word.into_deserializer())
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct WordVisitor(&'static [&'static str]);

impl Visitor<'_> for WordVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of `{}`", self.0.join("`, `"))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<String, E> {
        Ok(word.to_owned())
    }
}
