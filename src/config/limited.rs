//! A file is read whole, up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Why a file was not read; completes a sentence that starts with its path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot be read: {0}")]
    Io(io::Error),
    #[error("is not a regular file")]
    NotRegular,
    #[error("is longer than {0} bytes")]
    TooLong(u64),
}

/// Reads a regular file, or the one that a link leads to. Anything else could have no end, or never begin.
pub(crate) fn read_regular(path: &Path, max_bytes: u64) -> Result<Vec<u8>, ReadError> {
    // Looked at before it is opened: a named pipe would block.
    if !std::fs::metadata(path).map_err(ReadError::Io)?.is_file() {
        return Err(ReadError::NotRegular);
    }
    read_any(path, max_bytes)
}

/// Reads whatever can be read, also a pipe, for which it waits.
pub(crate) fn read_any(path: &Path, max_bytes: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(ReadError::Io)?;
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(ReadError::Io)?;
    if max_bytes < bytes.len() as u64 { Err(ReadError::TooLong(max_bytes)) } else { Ok(bytes) }
}
