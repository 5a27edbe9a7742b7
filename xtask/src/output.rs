//! Standard output of tasks.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use crate::Error;

/// Prints a line, or several, to standard output. It is not an error if the reader stops early, as `head` does.
///
/// # Errors
/// [`Error::Io`] for other reasons why nothing can be written, such as a full disk.
pub(crate) fn print(text: impl Display) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::at(Path::new("standard output"))(source))
        }
        _ => Ok(()),
    }
}
