//! The operators as foreign functions of XLA, which JAX calls within compiled functions, on the CPU and on GPUs.
//!
//! A handler is a C function that gets a call with the addresses, shapes and element types of arguments and results.
//! Calls allocate nothing of XLA's: on a GPU the workspace is a result too, so that XLA plans its memory, and a
//! recorded call finds it again.
//!
//! * `abi` - the C interface.
//! * `frame` - a call, read with checks.
//! * `layout` - the same by the names of XLA's header, for a test that compares both.
//! * `failure` - errors.
//! * `target` - what a call computes, by the content of its attributes.
//! * `passes` - the passes of operators over the memory of a call.
//! * `network` - networks of files, and their gradients.

mod abi;
mod failure;
mod frame;
mod layout;
mod network;
mod passes;
mod target;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use flashcliff::{Pass, threads};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use abi::{Frame, Handler};
use failure::Failure;
use frame::{ALIGNMENT, Call};
use passes::Compute;
use target::Target;

pub(crate) use layout::jax_layout;
pub(crate) use network::jax_prepare_network;

use crate::convert::{Gpu, View};
use crate::error;

/// The name that JAX expects of capsules.
const CAPSULE: &std::ffi::CStr = c"xla._CUSTOM_CALL_TARGET";

/// The handlers: name, platform, function.
const HANDLERS: [(&str, &str, Handler); 12] = [
    (
        "flashcliff_forward",
        "cpu",
        handler::<FORWARD, false, false>,
    ),
    (
        "flashcliff_backward",
        "cpu",
        handler::<BACKWARD, false, false>,
    ),
    ("flashcliff_run", "cpu", handler::<RUN, false, false>),
    (
        "flashcliff_forward",
        "CUDA",
        handler::<FORWARD, true, false>,
    ),
    (
        "flashcliff_backward",
        "CUDA",
        handler::<BACKWARD, true, false>,
    ),
    ("flashcliff_run", "CUDA", handler::<RUN, true, false>),
    (
        "flashcliff_network",
        "cpu",
        handler::<NETWORK, false, false>,
    ),
    (
        "flashcliff_network",
        "CUDA",
        handler::<NETWORK, true, false>,
    ),
    (
        "flashcliff_network_backward",
        "cpu",
        handler::<NETWORK_BACKWARD, false, false>,
    ),
    (
        "flashcliff_network_backward",
        "CUDA",
        handler::<NETWORK_BACKWARD, true, false>,
    ),
    // Those that XLA may record into a graph of CUDA and replay.
    (
        "flashcliff_forward_graph",
        "CUDA",
        handler::<FORWARD, true, true>,
    ),
    (
        "flashcliff_backward_graph",
        "CUDA",
        handler::<BACKWARD, true, true>,
    ),
];

/// What a handler computes.
const FORWARD: u8 = 0;
const BACKWARD: u8 = 1;
const RUN: u8 = 2;
const NETWORK: u8 = 3;
const NETWORK_BACKWARD: u8 = 4;

const fn compute(pass: u8) -> Compute {
    match pass {
        FORWARD => passes::forward,
        BACKWARD => passes::backward,
        _ => passes::run,
    }
}

/// The handlers that JAX registers: name, platform, capsule.
#[pyfunction]
pub(crate) fn jax_handlers(
    py: Python<'_>,
) -> PyResult<Vec<(&'static str, &'static str, Bound<'_, PyCapsule>)>> {
    let handlers = HANDLERS
        .iter()
        .filter(|(_, platform, _)| cfg!(feature = "cuda") || *platform == "cpu");
    let made = handlers.map(|&(name, platform, handler)| {
        let address = NonNull::new(handler as *mut c_void);
        let address = address.ok_or_else(|| PyValueError::new_err("a handler has no address"))?;
        // SAFETY: the function lives as long as the process.
        let capsule = unsafe { PyCapsule::new_with_pointer(py, address, CAPSULE)? };
        Ok((name, platform, capsule))
    });
    made.collect()
}

/// Loads the kernels of a target on a GPU, and gives the bytes of workspace that a call needs there. `pass` is
/// `forward`, `backward` or `run`.
#[pyfunction]
pub(crate) fn jax_prepare(
    py: Python<'_>,
    digest: &str,
    target: &str,
    pass: &str,
    inputs: Vec<View>,
    ordinal: usize,
) -> PyResult<usize> {
    let prepared = error::detached(py, || {
        let target = Target::of(digest, target);
        Ok::<_, flashcliff::Error>(
            target.and_then(|target| prepare(&target, pass, &inputs, ordinal)),
        )
    })?;
    prepared.map_err(|failure| PyValueError::new_err(failure.into_message()))
}

fn prepare(target: &Target, pass: &str, inputs: &[View], ordinal: usize) -> Result<usize, Failure> {
    let gpu = Gpu {
        ordinal,
        stream: 0,
        tf32: target.pass.tf32,
    };
    let bound = &target.bound;
    let is_run = !matches!(pass, "forward" | "backward");
    bound
        .devices
        .prepare(&bound.operator, inputs, is_run, gpu)?;
    let bytes = match pass {
        "forward" => passes::planned(target, inputs, Pass::Forward, Some(gpu))?.workspace,
        "backward" => passes::planned(target, inputs, Pass::Backward, Some(gpu))?.workspace,
        _ => {
            bound
                .devices
                .plan_run(&bound.operator, inputs, gpu)?
                .workspace
        }
    };
    Ok(match bytes {
        0 => 0,
        bytes => bytes + ALIGNMENT,
    })
}

/// The function that XLA calls.
///
/// # Safety
/// The frame is one that the runtime made.
unsafe extern "C" fn handler<const PASS: u8, const CUDA: bool, const GRAPH: bool>(
    frame: *mut Frame,
) -> *mut abi::Error {
    // SAFETY: the runtime made the frame, and what it points to.
    unsafe {
        let frame = &*frame;
        if described(frame, GRAPH) || frame.stage != abi::EXECUTE {
            return ptr::null_mut();
        }
        let api = &*frame.api;
        let work = || called(frame, PASS, CUDA);
        let result = catch_unwind(AssertUnwindSafe(work));
        let result = result.unwrap_or_else(|panic| Err(Failure::defect(error::defect(&*panic))));
        match result {
            Ok(()) => ptr::null_mut(),
            Err(failure) => failure.raised(api),
        }
    }
}

/// Whether the runtime asked what the handler is, which it is then told.
///
/// # Safety
/// The frame is one that the runtime made.
unsafe fn described(frame: &Frame, graph: bool) -> bool {
    // SAFETY: an extension of this kind is followed by the metadata.
    unsafe {
        let Some(base) = frame.extension.as_ref() else {
            return false;
        };
        if base.kind != abi::METADATA {
            return false;
        }
        let metadata = &mut *(*frame.extension.cast::<abi::MetadataExtension>()).metadata;
        // Minor versions add fields, of which this handler knows none, so it has the version of the runtime.
        let of_runtime = frame
            .api
            .as_ref()
            .filter(|api| api.version.major == abi::MAJOR);
        metadata.version.major = abi::MAJOR;
        metadata.version.minor = of_runtime.map_or(abi::MINOR, |api| api.version.minor);
        metadata.traits = if graph { abi::REPLAYABLE } else { 0 };
        true
    }
}

/// # Safety
/// The frame is one that the runtime made.
unsafe fn called(frame: &Frame, pass: u8, cuda: bool) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        if frame.size < size_of::<Frame>() {
            let (expected, got) = (size_of::<Frame>(), frame.size);
            let message = format!("a call of XLA: expected {expected} bytes, got {got}");
            return Err(Failure::refused(message));
        }
        let call = Call::new(frame, &*frame.api);
        let of_network = match pass {
            NETWORK => Some(Pass::Forward),
            NETWORK_BACKWARD => Some(Pass::Backward),
            _ => None,
        };
        if let Some(pass) = of_network {
            return threads::at_most(usize::MAX, || network::run(&call, pass, cuda));
        }
        let target = Target::of(call.text("digest")?, call.text("target")?)?;
        let gpu = cuda.then(|| call.gpu(target.pass.tf32)).transpose()?;
        threads::at_most(usize::MAX, || compute(pass)(&target, &call, gpu))
    }
}
