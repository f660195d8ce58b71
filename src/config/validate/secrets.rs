//! The key and the token of a feed, fetched from where they are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{Remarks, Surroundings, View};
use crate::config::environment::Variables;
use crate::config::raw::RawSecret;
use crate::config::secret::{self, Secret, SecretError, SecretSource};

/// The folder into which systemd puts the credentials of a unit.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// A literal key is what everybody writes: it is a name more than a secret.
pub(super) fn key(
    account: &str,
    raw: Option<RawSecret>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Secret> {
    resolve(&["accounts", account, "app_key"], raw, surroundings, remarks).map(|(key, _)| key)
}

/// A literal token in the file is doubtful: configurations are copied, shown and committed.
pub(super) fn token(
    account: &str,
    raw: Option<RawSecret>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<(Secret, SecretSource)> {
    let path = ["accounts", account, "app_token"];
    let (token, source) = resolve(&path, raw, surroundings, remarks)?;
    if source == SecretSource::Literal {
        remarks.doubt(&path, "written out; a token is safer in { credential = \"…\" } or { file = \"…\" }");
    }
    Some((token, source))
}

fn resolve(
    path: &[&str],
    raw: Option<RawSecret>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<(Secret, SecretSource)> {
    let Some(raw) = raw else {
        remarks.require(path, "text, { file = \"…\" }, { credential = \"…\" } or { env = \"…\" }");
        return None;
    };
    if surroundings.view == View::NoSecrets {
        return None;
    }
    let (secret, source) = fetch(raw, surroundings.variables);
    if let SecretSource::File(file) = &source
        && secret::is_exposed(file)
    {
        remarks.doubt(path, format!("{} can be read by group or others; chmod 0600 it", file.display()));
    }
    match secret {
        Ok(secret) => Some((secret, source)),
        Err(error @ (SecretError::NoCredentials(_) | SecretError::NotSet(_)))
            if surroundings.view == View::Shell =>
        {
            remarks.doubt(path, format!("not checked: {error}"));
            None
        }
        Err(error) => {
            remarks.refuse(path, error.to_string());
            None
        }
    }
}

fn fetch(raw: RawSecret, variables: &Variables) -> (Result<Secret, SecretError>, SecretSource) {
    match raw {
        RawSecret::Literal(text) => {
            (Secret::from_bytes(text.expose().as_bytes(), "the text"), SecretSource::Literal)
        }
        RawSecret::File(file) => (Secret::from_file(&file), SecretSource::File(file)),
        RawSecret::Env(name) => {
            let value = variables.get(OsStr::new(&name)).map(AsRef::as_ref);
            (Secret::from_variable(&name, value), SecretSource::Env(name))
        }
        RawSecret::Credential(name) => {
            let secret = match credential(&name, variables) {
                Some(file) => Secret::from_file(&file),
                None => Err(SecretError::NoCredentials(name.clone())),
            };
            (secret, SecretSource::Credential(name))
        }
    }
}

/// The file of a systemd credential, where the service manager named the folder.
pub(super) fn credential(name: &str, variables: &Variables) -> Option<PathBuf> {
    let directory = variables.get(OsStr::new(CREDENTIALS_DIRECTORY)).filter(|given| !given.is_empty())?;
    Some(Path::new(directory).join(name))
}
