//! Networks from files, planned and run.
//!
//! * `call` - the structs of a call.
//! * `ends` - the tensors of a network's inputs, outputs and parameters.
//! * `tensors` - tensors of the caller, checked and lent.
//! * `relation` - relations between rows.
//! * `runner` - a plan with its memory.
//! * `stages` - the memory of a plan whose gradients come later.
//! * `wanted` - the gradients of such a plan.
//! * `cuda` - the same on GPUs.
//! * `explain` - pages of plans.

mod call;
mod cuda;
mod ends;
mod explain;
mod relation;
mod runner;
mod stages;
mod tensors;
#[cfg(test)]
mod tests;
mod wanted;

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use flashcliff::host_memory::Span;
use flashcliff::threads;
use flashcliff_network::file::{self, Conversion, Stored};
use flashcliff_network::{Number, Rows};

#[cfg(not(unix))]
use crate::operator::text;
use crate::operator::{F32, F64, no_dtype};
use crate::status::{Failure, guarded};
pub use call::{NetworkBatch, NetworkCall, NetworkGradients};
pub use cuda::{
    CudaNetwork, CudaNetworkCall, CudaNetworkSizes, fc_cuda_network_backward,
    fc_cuda_network_explain, fc_cuda_network_free, fc_cuda_network_plan, fc_cuda_network_run,
    fc_cuda_network_sizes_of,
};
use ends::Ends;
pub use ends::NetworkEnd;
pub use explain::{Machine, fc_network_explain};
pub use relation::{
    NetworkRelationEnd, Relation, fc_network_relation, fc_network_relation_count, fc_relation_free,
    fc_relation_new, fc_relation_new_i64,
};
use runner::Runner;

/// Parameters that several runners share.
type Shared<T> = OnceLock<Arc<Vec<Vec<T>>>>;

/// `fc_network`: a network with its weights, which C knows by its address only.
pub struct Network {
    stored: Stored,
    ends: Ends,
    relations: Vec<relation::Named>,
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

impl Network {
    fn load(path: &Path) -> Result<Self, Failure> {
        let stored = file::load(path).map_err(Failure::file)?;
        Ok(Self {
            ends: Ends::new(&stored)?,
            relations: relation::relations_of(&stored)?,
            stored,
            narrow: OnceLock::new(),
            wide: OnceLock::new(),
        })
    }

    /// The parameters of the file in a type.
    fn parameters<T: Number>(&self, shared: &Shared<T>) -> Result<Arc<Vec<Vec<T>>>, Failure> {
        if let Some(parameters) = shared.get() {
            return Ok(parameters.clone());
        }
        let made = self.stored.parameters(Conversion::Rounded);
        let made = Arc::new(made.map_err(Failure::file)?);
        Ok(shared.get_or_init(|| made).clone())
    }

    /// A plan with its memory.
    fn plan<T: Number>(
        &self,
        rows: Rows,
        shared: &Shared<T>,
        wanted: Option<&[bool]>,
    ) -> Result<Runner<T>, Failure> {
        Runner::new(&self.stored, rows, self.parameters(shared)?, wanted)
    }

    /// Copies a parameter of the file in a type.
    ///
    /// # Safety
    /// At `to` there is room for as many elements of the type as the parameter has, which nobody else uses; or it is null.
    unsafe fn copy<T: Number>(
        &self,
        index: usize,
        shared: &Shared<T>,
        to: *mut T,
    ) -> Result<(), Failure> {
        self.ends.parameter(index)?;
        let parameters = self.parameters(shared)?;
        let from = &parameters[index];
        Span::new(
            "fc_network_parameter_values",
            "values",
            [to.addr(), from.len(), size_of::<T>()],
            true,
        )?;
        if !from.is_empty() {
            // SAFETY: the caller promises room; the address was checked.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        }
        Ok(())
    }
}

/// # Safety
/// `network` comes from [`fc_network_load`] and was not freed, or it is null.
unsafe fn known<'a>(network: *const Network) -> Result<&'a Network, Failure> {
    // SAFETY: the caller promises it.
    unsafe { network.as_ref() }.ok_or_else(|| Failure::null("network"))
}

/// A path as the system has it, which may be bytes that are no text.
///
/// # Safety
/// At `path` a string ends with a zero byte, or it is null.
unsafe fn file_name<'a>(name: &str, path: *const c_char) -> Result<&'a Path, Failure> {
    #[cfg(unix)]
    {
        use std::ffi::{CStr, OsStr};
        use std::os::unix::ffi::OsStrExt;

        if path.is_null() {
            return Err(Failure::null(name));
        }
        // SAFETY: the caller promises it, and it is not null.
        let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
        Ok(Path::new(OsStr::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    // SAFETY: the caller promises it.
    unsafe { text(name, path) }.map(Path::new)
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
        unsafe { made(out, || Network::load(file_name("path", path)?)) }
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

/// Writes the numbers of inputs, of outputs and of parameters.
///
/// # Safety
/// `network` is alive; numbers can be written to `inputs`, `outputs` and `parameters`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_counts(
    network: *const Network,
    inputs: *mut usize,
    outputs: *mut usize,
    parameters: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let ends = unsafe { &known(network)?.ends };
        if inputs.is_null() || outputs.is_null() || parameters.is_null() {
            return Err(Failure::null("inputs, outputs and parameters"));
        }
        // SAFETY: the caller promises it, and they are not null.
        unsafe {
            inputs.write(ends.inputs.len());
            outputs.write(ends.outputs.len());
            parameters.write(ends.parameters.len());
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
    batch: NetworkBatch,
    end: *mut NetworkEnd,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { known(network)? };
        let found = network.ends.input(index, batch.rows());
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
    batch: NetworkBatch,
    end: *mut NetworkEnd,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { known(network)? };
        let found = network.ends.output(index, batch.rows());
        // SAFETY: the caller promises room.
        unsafe { ends::write(found?, end) }
    })
}

/// Writes the name and the shape of a parameter.
///
/// # Safety
/// `network` is alive; an end can be written to `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_parameter(
    network: *const Network,
    index: usize,
    end: *mut NetworkEnd,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { known(network)? };
        // SAFETY: the caller promises room.
        unsafe { ends::write(network.ends.parameter(index)?, end) }
    })
}

/// Copies a parameter as the file has it.
///
/// # Safety
/// `network` is alive; as many elements of the type as [`fc_network_parameter`] says can be written to `values`, and nobody else uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_parameter_values(
    network: *const Network,
    index: usize,
    dtype: c_int,
    values: *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { known(network)? };
        // SAFETY: the caller promises room.
        unsafe {
            match dtype {
                F32 => network.copy(index, &network.narrow, values.cast()),
                F64 => network.copy(index, &network.wide, values.cast()),
                other => Err(no_dtype(other)),
            }
        }
    })
}

/// Plans a network for a batch, and takes the memory of runs.
///
/// # Safety
/// `network` is alive; `wanted` is null or has as many numbers as `wanted_count` says; a pointer can be written to `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_plan(
    network: *const Network,
    batch: NetworkBatch,
    dtype: c_int,
    wanted: *const c_int,
    wanted_count: usize,
    out: *mut *mut NetworkRunner,
) -> c_int {
    guarded(|| {
        let rows = batch.rows();
        let make = || {
            // SAFETY: the caller promises it.
            let network = unsafe { known(network)? };
            // SAFETY: the caller promises it.
            let wanted = unsafe { call::chosen(wanted, wanted_count)? };
            let wanted = wanted.as_deref();
            Ok(NetworkRunner(match dtype {
                F32 => Planned::F32(network.plan(rows, &network.narrow, wanted)?),
                F64 => Planned::F64(network.plan(rows, &network.wide, wanted)?),
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

/// Runs work on pointers of a caller, by the threads that operators share their work among.
fn together(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let work = Waited(work);
    threads::together(move || work.run())
}

/// Work that its caller waits for.
struct Waited<W>(W);

// SAFETY: the calling thread uses nothing of it until the other thread is done.
unsafe impl<W> Send for Waited<W> {}

impl<W: FnOnce() -> Result<(), Failure>> Waited<W> {
    fn run(self) -> Result<(), Failure> {
        self.0()
    }
}

/// Runs a network.
///
/// # Safety
/// `runner` is alive, and no other thread uses it; `call` is a call with as many pointers and offsets as it says. At
/// each input and output there is as much as [`fc_network_input`] and [`fc_network_output`] say for the batch of the
/// runner, of its type. Nobody else uses what is written during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_run(
    runner: *mut NetworkRunner,
    call: *const NetworkCall,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises that it is alive, and that no other thread uses it.
        let runner = unsafe { runner.as_mut() }.ok_or_else(|| Failure::null("runner"))?;
        // SAFETY: the caller promises it.
        let given = unsafe { call::read(call)? };
        // SAFETY: the caller promises tensors of this type.
        together(|| unsafe {
            match &mut runner.0 {
                Planned::F32(runner) => runner.run(&given),
                Planned::F64(runner) => runner.run(&given),
            }
        })
    })
}

/// Writes gradients of the last run.
///
/// # Safety
/// The promises of [`fc_network_run`] hold for the call, which is the call of the last run, but nobody writes to its
/// outputs. `gradients` has as many pointers as it says. The gradients of outputs have as many elements as the outputs.
/// The wanted gradients have as many elements as the input or parameter, and nobody else uses them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_backward(
    runner: *mut NetworkRunner,
    call: *const NetworkCall,
    gradients: *const NetworkGradients,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises that it is alive, and that no other thread uses it.
        let runner = unsafe { runner.as_mut() }.ok_or_else(|| Failure::null("runner"))?;
        // SAFETY: the caller promises it.
        let given = unsafe { call::read(call)? };
        // SAFETY: the caller promises it.
        let gradients = unsafe { call::read_gradients(gradients)? };
        // SAFETY: the caller promises tensors of this type.
        together(|| unsafe {
            match &mut runner.0 {
                Planned::F32(runner) => runner.backward(&given, &gradients),
                Planned::F64(runner) => runner.backward(&given, &gradients),
            }
        })
    })
}
