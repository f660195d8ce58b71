//! Lists that are never endless and empty only where that means something.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// `MIN` to `MAX` items.
#[derive(Debug, Clone, Serialize)]
pub(in crate::config) struct List<T, const MAX: usize, const MIN: usize = 1>(pub(in crate::config) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize, const MIN: usize> Deserialize<'de> for List<T, MAX, MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

impl<T: JsonSchema, const MAX: usize, const MIN: usize> JsonSchema for List<T, MAX, MIN> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("list of {}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let item = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": item, "minItems": MIN, "maxItems": MAX })
    }
}

struct ListVisitor<T, const MAX: usize, const MIN: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize, const MIN: usize> Visitor<'de> for ListVisitor<T, MAX, MIN> {
    type Value = List<T, MAX, MIN>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {MIN} to {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = given.next_element()? {
            items.push(item);
            if MAX < items.len() {
                break;
            }
        }
        if (MIN..=MAX).contains(&items.len()) {
            Ok(List(items))
        } else {
            Err(A::Error::custom(format_args!("must be a list of {MIN} to {MAX}")))
        }
    }
}
