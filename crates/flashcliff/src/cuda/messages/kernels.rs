//! The kernels of messages, compiled when they are first used.

use std::sync::{Mutex, PoisonError};

use codegen::emit::cuda::{self as emit, Ends};
use cudarc::driver::result::module;
use cudarc::driver::sys::CUfunction;
use flashcliff_program::ir::{Digest, Program};

use crate::Error;
use crate::cuda::device::Device;
use crate::cuda::{fault, jit};

/// The key of a loaded kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) digest: Digest,
    pub(super) ends: Ends,
    pub(super) lanes: usize,
    pub(super) bytes: usize,
    /// The number of the device.
    pub(super) device: usize,
}

/// A kernel in the context of a device.
#[derive(Clone, Copy)]
struct Loaded(CUfunction);

// SAFETY: modules are never unloaded, and the driver allows a function in all threads.
unsafe impl Send for Loaded {}

/// The kernel of a key on a device whose context is current. Threads that ask for the same at once wait for one of them.
pub(super) fn get(
    key: Key,
    name: &str,
    program: &Program,
    device: &Device,
) -> Result<CUfunction, Error> {
    static LOADED: Mutex<Vec<(Key, Loaded)>> = Mutex::new(Vec::new());
    // The list is whole even after a panic.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = loaded.iter().find(|(known, _)| *known == key) {
        return Ok(known.0);
    }
    let title = format!("messages of {name}");
    let made = emit::messages(program, &key.ends, key.lanes, key.bytes);
    let made = made.map_err(jit::too_large(&title))?;
    let expressions: Vec<&str> = made
        .kernels
        .iter()
        .map(|own| own.expression.as_str())
        .collect();
    let capability = device.compute_capability();
    let (image, names) = jit::of_skeleton(&title, &made.text, &expressions, capability)?;
    // SAFETY: the code is that of the compiler, which ends it by a zero byte, and the context is current.
    let module = unsafe { module::load_data(image.as_ptr().cast()) };
    let module = module.map_err(fault::driver("cuModuleLoadData"))?;
    let [function] = &names[..] else {
        unreachable!("one expression has one name");
    };
    // SAFETY: the module is loaded, and the name is that of a kernel in it.
    let found = unsafe { module::get_function(module, function.clone()) };
    let found = found.map_err(fault::driver("cuModuleGetFunction"))?;
    loaded.push((key, Loaded(found)));
    Ok(found)
}
