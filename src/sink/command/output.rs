//! What a program prints: the beginning is kept, the rest is read and thrown away, so that the program never waits.

use std::borrow::Cow;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes kept of each stream.
const KEPT: usize = 4 * 1024;

/// Bytes read at once.
const CHUNK: usize = 16 * 1024;

#[derive(Default)]
pub(super) struct Output {
    pub(super) stdout: Beginning,
    pub(super) stderr: Beginning,
}

/// The first bytes of a stream.
#[derive(Default)]
pub(super) struct Beginning {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Beginning {
    /// Reads until the stream is closed by all who hold it.
    pub(super) async fn take_in(&mut self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(mut stream) = stream else { return };
        let mut chunk = vec![0; CHUNK];
        while let Ok(n @ 1..) = stream.read(&mut chunk).await {
            let n_kept = n.min(KEPT - self.bytes.len());
            self.bytes.extend_from_slice(&chunk[..n_kept]);
            self.is_cut |= n_kept < n;
        }
    }

    /// As text, without a last word that is not whole: half a secret would not be recognised.
    pub(super) fn text(&self) -> Cow<'_, str> {
        let last_space = self.bytes.iter().rposition(u8::is_ascii_whitespace).filter(|_| self.is_cut);
        String::from_utf8_lossy(&self.bytes[..last_space.unwrap_or(self.bytes.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_a_long_text_whole_words_of_the_beginning_are_kept() {
        let long = "secret ".repeat(10_000);
        let mut beginning = Beginning::default();
        beginning.take_in(Some(long.as_bytes())).await;
        let text = beginning.text();
        assert!(text.len() <= KEPT && KEPT < text.len() + "secret ".len(), "{}", text.len());
        assert!(text.split(' ').all(|word| word == "secret"), "{text}");
        let mut short = Beginning::default();
        short.take_in(Some(&b"one \xff two"[..])).await;
        assert_eq!(short.text(), "one \u{fffd} two");
    }
}
