//! Standard streams as the program got them.
//!
//! The runtime of Rust opens `/dev/null` in place of a stream that is closed, before `main`, so that no other file
//! gets its number. Results would be lost without a word. What runs before the runtime can still see it.

#[cfg(any(target_os = "linux", target_os = "macos"))]
mod system {
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::libc;

    static CLOSED: AtomicBool = AtomicBool::new(false);

    extern "C" fn look() {
        // SAFETY: the call only asks for the flags of a descriptor; it fails if there is none.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        CLOSED.store(flags == -1, Ordering::Relaxed);
    }

    // SAFETY: the loader calls each function of this section once, before `main`. The function needs nothing of the runtime.
    #[used]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
    #[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
    static BEFORE_MAIN: extern "C" fn() = look;

    pub(super) fn output_was_closed() -> bool {
        CLOSED.load(Ordering::Relaxed)
    }
}

/// Whether standard output was closed when the program started.
pub(crate) fn output_was_closed() -> bool {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    return system::output_was_closed();
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    return false;
}
