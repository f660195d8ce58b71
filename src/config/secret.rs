//! A text that is never printed, and where it is read.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::limited::{self, ReadError};

/// A key, a token or a signing secret. It has no `Display` and its `Debug` is `***` (invariant 6).
#[derive(Clone)]
pub struct Secret(SecretString);

/// Where a secret was read. Only a file can hold another one while the agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// Written in the configuration itself.
    Literal,
    File(PathBuf),
    /// The name of a systemd credential; these are fixed at the start of the unit.
    Credential(String),
    /// The name of an environment variable.
    Env(String),
}

/// Why there is no secret. The text never holds any of it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{} cannot be read: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("{what} holds more than {MAX_BYTES} bytes")]
    TooLong { what: String },
    #[error("{what} is empty")]
    Empty { what: String },
    #[error("{what} must hold printable ASCII characters without spaces; newlines may end it")]
    NotPrintable { what: String },
    #[error(
        "{what} must hold printable ASCII characters, with spaces only between them; newlines may end it"
    )]
    NotAHeader { what: String },
    #[error("{what} must hold UTF-8 text without NUL")]
    NotAVariable { what: String },
    #[error("the environment variable {0} is not set")]
    NotSet(String),
    #[error("the systemd credential {0} is not there: $CREDENTIALS_DIRECTORY is not set")]
    NoCredentials(String),
}

/// The longest header value that servers commonly take.
const MAX_BYTES: u64 = 8 * 1024;

/// With what is taken from its ends.
const MAX_FILE_BYTES: u64 = 2 * MAX_BYTES;

impl Secret {
    pub fn new(text: String) -> Self {
        Self(SecretString::from(text))
    }

    /// Takes all newlines (LF or CR) from the end and a byte order mark from the start, and accepts what may stand in a
    /// header. `what` names the place in errors.
    ///
    /// # Errors
    ///
    /// Empty, longer than 8 KiB, or with a space, a control character or a character beyond ASCII.
    pub fn from_bytes(bytes: &[u8], what: &str) -> Result<Self, SecretError> {
        let text = trimmed(bytes, what)?;
        let fits = text.iter().all(u8::is_ascii_graphic);
        Self::checked(text, fits).ok_or_else(|| SecretError::NotPrintable { what: what.to_owned() })
    }

    /// The same for the value of a header, in which there may be spaces: `Bearer …`.
    pub(super) fn header_from_bytes(bytes: &[u8], what: &str) -> Result<Self, SecretError> {
        let text = trimmed(bytes, what)?;
        let fits = text.iter().all(|b| b.is_ascii_graphic() || *b == b' ') && text.trim_ascii() == text;
        Self::checked(text, fits).ok_or_else(|| SecretError::NotAHeader { what: what.to_owned() })
    }

    /// The same for a variable of a program, which may hold any text, also several lines.
    pub(super) fn variable_from_bytes(bytes: &[u8], what: &str) -> Result<Self, SecretError> {
        let text = trimmed(bytes, what)?;
        let fits = !text.contains(&0);
        Self::checked(text, fits).ok_or_else(|| SecretError::NotAVariable { what: what.to_owned() })
    }

    fn checked(text: &[u8], fits: bool) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|_| fits)?;
        Some(Self::new(text.to_owned()))
    }

    /// Reads a secret file, as [`Secret::from_bytes`] does; blocks for that one small read.
    ///
    /// # Errors
    ///
    /// Also where the file is missing, unreadable or something else than a regular file.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        Self::from_bytes(&read(path)?, &path.display().to_string())
    }

    /// Reads the value of an environment variable, as [`Secret::from_bytes`] does.
    ///
    /// # Errors
    ///
    /// Also where the variable is not set.
    pub fn from_variable(name: &str, value: Option<&OsStr>) -> Result<Self, SecretError> {
        let (bytes, what) = variable(name, value)?;
        Self::from_bytes(bytes, &what)
    }

    /// The secret itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Reads a secret file; blocks for that one small read.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, SecretError> {
    limited::read_regular(path, MAX_FILE_BYTES).map_err(|error| match error {
        ReadError::NotRegular => SecretError::NotAFile(path.to_owned()),
        ReadError::TooLong(_) => SecretError::TooLong { what: path.display().to_string() },
        ReadError::Io(error) => SecretError::Io { path: path.to_owned(), error },
    })
}

/// The bytes of a variable, and what errors call it.
pub(super) fn variable<'a>(name: &str, value: Option<&'a OsStr>) -> Result<(&'a [u8], String), SecretError> {
    let value = value.ok_or_else(|| SecretError::NotSet(name.to_owned()))?;
    Ok((value.as_bytes(), format!("the environment variable {name}")))
}

/// Without what editors leave at the ends of a file.
fn trimmed<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [u8], SecretError> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let n_kept = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    match &bytes[..n_kept] {
        [] => Err(SecretError::Empty { what: what.to_owned() }),
        text if MAX_BYTES < text.len() as u64 => Err(SecretError::TooLong { what: what.to_owned() }),
        text => Ok(text),
    }
}

/// Whether others than the owner can read the file; `false` where that cannot be told.
pub(super) fn is_exposed(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o044 != 0)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}
