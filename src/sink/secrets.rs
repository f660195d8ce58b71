//! What must not come back in what a receiver or a program says.

use std::cmp::Reverse;

/// A part of a secret that is shorter is too common a word to be taken out of a text.
const SHORTEST: usize = 8;

/// Brings secrets and their parts into the order in which they are taken out: a whole one before its parts.
pub(super) fn in_order(secrets: impl Iterator<Item = String>) -> Vec<String> {
    let mut secrets: Vec<String> = secrets.filter(|secret| SHORTEST <= secret.len()).collect();
    secrets.sort_by_key(|secret| Reverse(secret.len()));
    secrets.dedup();
    secrets
}
