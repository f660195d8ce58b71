//! An error with its causes, on one line.

use std::error::Error;
use std::fmt;

/// Causes printed at most; a chain that goes round in a circle ends too.
const MAX_CAUSES: usize = 16;

/// Prints an error and its sources, each once, joined by `: `.
///
/// A source whose text the error before it already ends with (as `transparent` errors and some libraries do) is not
/// said again.
#[derive(Debug, Clone, Copy)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        for cause in std::iter::successors(self.0.source(), |&cause| cause.source()).take(MAX_CAUSES) {
            let text = cause.to_string();
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    enum Failure {
        #[error("the journal cannot be written")]
        Journal(#[source] io::Error),
        #[error(transparent)]
        Transparent(#[from] io::Error),
        #[error("the poll failed: {0}")]
        Repeating(#[source] io::Error),
    }

    #[test]
    fn every_cause_is_said_once() {
        let full = || io::Error::other("no space left");
        let said = |error: Failure| ErrorChain(&error).to_string();
        assert_eq!(said(Failure::Journal(full())), "the journal cannot be written: no space left");
        assert_eq!(said(Failure::Transparent(full())), "no space left");
        assert_eq!(said(Failure::Repeating(full())), "the poll failed: no space left");
    }
}
