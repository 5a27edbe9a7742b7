//! Results: text for standard output, tables, and files that replace no other unless they may.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use flashcliff_candle::output_file::OutputFile;
use serde::{Serialize, Serializer};

use crate::error::Error;
use crate::streams;

/// The text of a file of JSON.
///
/// # Errors
/// It does not fail for the reports of this program.
pub(crate) fn json(report: &impl Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// A path in a report. JSON has Unicode alone: other bytes of a path become U+FFFD.
///
/// # Errors
/// The errors of the serializer.
pub(crate) fn path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// Whether files that exist are replaced.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Overwrite {
    /// Replace files of the names of outputs that exist; without this they are refused.
    #[arg(long)]
    overwrite: bool,
}

impl Overwrite {
    /// The file for an output.
    ///
    /// # Errors
    /// [`Error::FileExists`]; a file that cannot be written.
    pub(crate) fn create(self, path: &Path) -> Result<OutputFile, Error> {
        let file = match self.overwrite {
            true => OutputFile::create(path),
            false => OutputFile::create_new(path),
        };
        file.map_err(|error| match error {
            flashcliff_candle::Error::Exists { path } => Error::FileExists { path },
            other => other.into(),
        })
    }
}

/// Checks that the file of an option does not replace the file of another option.
///
/// # Errors
/// [`Error::OneFile`].
pub(crate) fn check_apart(
    first: (&'static str, Option<&OutputFile>),
    second: (&'static str, Option<&OutputFile>),
) -> Result<(), Error> {
    match (first.1, second.1) {
        (Some(one), Some(other)) if other.replaces(one) => Err(Error::OneFile {
            options: [first.0, second.0],
        }),
        _ => Ok(()),
    }
}

/// Prints a text to standard output. It is not an error if the reader stops early, as `head` does.
///
/// # Errors
/// [`Error::Write`].
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    if streams::output_was_closed() {
        return Err(Error::Write {
            path: PathBuf::from("standard output"),
            source: io::Error::other("expected an open one, got a closed one"),
        });
    }
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => Err(Error::Write {
            path: PathBuf::from("standard output"),
            source,
        }),
        _ => Ok(()),
    }
}

/// The side of its column that a cell is aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// The left side, for words.
    Left,
    /// The right side, for numbers.
    Right,
}

/// A table in plain text: a header, a rule, rows; columns as wide as their widest cell.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns
                .iter()
                .map(|&(name, align)| (name.to_owned(), align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells stay empty.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The text, ending with a newline.
    pub(crate) fn render(&self) -> String {
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self
                    .rows
                    .iter()
                    .chain([&header])
                    .filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        let mut text = String::new();
        for row in [&header, &rule].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, &width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                line += &match align {
                    Align::Left => format!("{cell:<width$}  "),
                    Align::Right => format!("{cell:>width$}  "),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// A whole number with commas between thousands.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(["a", "100"]);
        table.row(["long name", "7"]);
        assert_eq!(
            table.render(),
            "name         n\n---------  ---\na          100\nlong name    7\n"
        );
    }

    #[test]
    fn thousands_are_grouped() {
        let texts = [0, 999, 1000, 58_849, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "58,849", "1,234,567"]);
    }
}
