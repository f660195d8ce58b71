//! Keeps the log directory tidy: few old files, and a link to the new one. Touches nothing that is not ours.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::names;
use crate::tidy;

/// Removes what is older than the newest `max_files` log files.
///
/// # Errors
/// As [`tidy::remove`].
pub(super) fn prune(directory: &Path, current: &str, max_files: u32) -> io::Result<()> {
    tidy::remove(directory, |names| names::expired(names, current, max_files))
}

/// Points the link at `current`, in one step; one that does so already costs no more than a look. A file of that name
/// which is no link belongs to somebody else and stays.
pub(super) fn link(directory: &Path, current: &str) -> io::Result<()> {
    let link = directory.join(names::LINK);
    match fs::read_link(&link) {
        Ok(target) if target == Path::new(current) => return Ok(()),
        Ok(_) => {}
        // It is no link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let new = directory.join(format!(".{}.new", names::LINK));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    symlink(current, &new)?;
    fs::rename(&new, &link)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: &str = "order-feed-agent.2026-01-03.log";

    #[test]
    fn old_log_files_go_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let foreign = ["order-feed-agent.notes.log", "order-feed-agent-dead-letters.jsonl", "orders.log"];
        for name in ["order-feed-agent.2026-01-01.log", "order-feed-agent.2026-01-02.log", TODAY] {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        for name in foreign {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        symlink("orders.log", directory.path().join("order-feed-agent.2025-01-01.log")).unwrap();
        fs::create_dir(directory.path().join("order-feed-agent.2025-01-02.log")).unwrap();

        prune(directory.path(), TODAY, 1).unwrap();

        let mut left: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = foreign.to_vec();
        expected.extend(["order-feed-agent.2025-01-01.log", "order-feed-agent.2025-01-02.log", TODAY]);
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    #[test]
    fn the_link_follows_the_current_file_and_replaces_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(names::LINK);
        for current in ["order-feed-agent.2026-01-02.log", TODAY, TODAY] {
            link(directory.path(), current).unwrap();
            assert_eq!(fs::read_link(&path).unwrap(), Path::new(current));
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody's").unwrap();
        link(directory.path(), TODAY).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
    }
}
