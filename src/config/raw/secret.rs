//! Where a secret is written.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::file::FilePath;
use super::list::List;
use super::text::{Text, Word};
use crate::config::Secret;

/// The keys of which a secret source has exactly one.
pub(in crate::config) const SECRET_SOURCES: [&str; 3] = ["file", "credential", "env"];

/// A secret, or where it is.
#[derive(Debug)]
pub(in crate::config) enum RawSecret {
    Literal(Secret),
    File(PathBuf),
    /// A name in the folder that systemd passes on.
    Credential(String),
    /// A variable of the environment.
    Env(String),
}

impl<'de> Deserialize<'de> for RawSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretVisitor)
    }
}

/// Shows where the secret is, and nothing of it.
impl Serialize for RawSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Literal(_) => serializer.serialize_str("***"),
            Self::File(path) => serializer.collect_str(&format_args!("*** (file {})", path.display())),
            Self::Credential(name) => serializer.collect_str(&format_args!("*** (credential {name})")),
            Self::Env(name) => serializer.collect_str(&format_args!("*** (env {name})")),
        }
    }
}

impl JsonSchema for RawSecret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "secret".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut source = generator.subschema_for::<RawSource>();
        source.insert("minProperties".to_owned(), 1.into());
        source.insert("maxProperties".to_owned(), 1.into());
        json_schema!({ "anyOf": [{ "type": "string" }, source] })
    }
}

/// One secret, or a list of up to `MAX` while one takes the place of another.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(in crate::config) enum RawSecrets<const MAX: usize> {
    One(RawSecret),
    Several(List<RawSecret, MAX>),
}

impl<const MAX: usize> RawSecrets<MAX> {
    pub(in crate::config) fn all(&self) -> &[RawSecret] {
        match self {
            Self::One(secret) => std::slice::from_ref(secret),
            Self::Several(List(secrets)) => secrets,
        }
    }

    pub(in crate::config) fn into_all(self) -> Vec<RawSecret> {
        match self {
            Self::One(secret) => vec![secret],
            Self::Several(List(secrets)) => secrets,
        }
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for RawSecrets<MAX> {
    /// As a list, so that a text of the environment is split.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(SecretsVisitor::<MAX>)
    }
}

impl<const MAX: usize> JsonSchema for RawSecrets<MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "secrets".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<RawSecret>();
        let several = generator.subschema_for::<List<RawSecret, MAX>>();
        json_schema!({ "anyOf": [one, several] })
    }
}

struct SecretsVisitor<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for SecretsVisitor<MAX> {
    type Value = RawSecrets<MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SecretVisitor.expecting(f)?;
        write!(f, ", or a list of 1 to {MAX} of these")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        SecretVisitor.visit_str(text).map(RawSecrets::One)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        SecretVisitor.visit_map(map).map(RawSecrets::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        List::deserialize(SeqAccessDeserializer::new(list)).map(RawSecrets::Several)
    }
}

#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RawSource {
    /// The path of a file that holds the secret and nothing else.
    file: Option<Text<FilePath>>,
    /// The name of a systemd credential (`LoadCredential=`).
    credential: Option<Text<CredentialName>>,
    /// The name of an environment variable.
    env: Option<Text<VariableName>>,
}

struct SecretVisitor;

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = RawSecret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, { file = \"…\" }, { credential = \"…\" } or { env = \"…\" }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RawSecret, E> {
        Ok(RawSecret::Literal(Secret::new(text.to_owned())))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawSecret, A::Error> {
        let RawSource { file, credential, env } = RawSource::deserialize(MapAccessDeserializer::new(map))?;
        match (file, credential, env) {
            (Some(Text { value: FilePath(path), .. }), None, None) => Ok(RawSecret::File(path)),
            (None, Some(Text { value: CredentialName(name), .. }), None) => Ok(RawSecret::Credential(name)),
            (None, None, Some(Text { value: VariableName(name), .. })) => Ok(RawSecret::Env(name)),
            _ => Err(A::Error::custom("must have exactly one of `file`, `credential` and `env`")),
        }
    }
}

/// A plain file name.
struct CredentialName(String);

impl Word for CredentialName {
    fn allowed() -> String {
        "the name of a systemd credential, without a slash".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let is_name = !matches!(text, "" | "." | "..") && !text.contains(['/', '\0']);
        is_name.then(|| Self(text.to_owned()))
    }
}

struct VariableName(String);

impl Word for VariableName {
    fn allowed() -> String {
        "the name of an environment variable".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        (!text.is_empty() && !text.contains(['=', '\0'])).then(|| Self(text.to_owned()))
    }
}
