//! Numbers with their range.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, Serialize)]
pub(in crate::config) struct Whole<const MIN: u32, const MAX: u32>(pub(in crate::config) u32);

/// A number above 0 and at most `MAX`.
#[derive(Debug, Clone, Copy, Serialize)]
pub(in crate::config) struct Rate<const MAX: u32>(pub(in crate::config) f64);

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeVisitor::<MIN, MAX>)
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Whole<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("whole number from {MIN} to {MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

struct WholeVisitor<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Visitor<'_> for WholeVisitor<MIN, MAX> {
    type Value = Whole<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(number) if (MIN..=MAX).contains(&number) => Ok(Whole(number)),
            Ok(_) | Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl<'de, const MAX: u32> Deserialize<'de> for Rate<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_f64(RateVisitor::<MAX>)
    }
}

impl<const MAX: u32> JsonSchema for Rate<MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("number up to {MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "exclusiveMinimum": 0, "maximum": MAX })
    }
}

struct RateVisitor<const MAX: u32>;

impl<const MAX: u32> Visitor<'_> for RateVisitor<MAX> {
    type Value = Rate<MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number above 0, at most {MAX}")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        if 0.0 < number && number <= f64::from(MAX) {
            Ok(Rate(number))
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        // Beyond `u32` it is out of range anyway.
        self.visit_f64(u32::try_from(number).map_or(f64::INFINITY, f64::from))
    }
}
