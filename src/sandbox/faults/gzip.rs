//! Compressed bodies, honest and otherwise.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Compresses a body.
pub(in crate::sandbox) fn gzip(body: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    Ok(encoder.finish()?.into())
}

/// A body that becomes `bytes` spaces and `[]` when it is decompressed: valid JSON of any size in a thousandth of it.
pub(super) fn bomb(bytes: usize) -> io::Result<Bytes> {
    let spaces = [b' '; 64 << 10];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut left = bytes;
    while left > 0 {
        let n = left.min(spaces.len());
        encoder.write_all(&spaces[..n])?;
        left -= n;
    }
    encoder.write_all(b"[]")?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    #[test]
    fn a_bomb_is_small_and_becomes_as_large_as_asked() {
        let bomb = bomb(5_000_000).unwrap();
        assert!(bomb.len() < 50_000, "{}", bomb.len());
        let mut text = String::new();
        GzDecoder::new(&bomb[..]).read_to_string(&mut text).unwrap();
        assert_eq!((text.len(), text.trim()), (5_000_002, "[]"));
    }
}
