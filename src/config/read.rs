//! The merged tree becomes a raw mirror, and all problems are told, not only the first.

use config::Value;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::layers::{KeyPath, get, table_mut};

mod node;

/// So many problems are told; who has more sees the rest after repairing these.
const MAX_PROBLEMS: usize = 100;

/// What could be read.
pub(super) struct Reading<T> {
    /// Without the values that are wrong, as if they were not there; nothing where too many are.
    pub(super) raw: Option<T>,
    /// The tree that `raw` was read from.
    pub(super) tree: Value,
    /// The key and what is allowed.
    pub(super) wrong: Vec<(KeyPath, String)>,
}

/// Reads the mirror. serde stops at the first problem, so the value it stopped at is taken out and the rest is read
/// again: the types of the mirror stay ordinary ones.
pub(super) fn read_all<T: DeserializeOwned>(mut tree: Value) -> Reading<T> {
    let mut wrong = Vec::new();
    for _ in 0..MAX_PROBLEMS {
        match serde_path_to_error::deserialize(node::Node(tree.clone())) {
            Ok(raw) => return Reading { raw: Some(raw), tree, wrong },
            Err(error) => {
                let mut path = key_path(error.path());
                let node::Wrong { key, message } = error.into_inner();
                path.extend(key.map(str::to_owned));
                take_out(&mut tree, &path);
                // What was taken out is missed in the next round where it is required; that is the same problem.
                if !wrong.iter().any(|(known, _): &(KeyPath, String)| known.starts_with(&path)) {
                    wrong.push((path, message));
                }
            }
        }
    }
    Reading { raw: None, tree, wrong }
}

/// The keys of the tables down to the value; a list counts as one value.
fn key_path(path: &serde_path_to_error::Path) -> KeyPath {
    let mut keys = KeyPath::new();
    for segment in path {
        match segment {
            Segment::Map { key } => keys.push(key.clone()),
            Segment::Enum { .. } => {} // the `type` of a table, which is no key of its own
            Segment::Seq { .. } | Segment::Unknown => break,
        }
    }
    keys
}

/// Takes out the value, or, where a key is missing, the table that misses it.
fn take_out(tree: &mut Value, path: &[String]) {
    let Some((last, above)) = path.split_last() else { return };
    if get(tree, path).is_none() {
        return take_out(tree, above);
    }
    let parent = above.iter().try_fold(tree, |value, key| table_mut(value)?.get_mut(key));
    if let Some(table) = parent.and_then(table_mut) {
        table.remove(last);
    }
}
