//! Line and column of any byte of a text, without going through all of it for each.

/// A text and what was counted in it.
pub(super) struct Places<'a> {
    text: &'a [u8],
    /// Where each line begins.
    lines: Vec<usize>,
    /// How many characters begin before each [`STEP`]th byte, because one line may be the whole text.
    n_chars: Vec<usize>,
}

const STEP: usize = 1_024;

impl<'a> Places<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let text = text.as_bytes();
        let newlines = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let lines = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        let mut n_chars = vec![0];
        for chunk in text.chunks(STEP) {
            n_chars.push(n_chars.last().copied().unwrap_or_default() + n_chars_in(chunk));
        }
        Self { text, lines, n_chars }
    }

    /// Line and column, both from 1, the column in characters. What is beyond the end is at the end.
    pub(super) fn at(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        (line, self.n_chars_before(offset) - self.n_chars_before(start) + 1)
    }

    fn n_chars_before(&self, offset: usize) -> usize {
        let step = offset / STEP;
        self.n_chars.get(step).copied().unwrap_or_default() + n_chars_in(&self.text[step * STEP..offset])
    }
}

/// Characters that begin in these bytes of UTF-8.
fn n_chars_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn a_place_is_what_counting_from_the_start_finds(parts in proptest::collection::vec("(\n|é|x{0,700})", 0..20)) {
            let text = parts.concat();
            let places = Places::of(&text);
            for offset in (0..=text.len()).filter(|offset| text.is_char_boundary(*offset)) {
                let before = &text[..offset];
                let line = before.rsplit('\n').next().unwrap_or_default();
                let counted = (before.split('\n').count(), line.chars().count() + 1);
                prop_assert_eq!(places.at(offset), counted);
            }
            prop_assert_eq!(places.at(text.len() + 9), places.at(text.len()));
        }
    }
}
