//! Secrets, fetched from where they are.

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
    let (key, _) = required(&["accounts", account, "app_key"], raw, surroundings, remarks)?;
    Some(key)
}

/// A literal token in the file is doubtful: configurations are copied, shown and committed.
pub(super) fn token(
    account: &str,
    raw: Option<RawSecret>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<(Secret, SecretSource)> {
    let path = ["accounts", account, "app_token"];
    let (token, source) = required(&path, raw, surroundings, remarks)?;
    doubt_literal(&path, &source, remarks);
    Some((token, source))
}

/// A secret in the file is doubtful: configurations are copied, shown and committed.
pub(super) fn doubt_literal(path: &[&str], source: &SecretSource, remarks: &mut Remarks) {
    if *source == SecretSource::Literal {
        remarks.doubt(path, "written out; a token is safer in { credential = \"…\" } or { file = \"…\" }");
    }
}

pub(super) fn doubt_exposed(path: &[&str], file: &Path, remarks: &mut Remarks) {
    if secret::is_exposed(file) {
        remarks.doubt(path, format!("{} can be read by group or others; chmod 0600 it", file.display()));
    }
}

/// Makes a secret of the bytes that the place with this name holds.
pub(super) type Make = fn(&[u8], &str) -> Result<Secret, SecretError>;

fn required(
    path: &[&str],
    raw: Option<RawSecret>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<(Secret, SecretSource)> {
    match raw {
        Some(raw) => resolve(path, raw, Secret::from_bytes, surroundings, remarks),
        None => {
            remarks.require(path, "text, { file = \"…\" }, { credential = \"…\" } or { env = \"…\" }");
            None
        }
    }
}

/// Returns nothing where a problem or a warning has been told, or where secrets are not fetched.
pub(super) fn resolve(
    path: &[&str],
    raw: RawSecret,
    make: Make,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<(Secret, SecretSource)> {
    if surroundings.view == View::NoSecrets {
        return None;
    }
    let (found, source) = fetch(raw, surroundings.variables);
    if let SecretSource::File(file) = &source {
        doubt_exposed(path, file, remarks);
    }
    match found.and_then(|(bytes, what)| make(&bytes, &what)) {
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

/// The bytes, and what the place they stand at is called.
type Found = Result<(Vec<u8>, String), SecretError>;

fn fetch(raw: RawSecret, variables: &Variables) -> (Found, SecretSource) {
    let read = |file: &Path| Ok((secret::read(file)?, file.display().to_string()));
    match raw {
        RawSecret::Literal(text) => {
            (Ok((text.expose().into(), "the text".to_owned())), SecretSource::Literal)
        }
        RawSecret::File(file) => (read(&file), SecretSource::File(file)),
        RawSecret::Env(name) => {
            let value = variables.get(OsStr::new(&name)).map(AsRef::as_ref);
            let found = secret::variable(&name, value).map(|(bytes, what)| (bytes.to_vec(), what));
            (found, SecretSource::Env(name))
        }
        RawSecret::Credential(name) => {
            let found = match credential(&name, variables) {
                Some(file) => read(&file),
                None => Err(SecretError::NoCredentials(name.clone())),
            };
            (found, SecretSource::Credential(name))
        }
    }
}

/// The file of a systemd credential, where the service manager named the folder.
pub(super) fn credential(name: &str, variables: &Variables) -> Option<PathBuf> {
    let directory = variables.get(OsStr::new(CREDENTIALS_DIRECTORY)).filter(|given| !given.is_empty())?;
    Some(Path::new(directory).join(name))
}
