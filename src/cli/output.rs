//! The one home of printing.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};

use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::observe::logging::escape_into;

/// Prints a line for the user.
///
/// # Errors
/// Nobody reads it ([`io::ErrorKind::BrokenPipe`]), or it cannot be stored.
pub(super) fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Prints why there is no result, as one line on stderr.
pub(super) fn error(text: impl Display) {
    writeln!(io::stderr(), "error: {text}").ok();
}

/// Prints on stderr what a reader of the result should know about it.
pub(super) fn note(text: impl Display) {
    writeln!(io::stderr(), "note: {text}").ok();
}

/// Forgives that the reader went away, as `head` does when it has enough.
pub(super) fn forgive_leaving(printed: io::Result<()>) -> io::Result<()> {
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Ok(()) | Err(_) => printed,
    }
}

/// Somebody else's text for a terminal: on one line, without escapes, cut with a mark after so many characters.
pub(super) fn plain(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    let cut = text.char_indices().nth(max_chars).map(|(end, _)| end);
    escape_into(&mut shown, &text[..cut.unwrap_or(text.len())], |_| false);
    if cut.is_some() {
        shown.push('…');
    }
    shown
}

/// RFC 3339 in UTC, to the millisecond; `-` for none.
pub(super) fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3}"))
}

/// Stdout, whose reader may leave.
#[derive(Debug, Default)]
pub(super) struct Paper {
    reader_left: bool,
}

impl Paper {
    pub(super) fn buffered() -> BufWriter<Self> {
        BufWriter::new(Self::default())
    }

    /// Whether more would be written for nobody. What is written is then no error.
    pub(super) fn reader_left(&self) -> bool {
        self.reader_left
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.reader_left {
            match io::stdout().write_all(bytes) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.reader_left = true,
                Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        forgive_leaving(io::stdout().flush())
    }
}

/// Prints names and values, aligned.
pub(super) fn print_fields(fields: &[(&str, String)], out: &mut impl Write) -> io::Result<()> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in fields {
        writeln!(out, "{name:width$}  {value}")?;
    }
    Ok(())
}

/// `1 dead letter`, `2 dead letters`.
pub(super) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// An item as JSON. It was checked when it was journaled; a journal that was edited by hand may hold anything.
pub(super) fn raw(item: &str) -> &RawValue {
    serde_json::from_str(item).unwrap_or(RawValue::NULL)
}

/// What lists print their rows as.
pub(super) enum Rows<const N: usize> {
    /// Aligned columns under their headings. A page may widen them: rows are printed before all are known.
    Table { headings: [&'static str; N], widths: Option<[usize; N]> },
    /// One array, an object a line.
    Json { is_first: bool },
}

impl<const N: usize> Rows<N> {
    pub(super) fn table(headings: [&'static str; N]) -> Self {
        Self::Table { headings, widths: None }
    }

    pub(super) fn json() -> Self {
        Self::Json { is_first: true }
    }

    /// Prints a page of rows.
    pub(super) fn print<T>(
        &mut self,
        rows: &[T],
        cells: impl Fn(&T) -> [String; N],
        json: impl Fn(&T) -> serde_json::Result<String>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        match self {
            Self::Json { is_first } => {
                for row in rows {
                    let start = if std::mem::take(is_first) { "[\n" } else { ",\n" };
                    write!(out, "{start}{}", json(row)?)?;
                }
                Ok(())
            }
            Self::Table { .. } if rows.is_empty() => Ok(()),
            Self::Table { headings, widths } => {
                let rows: Vec<[String; N]> = rows.iter().map(cells).collect();
                let is_first = widths.is_none();
                let widths = widths.get_or_insert_with(|| headings.map(str::len));
                for row in &rows {
                    for (width, cell) in widths.iter_mut().zip(row) {
                        *width = cell.chars().count().max(*width);
                    }
                }
                if is_first {
                    print_row(&headings.map(str::to_owned), widths, out)?;
                }
                rows.iter().try_for_each(|row| print_row(row, widths, out))
            }
        }
    }

    /// Prints what comes after the last row.
    pub(super) fn end(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Json { is_first: true } => writeln!(out, "[]")?,
            Self::Json { is_first: false } => writeln!(out, "\n]")?,
            Self::Table { .. } => {}
        }
        out.flush()
    }
}

fn print_row<const N: usize>(
    cells: &[String; N],
    widths: &[usize; N],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        line.push_str(&format!("{cell:width$}  "));
    }
    writeln!(out, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_is_one_harmless_line() {
        assert_eq!(
            plain("a\n\u{1b}[31mb\u{9b}c\u{202e}\u{85}", 99),
            "a\\n\\u001b[31mb\\u009bc\\u202e\\u0085"
        );
        assert_eq!(plain("grüße", 4), "grüß…");
        assert_eq!(plain("grüße", 5), "grüße");
    }

    #[test]
    fn columns_are_aligned_and_an_empty_list_is_an_empty_array() {
        let mut out = Vec::new();
        let mut table = Rows::table(["ID", "REASON"]);
        let cells = |row: &&str| [row.to_string(), "no".to_owned()];
        table.print(&[], cells, |_| Ok(String::new()), &mut out).unwrap();
        table.print(&["1", "three"], cells, |_| Ok(String::new()), &mut out).unwrap();
        table.print(&["2"], cells, |_| Ok(String::new()), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "ID     REASON\n1      no\nthree  no\n2      no\n");
        for (rows, expected) in [(&[][..], "[]\n"), (&["1", "2"][..], "[\n1,\n2\n]\n")] {
            let mut out = Vec::new();
            let mut json = Rows::json();
            json.print(rows, cells, |row| Ok((*row).to_owned()), &mut out).unwrap();
            json.end(&mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
