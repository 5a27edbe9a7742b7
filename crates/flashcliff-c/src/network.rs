//! Networks from files, planned and run on the CPU.
//!
//! * `ends` - the tensors of a network's inputs and outputs.
//! * `runner` - a plan with its memory, on tensors of the caller.

mod ends;
mod runner;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

use flashcliff_network::file::{self, Conversion, Stored};
use flashcliff_network::{Number, Rows};

use crate::memory::slice;
use crate::operator::{F32, F64, no_dtype, text};
use crate::status::{Failure, guarded};
use ends::Ends;
pub use ends::NetworkEnd;
use runner::{Given, Runner};

/// Parameters that several runners share.
type Shared<T> = OnceLock<Arc<Vec<Vec<T>>>>;

/// `fc_network`: a network with its weights, which C knows by its address only.
pub struct Network {
    stored: Stored,
    ends: Ends,
    narrow: Shared<f32>,
    wide: Shared<f64>,
}

/// `fc_network_runner`: a network planned for a batch, with its memory.
pub struct NetworkRunner(Planned);

/// A runner of a type.
enum Planned {
    F32(Runner<f32>),
    F64(Runner<f64>),
}

/// `fc_network_call`: the tensors of a run.
#[repr(C)]
pub struct NetworkCall {
    inputs: *const *const c_void,
    input_count: usize,
    outputs: *const *mut c_void,
    output_count: usize,
    offsets: *const usize,
    offset_count: usize,
}

#[cfg(test)]
impl NetworkCall {
    /// A call without sequences.
    pub(crate) fn of(inputs: &[*const c_void], outputs: &[*mut c_void]) -> Self {
        Self {
            inputs: inputs.as_ptr(),
            input_count: inputs.len(),
            outputs: outputs.as_ptr(),
            output_count: outputs.len(),
            offsets: std::ptr::null(),
            offset_count: 0,
        }
    }

    /// The call with sequences.
    pub(crate) fn within(self, offsets: &[usize]) -> Self {
        Self {
            offsets: offsets.as_ptr(),
            offset_count: offsets.len(),
            ..self
        }
    }
}

impl Network {
    fn load(path: &str) -> Result<Self, Failure> {
        let stored = file::load(path).map_err(Failure::file)?;
        Ok(Self {
            ends: Ends::new(&stored)?,
            stored,
            narrow: OnceLock::new(),
            wide: OnceLock::new(),
        })
    }

    /// A plan with its memory.
    fn plan<T: Number>(&self, rows: Rows, shared: &Shared<T>) -> Result<Runner<T>, Failure> {
        let parameters = match shared.get() {
            Some(parameters) => parameters.clone(),
            None => {
                let made = self.stored.parameters(Conversion::Rounded);
                let made = Arc::new(made.map_err(Failure::file)?);
                shared.get_or_init(|| made).clone()
            }
        };
        Runner::new(&self.stored, rows, parameters)
    }
}

/// # Safety
/// `network` comes from [`fc_network_load`] and was not freed, or it is null.
unsafe fn known<'a>(network: *const Network) -> Result<&'a Network, Failure> {
    // SAFETY: the caller promises it.
    unsafe { network.as_ref() }.ok_or_else(|| Failure::null("network"))
}

/// Makes something, and writes its address.
///
/// # Safety
/// A pointer can be written to `out`, or it is null.
unsafe fn made<T>(
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::null("out"));
    }
    // SAFETY: the caller promises it, and it is not null.
    unsafe { *out = std::ptr::null_mut() };
    let made = Box::new(make()?);
    // SAFETY: as above.
    unsafe { *out = Box::into_raw(made) };
    Ok(())
}

/// Loads a network with its weights from a file.
///
/// # Safety
/// The text ends with a zero byte. A pointer can be written to `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_load(path: *const c_char, out: *mut *mut Network) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises a text, and room for a pointer.
        unsafe { made(out, || Network::load(text("path", path)?)) }
    })
}

/// Frees a network. Null is left alone.
///
/// # Safety
/// `network` comes from [`fc_network_load`], was not freed, and nobody uses it or a name of its ends from now on; or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_free(network: *mut Network) {
    if !network.is_null() {
        // SAFETY: the caller promises that the box is its own.
        drop(unsafe { Box::from_raw(network) });
    }
}

/// Writes the numbers of inputs and of outputs.
///
/// # Safety
/// `network` is alive; numbers can be written to `inputs` and `outputs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_counts(
    network: *const Network,
    inputs: *mut usize,
    outputs: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let ends = unsafe { &known(network)?.ends };
        if inputs.is_null() || outputs.is_null() {
            return Err(Failure::null("inputs and outputs"));
        }
        // SAFETY: the caller promises it, and they are not null.
        unsafe {
            inputs.write(ends.inputs.len());
            outputs.write(ends.outputs.len());
        }
        Ok(())
    })
}

/// Writes the name and the shape of an input for a batch.
///
/// # Safety
/// `network` is alive; an end can be written to `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_input(
    network: *const Network,
    index: usize,
    samples: usize,
    items: usize,
    end: *mut NetworkEnd,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { known(network)? };
        let found = network.ends.input(index, Rows::new(samples, items));
        // SAFETY: the caller promises room.
        unsafe { ends::write(found?, end) }
    })
}

/// Writes the name and the shape of an output for a batch.
///
/// # Safety
/// `network` is alive; an end can be written to `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_output(
    network: *const Network,
    index: usize,
    samples: usize,
    items: usize,
    end: *mut NetworkEnd,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { known(network)? };
        let found = network.ends.output(index, Rows::new(samples, items));
        // SAFETY: the caller promises room.
        unsafe { ends::write(found?, end) }
    })
}

/// Plans a network for a batch, and takes the memory of runs.
///
/// # Safety
/// `network` is alive; a pointer can be written to `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_plan(
    network: *const Network,
    samples: usize,
    items: usize,
    dtype: c_int,
    out: *mut *mut NetworkRunner,
) -> c_int {
    guarded(|| {
        let rows = Rows::new(samples, items);
        let make = || {
            // SAFETY: the caller promises it.
            let network = unsafe { known(network)? };
            Ok(NetworkRunner(match dtype {
                F32 => Planned::F32(network.plan(rows, &network.narrow)?),
                F64 => Planned::F64(network.plan(rows, &network.wide)?),
                other => return Err(no_dtype(other)),
            }))
        };
        // SAFETY: the caller promises room for a pointer.
        unsafe { made(out, make) }
    })
}

/// Frees a runner. Null is left alone.
///
/// # Safety
/// `runner` comes from [`fc_network_plan`], was not freed, and nobody uses it from now on; or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_runner_free(runner: *mut NetworkRunner) {
    if !runner.is_null() {
        // SAFETY: the caller promises that the box is its own.
        drop(unsafe { Box::from_raw(runner) });
    }
}

/// Runs a network.
///
/// # Safety
/// `runner` is alive, and no other thread uses it; `call` is a call with as many pointers and offsets as it says. At each input and output there
/// is as much as [`fc_network_input`] and [`fc_network_output`] say for the batch of the runner, of its type. Nobody else uses what is written
/// during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_run(
    runner: *mut NetworkRunner,
    call: *const NetworkCall,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises that it is alive, and that no other thread uses it.
        let runner = unsafe { runner.as_mut() }.ok_or_else(|| Failure::null("runner"))?;
        // SAFETY: the caller promises it.
        let given = unsafe { read(call)? };
        // SAFETY: the caller promises tensors of this type.
        unsafe {
            match &mut runner.0 {
                Planned::F32(runner) => runner.run(&given),
                Planned::F64(runner) => runner.run(&given),
            }
        }
    })
}

/// # Safety
/// `call` is null or a call with as many pointers and offsets as it says.
unsafe fn read<'a>(call: *const NetworkCall) -> Result<Given<'a>, Failure> {
    // SAFETY: the caller promises it.
    let call = unsafe { call.as_ref() }.ok_or_else(|| Failure::null("call"))?;
    // SAFETY: the caller promises it.
    unsafe {
        Ok(Given {
            inputs: slice("inputs", call.inputs, call.input_count)?,
            outputs: slice("outputs", call.outputs, call.output_count)?,
            offsets: match call.offsets.is_null() {
                true if call.offset_count == 0 => None,
                _ => Some(slice("offsets", call.offsets, call.offset_count)?),
            },
        })
    }
}
