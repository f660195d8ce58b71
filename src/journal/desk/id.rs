//! Ids as people give them.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::DeskError;
use crate::event::hex;

/// An id, or at least its first 8 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdPrefix {
    digits: String,
    first: [u8; 16],
    last: [u8; 16],
}

const SHORTEST: usize = 8;
const WHOLE: usize = 32;

impl IdPrefix {
    /// The ids that begin so.
    pub(super) fn ids(&self) -> RangeInclusive<&[u8; 16]> {
        &self.first..=&self.last
    }

    /// The one id of those found; `None` where none was.
    pub(super) fn only(&self, found: &BTreeSet<[u8; 16]>) -> Result<Option<[u8; 16]>, DeskError> {
        match found.len() {
            0 | 1 => Ok(found.first().copied()),
            _ => Err(DeskError::Ambiguous {
                id: self.clone(),
                matches: found.iter().map(|id| hex(id)).collect(),
            }),
        }
    }
}

impl FromStr for IdPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("an id has {WHOLE} hexadecimal digits; at least the first {SHORTEST} are needed");
        if !(SHORTEST..=WHOLE).contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let filled = |fill: &str| {
            let digits = format!("{text}{}", fill.repeat(WHOLE - text.len()));
            u128::from_str_radix(&digits, 16).map(u128::to_be_bytes).map_err(|_| wrong())
        };
        Ok(Self { digits: text.to_ascii_lowercase(), first: filled("0")?, last: filled("f")? })
    }
}

impl fmt::Display for IdPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.digits)
    }
}
