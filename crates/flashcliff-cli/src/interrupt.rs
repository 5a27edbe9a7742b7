//! Ctrl-C as a flag that long work looks at between two steps.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit status of a program that a signal ended: 128 + SIGINT.
const KILLED: i32 = 130;

/// From now on Ctrl-C (or a termination signal) only sets the flag; a second one ends the program at once.
///
/// # Errors
/// [`Error::Signal`].
pub(crate) fn catch() -> Result<(), Error> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(KILLED);
        }
    })
    .map_err(Error::Signal)
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
