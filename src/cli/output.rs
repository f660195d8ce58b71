//! The one home of printing. A reader that went away (`| head`) is no error.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints a line for the user.
pub(super) fn line(text: impl Display) {
    writeln!(io::stdout(), "{text}").ok();
}

/// Prints why there is no result, as one line on stderr.
pub(super) fn error(text: impl Display) {
    writeln!(io::stderr(), "error: {text}").ok();
}
