//! `check`: what `run` would say to the configuration.

use std::path::Path;

use super::{Failure, load, output};

pub(super) fn check(path: &Path) -> Result<(), Failure> {
    let loaded = load(path)?;
    for warning in &loaded.warnings {
        output::warning(warning);
    }
    output::line(format_args!("{}: configuration ok", path.display()));
    Ok(())
}
