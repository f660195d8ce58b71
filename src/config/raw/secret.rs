//! Where a secret is written.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::text::{FilePath, Text, Word};
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawSource {
    file: Option<Text<FilePath>>,
    credential: Option<Text<CredentialName>>,
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
            (Some(Text(FilePath(path))), None, None) => Ok(RawSecret::File(path)),
            (None, Some(Text(CredentialName(name))), None) => Ok(RawSecret::Credential(name)),
            (None, None, Some(Text(VariableName(name)))) => Ok(RawSecret::Env(name)),
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
