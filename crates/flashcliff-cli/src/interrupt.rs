//! Signals: Ctrl-C sets a flag, which long work checks between two steps.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The exit status of a program that a signal ended: 128 + SIGINT.
pub(crate) const KILLED: i32 = 130;

/// Makes Ctrl-C, a termination signal and the end of the terminal only set the flag from now on. A second signal ends the program at once.
/// A signal that was ignored when the program started stays ignored, as `nohup` needs it.
///
/// # Errors
/// [`Error::Signal`].
pub(crate) fn catch() -> Result<(), Error> {
    system::catch().map_err(Error::Signal)
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Does what Ctrl-C does.
pub(crate) fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Ends the program without waiting for anything, such as work on a GPU that never ends.
pub(crate) fn end_now(status: i32) -> ! {
    system::end_now(status)
}

/// Makes a file that reaches the limit on sizes an error of the write, which is reported. Without this call it would
/// be a signal, which ends the program in the middle of its work.
///
/// # Errors
/// [`Error::Signal`].
pub(crate) fn expect_limits() -> Result<(), Error> {
    system::expect_limits().map_err(Error::Signal)
}

#[cfg(unix)]
mod system {
    use std::io;
    use std::sync::atomic::Ordering;

    use nix::libc;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction, signal};

    extern "C" fn note(_: libc::c_int) {
        if super::REQUESTED.swap(true, Ordering::Relaxed) {
            // SAFETY: `_exit` may be called in a handler; nothing of this process is needed after it.
            unsafe { libc::_exit(super::KILLED) }
        }
    }

    pub(super) fn catch() -> io::Result<()> {
        let handler = SigHandler::Handler(note);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        for number in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            // SAFETY: ignoring a signal runs no code.
            let before = unsafe { signal(number, SigHandler::SigIgn) }?;
            if !matches!(before, SigHandler::SigIgn) {
                // SAFETY: the handler only accesses an atomic and calls `_exit`; a handler may do both.
                unsafe { sigaction(number, &action) }?;
            }
        }
        Ok(())
    }

    pub(super) fn end_now(status: i32) -> ! {
        // SAFETY: nothing of this process is needed after it; the system takes back what it holds.
        unsafe { libc::_exit(status) }
    }

    pub(super) fn expect_limits() -> io::Result<()> {
        // SAFETY: ignoring a signal runs no code.
        unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
        Ok(())
    }
}

#[cfg(not(unix))]
mod system {
    use std::io;
    use std::sync::atomic::Ordering;

    pub(super) fn catch() -> io::Result<()> {
        ctrlc::set_handler(|| {
            if super::REQUESTED.swap(true, Ordering::Relaxed) {
                std::process::exit(super::KILLED);
            }
        })
        .map_err(io::Error::other)
    }

    pub(super) fn end_now(status: i32) -> ! {
        std::process::exit(status)
    }

    pub(super) fn expect_limits() -> io::Result<()> {
        Ok(())
    }
}
