//! The kernels of messages, compiled when they are first used.

use std::ptr::NonNull;
use std::sync::Arc;

use codegen::emit::cuda::{self as emit, Ends};
use cudarc::driver::sys::{CUfunc_st, CUfunction};
use flashcliff_program::ir::{Digest, Program};

use crate::Error;
use crate::cuda::device::Device;
use crate::cuda::jit::{self, Loaded};

/// The key of a loaded kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) digest: Digest,
    pub(super) ends: Arc<Ends>,
    pub(super) lanes: usize,
    pub(super) bytes: usize,
    /// The number of the device.
    pub(super) device: usize,
}

/// The kernel of a key on a device whose context is current. Modules are never unloaded.
pub(super) fn get(
    key: Key,
    name: &str,
    program: &Program,
    device: &Device,
) -> Result<CUfunction, Error> {
    static LOADED: Loaded<Key, CUfunc_st> = Loaded::new();
    let (ends, lanes, bytes) = (key.ends.clone(), key.lanes, key.bytes);
    let found = LOADED.get_or_make(key, || {
        let title = format!("messages of {name}");
        let made = emit::messages(program, &ends, lanes, bytes);
        let made = made.map_err(jit::too_large(&title))?;
        let [kernel] = &made.kernels[..] else {
            unreachable!("messages are one kernel");
        };
        jit::of_skeleton(&title, &made.text, &kernel.expression, device)
    });
    found.map(NonNull::as_ptr)
}
