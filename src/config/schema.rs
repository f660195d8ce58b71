//! The JSON Schema of the configuration, for editors.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Value, json};

use super::raw::{ALLOWED, DEFAULTS, RawConfig, SINK_DEFAULTS};

/// Generates the schema from the types that read the configuration.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(forget_null))
        .with_transform(RecursiveTransform(tell_allowed));
    let mut schema = settings.into_generator().into_root_schema_for::<RawConfig>().to_value();
    for (key, text) in DEFAULTS {
        let pointer = format!("/properties/{}", key.replace('.', "/properties/"));
        set_default(schema.pointer_mut(&pointer), text);
    }
    for (kind, key, text) in SINK_DEFAULTS {
        let variants =
            schema.pointer_mut("/properties/sinks/additionalProperties/oneOf").and_then(Value::as_array_mut);
        let of_kind = |variant: &&mut Value| variant["properties"]["type"]["const"] == *kind;
        let variant = variants.and_then(|variants| variants.iter_mut().find(of_kind));
        set_default(variant.and_then(|variant| variant.pointer_mut(&format!("/properties/{key}"))), text);
    }
    schema["title"] = json!("Configuration of order-feed-agent");
    schema
}

/// TOML has no null, and serde's default of an optional key is none.
fn forget_null(schema: &mut Schema) {
    if schema.get("default").is_some_and(|default| default.is_null() || default.is_object()) {
        schema.remove("default");
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(mut variants)) = schema.remove("anyOf") {
        variants.retain(|variant| *variant != json!({ "type": "null" }));
        match variants.as_mut_slice() {
            [Value::Object(only)] => only.iter().for_each(|(key, value)| {
                schema.insert(key.clone(), value.clone());
            }),
            _ => {
                schema.insert("anyOf".to_owned(), variants.into());
            }
        }
    }
}

/// Adds what a text must be to what its key is for.
fn tell_allowed(schema: &mut Schema) {
    let Some(Value::String(allowed)) = schema.remove(ALLOWED) else { return };
    let purpose = schema.get("description").and_then(Value::as_str).map(|purpose| format!("{purpose}\n"));
    let description = format!("{}Must be {allowed}.", purpose.unwrap_or_default());
    schema.insert("description".to_owned(), description.into());
}

/// Writes a default, given as text, by the key's own type.
fn set_default(schema: Option<&mut Value>, text: &str) {
    let Some(schema) = schema else { return };
    schema["default"] = match schema["type"].as_str() {
        Some("string") => json!(text),
        _ => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
    };
}
