//! Lists that are neither empty nor endless.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// One to `MAX` items.
#[derive(Debug, Clone, Serialize)]
pub(in crate::config) struct List<T, const MAX: usize>(pub(in crate::config) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

impl<T: JsonSchema, const MAX: usize> JsonSchema for List<T, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("list of {}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let item = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": item, "minItems": 1, "maxItems": MAX })
    }
}

struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
    type Value = List<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of 1 to {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = given.next_element()? {
            items.push(item);
            if MAX < items.len() {
                break;
            }
        }
        if (1..=MAX).contains(&items.len()) {
            Ok(List(items))
        } else {
            Err(A::Error::custom(format_args!("must be a list of 1 to {MAX}")))
        }
    }
}
