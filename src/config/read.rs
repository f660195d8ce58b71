//! The merged tree becomes a raw mirror, and all problems are told, not only the first.

use config::{Map, Value};
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::environment::NAMED;
use super::layers::{KeyPath, get, table, table_mut};
use node::Wrong;

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

/// Reads the mirror. Where that fails it is read part by part, see [`take_out_wrong`].
pub(super) fn read_all<T: DeserializeOwned>(mut tree: Value) -> Reading<T> {
    if let Ok(raw) = read(tree.clone()) {
        return Reading { raw: Some(raw), tree, wrong: Vec::new() };
    }
    let mut wrong = Vec::new();
    for path in parts(&tree) {
        take_out_wrong::<T>(&mut tree, &path, &mut wrong);
        if MAX_PROBLEMS <= wrong.len() {
            return Reading { raw: None, tree, wrong };
        }
    }
    Reading { raw: read(tree.clone()).ok(), tree, wrong }
}

fn read<T: DeserializeOwned>(tree: Value) -> Result<T, serde_path_to_error::Error<node::Wrong>> {
    serde_path_to_error::deserialize(node::Node(tree))
}

/// The keys at the top, and the names within those tables whose keys are names: there may be thousands.
fn parts(tree: &Value) -> Vec<KeyPath> {
    let mut parts = Vec::new();
    for (key, value) in table(tree).into_iter().flatten() {
        match table(value).filter(|_| NAMED.contains(&key.as_str())) {
            Some(named) => parts.extend(named.keys().map(|name| vec![key.clone(), name.clone()])),
            None => parts.push(vec![key.clone()]),
        }
    }
    // The same file always gives the same problems.
    parts.sort();
    parts
}

/// Reads one part as if it were all there is. serde stops at the first problem, so the value it stopped at is taken out
/// and the part is read again: the types of the mirror stay ordinary ones.
fn take_out_wrong<T: DeserializeOwned>(
    tree: &mut Value,
    part: &[String],
    wrong: &mut Vec<(KeyPath, String)>,
) {
    let Some(value) = get(tree, part) else { return };
    let within = |inner: Value, key: &String| Value::new(None, Map::from_iter([(key.clone(), inner)]));
    let mut alone = part.iter().rev().fold(value.clone(), within);
    for _ in 0..MAX_PROBLEMS {
        let Err(error) = read::<T>(alone.clone()) else { return };
        let (path, message) = told(error);
        take_out(&mut alone, &path);
        take_out(tree, &path);
        // What was taken out is missed in the next round where it is required; that is the same problem.
        if !wrong.iter().any(|(known, _)| known.starts_with(&path)) {
            wrong.push((path, message));
        }
        if MAX_PROBLEMS <= wrong.len() {
            return;
        }
    }
}

/// The key, and what it must be.
fn told(error: serde_path_to_error::Error<node::Wrong>) -> (KeyPath, String) {
    let mut path = key_path(error.path());
    let message = match error.into_inner() {
        Wrong::NoTable => format!("must be a table, written [{}]", path.join(".")),
        Wrong::Key { key, message } => {
            path.push(key.to_owned());
            message
        }
        Wrong::Value { message } => message,
    };
    (path, message)
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
