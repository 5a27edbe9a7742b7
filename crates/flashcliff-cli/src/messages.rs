//! Messages on standard error. They may be lost, but never end the program.

use std::io::{self, IsTerminal, Write};

/// Standard error, for messages beside the work. Its reader may go away, and its disk may be full: text that cannot be written is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages;

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

/// Writes a text unchanged.
pub(crate) fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Whether messages are coloured: on a terminal that knows colours, unless `NO_COLOR` is set and not empty.
pub(crate) fn coloured() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stderr().is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|term| term != "dumb")
}
