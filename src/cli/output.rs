//! The one home of printing.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints a line for the user.
///
/// # Errors
/// Nobody reads it ([`io::ErrorKind::BrokenPipe`]), or it cannot be stored.
pub(super) fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Prints why there is no result, as one line on stderr.
pub(super) fn error(text: impl Display) {
    writeln!(io::stderr(), "error: {text}").ok();
}

/// Forgives that the reader went away, as `head` does when it has enough.
pub(super) fn forgive_leaving(printed: io::Result<()>) -> io::Result<()> {
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Ok(()) | Err(_) => printed,
    }
}
