//! Removes old files, and nothing else.

use std::fs;
use std::io;
use std::path::Path;

/// Removes those regular files of a directory that `expired` picks from their names.
///
/// # Errors
/// The first that came; the rest is tried all the same.
pub(crate) fn remove(directory: &Path, expired: impl FnOnce(Vec<String>) -> Vec<String>) -> io::Result<()> {
    let mut result = Ok(());
    for name in expired(regular_files(directory)?) {
        match fs::remove_file(directory.join(name)) {
            // Somebody was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => result = result.and(removed),
        }
    }
    result
}

/// The names of a directory's regular files; a name that is not UTF-8 is not ours.
fn regular_files(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type().is_ok_and(|file_type| file_type.is_file()) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}
