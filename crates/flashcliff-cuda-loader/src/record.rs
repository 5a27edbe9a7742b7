//! The records of the functions, with the addresses that they jump to.

use std::arch::global_asm;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::Library;

#[cfg(target_arch = "x86_64")]
global_asm!(
    include_str!(concat!(env!("OUT_DIR"), "/functions.s")),
    options(att_syntax, raw)
);
#[cfg(not(target_arch = "x86_64"))]
global_asm!(
    include_str!(concat!(env!("OUT_DIR"), "/functions.s")),
    options(raw)
);

/// The assembly's record of a function.
#[repr(C)]
pub(crate) struct Record {
    /// The address that the function jumps to.
    target: AtomicPtr<()>,
    /// The name of the function in the library.
    name: *const c_char,
    /// The position of the library in [`Library::ALL`].
    library: usize,
}

/// Finds a function, and makes its record jump there from now on. The assembly calls it, and has kept the arguments of the
/// first call.
///
/// # Safety
/// The record is one of the assembly.
// SAFETY of the name: no other crate uses this prefix.
#[unsafe(no_mangle)]
unsafe extern "C" fn flashcliff_cuda_address(record: *const Record) -> *const () {
    // SAFETY: records are static, and only their target changes, atomically.
    let record = unsafe { &*record };
    // SAFETY: the assembly puts a zero after each name.
    let name = unsafe { CStr::from_ptr(record.name) };
    let library = Library::ALL[record.library];
    let found = library.get().ok().and_then(|loaded| {
        // SAFETY: the symbol is a function of unknown type; the caller of the first call knows the type.
        let symbol = unsafe { loaded.get::<*const ()>(name.to_bytes_with_nul()) };
        symbol.ok().map(|symbol| *symbol)
    });
    let target = found.unwrap_or_else(|| library.missing(name));
    // Two threads that get here at once store the same address.
    record.target.store(target.cast_mut(), Ordering::Release);
    target
}
