//! serde's view of the merged tree: strict for the file, by the key's own type for texts of the environment.

use std::collections::BTreeMap;
use std::fmt;

use config::{Value, ValueKind};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::config::origin::Origin;

/// A value of the tree.
pub(super) struct Node(pub(super) Value);

/// What is allowed instead. Values are never part of it: one may be a secret in the wrong place.
#[derive(Debug)]
pub(super) enum Wrong {
    /// Something else stands where a table should.
    NoTable,
    /// The key inside of the table has no valid value.
    Key {
        key: &'static str,
        message: String,
    },
    Value {
        message: String,
    },
}

impl Node {
    /// The text, where only the key's own type can say what it is.
    fn untyped(&self) -> Option<&str> {
        match (&self.0.kind, Origin::of(&self.0)) {
            (ValueKind::String(text), Origin::Variable(_) | Origin::Default) => Some(text.trim()),
            _ => None,
        }
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0.kind {
            ValueKind::Nil => Err(de::Error::invalid_type(Unexpected::Unit, &visitor)),
            ValueKind::Boolean(boolean) => visitor.visit_bool(boolean),
            ValueKind::I64(integer) => visitor.visit_i64(integer),
            ValueKind::I128(integer) => visitor.visit_i128(integer),
            ValueKind::U64(integer) => visitor.visit_u64(integer),
            ValueKind::U128(integer) => visitor.visit_u128(integer),
            ValueKind::Float(float) => visitor.visit_f64(float),
            ValueKind::String(text) => visitor.visit_string(text),
            ValueKind::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Node))),
            ValueKind::Table(table) => {
                // Sorted, so that the same file always gives the same problems.
                let sorted: BTreeMap<String, Value> = table.into_iter().collect();
                visitor.visit_map(MapDeserializer::new(
                    sorted.into_iter().map(|(key, value)| (key, Node(value))),
                ))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.untyped().map(str::parse) {
            Some(Ok(boolean)) => visitor.visit_bool(boolean),
            Some(Err(_)) | None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.untyped().map(str::parse) {
            Some(Ok(integer)) => visitor.visit_u64(integer),
            Some(Err(_)) | None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.untyped().map(str::parse) {
            Some(Ok(float)) => visitor.visit_f64(float),
            Some(Err(_)) | None => self.deserialize_any(visitor),
        }
    }

    /// A list is none: what serde derives would take its items for the values of the keys, in the order of the type.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        if matches!(self.0.kind, ValueKind::Table(_)) {
            self.deserialize_any(visitor)
        } else {
            Err(Wrong::NoTable)
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let Some(text) = self.untyped() else { return self.deserialize_any(visitor) };
        let items =
            text.split(',').map(|item| Value::new(self.0.origin().map(str::to_owned).as_ref(), item.trim()));
        visitor.visit_seq(SeqDeserializer::new(items.map(Node)))
    }

    /// A table whose key `type` says which variant the other keys belong to.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let ValueKind::Table(mut table) = self.0.kind else {
            return Err(Wrong::NoTable);
        };
        match table.remove("type").map(|value| value.kind) {
            Some(ValueKind::String(variant)) if variants.contains(&variant.as_str()) => {
                visitor.visit_enum(Tagged { variant, rest: Node(table.into()) })
            }
            Some(_) => Err(Wrong::Key { key: "type", message: format!("must be {}", one_of(variants)) }),
            None => {
                Err(Wrong::Key { key: "type", message: format!("required; must be {}", one_of(variants)) })
            }
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct identifier ignored_any
    }
}

impl IntoDeserializer<'_, Wrong> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct Tagged {
    variant: String,
    rest: Node,
}

impl<'de> EnumAccess<'de> for Tagged {
    type Error = Wrong;
    type Variant = Node;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Node), Wrong> {
        Ok((seed.deserialize(self.variant.into_deserializer())?, self.rest))
    }
}

impl<'de> de::VariantAccess<'de> for Node {
    type Error = Wrong;

    fn unit_variant(self) -> Result<(), Wrong> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Wrong> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Wrong> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        self.deserialize_map(visitor)
    }
}

impl std::error::Error for Wrong {}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable => f.write_str("must be a table"),
            Self::Key { message, .. } | Self::Value { message } => f.write_str(message),
        }
    }
}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Value { message: message.to_string() }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let expected = match expected.as_str() {
            "a boolean" => "true or false",
            "a sequence" => "a list",
            other => other,
        };
        Self::custom(format_args!("must be {expected}"))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let distance = |known: &&&str| strsim::damerau_levenshtein(field, known);
        match known.iter().min_by_key(distance) {
            Some(nearest) => Self::custom(format_args!("unknown key; the nearest known one is `{nearest}`")),
            None => Self::custom("unknown key; none is allowed here"),
        }
    }
}

/// "`a`, `b` or `c`"
fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn a_list_from_the_environment_is_split_at_commas_and_one_from_the_file_is_not() {
        let list =
            |origin: Origin| Vec::<String>::deserialize(Node(Value::new(origin.tag().as_ref(), "a, b")));
        assert_eq!(list(Origin::Variable("X".to_owned())).unwrap(), ["a", "b"]);
        assert_eq!(list(Origin::File { line: 1, column: 1 }).unwrap_err().to_string(), "must be a list");
    }
}
