//! SKUs, one a line, read on a thread of their own: nothing can interrupt a read of stdin.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

/// How far the reading may run ahead of the sending; as far as that the progress bar knows its end.
const LINES_AHEAD: usize = 100_000;

/// No SKU is nearly that long; the rest of a longer line is not kept.
const LINE_MAX_BYTES: u64 = 64 * 1024;

/// The SKUs of an input.
pub(crate) struct Input {
    pub(crate) skus: mpsc::Receiver<String>,
    /// How many were read so far.
    pub(crate) n_read: Arc<AtomicU64>,
    /// Why the reading ended before its end, if it did.
    pub(crate) broken: mpsc::Receiver<io::Error>,
}

/// Reads until the end, or until nobody takes the SKUs any more. Blank lines are skipped, spaces around a SKU are
/// not part of it.
pub(crate) fn read(mut input: impl BufRead + Send + 'static) -> Input {
    let (sender, skus) = mpsc::channel(LINES_AHEAD);
    let (tell_broken, broken) = mpsc::channel(1);
    let n_read = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&n_read);
    std::thread::spawn(move || {
        if let Err(error) = pass_on(&mut input, &sender, &counted) {
            // Nobody listens only when all is over.
            tell_broken.blocking_send(error).ok();
        }
    });
    Input { skus, n_read, broken }
}

fn pass_on(input: &mut impl BufRead, skus: &mpsc::Sender<String>, n_read: &AtomicU64) -> io::Result<()> {
    let mut line = Vec::new();
    while read_line(input, &mut line)? {
        let text = std::str::from_utf8(&line)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a line is not UTF-8"))?;
        let sku = text.trim();
        if !sku.is_empty() {
            n_read.fetch_add(1, Ordering::Relaxed);
            if skus.blocking_send(sku.to_owned()).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns false at the end.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if input.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.len() as u64 == LINE_MAX_BYTES && !line.ends_with(b"\n") {
        // What was kept must stay text; it is too long for a SKU in any case.
        line.truncate(std::str::from_utf8(line).map_or_else(|error| error.valid_up_to(), str::len));
        input.skip_until(b'\n')?;
    }
    Ok(true)
}
