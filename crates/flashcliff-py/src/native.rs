//! The passes and runs as C functions, for the compiled half of the call path (`flashcliff/_native/call.cpp`).
//!
//! A function returns whether the work was done. It says no more: a caller that is refused makes the same call through Python, which raises
//! the error. So errors are written once, and none is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flashcliff::{Dtype, Error, Pass, threads};
use pyo3::prelude::*;

use crate::convert::{Gpu, Plan, Space, View};
use crate::host::{self, Given, Gradients};
use crate::operator::Operator;
use crate::runs::{self, Run};

/// The version of everything in this file that C++ repeats.
const VERSION: u64 = 3;

/// The most axes of an output.
const MOST_AXES: usize = 4;

/// A contiguous tensor.
#[repr(C)]
struct RawView {
    address: usize,
    shape: *const i64,
    rank: usize,
    /// 0 to 3: `f32`, `f64`, `bf16`, `f16`.
    dtype: u32,
}

/// Where a pass runs.
#[repr(C)]
struct RawPlace {
    /// The number of the GPU; -1 is the CPU.
    device: i64,
    stream: usize,
    /// The most threads on the CPU, unless a number was set.
    threads: usize,
    tf32: bool,
}

/// The sizes of what a pass needs.
#[repr(C)]
struct RawSizes {
    rank: usize,
    shape: [i64; MOST_AXES],
    saved: usize,
    workspace: usize,
    /// Whether each call must ask anew, because it takes much memory.
    is_large: bool,
}

/// The memory of a pass besides its inputs.
#[repr(C)]
struct RawMemory {
    output: usize,
    saved: usize,
    workspace: usize,
    workspace_bytes: usize,
    /// The gradient of the output; backward only.
    grad_output: usize,
    /// An address for each input, 0 if its gradient is not wanted; backward only.
    grads: *const usize,
}

/// The memory of a run besides its inputs.
#[repr(C)]
struct RawRun {
    /// The address of each output.
    outputs: *const usize,
    count: usize,
    workspace: usize,
    workspace_bytes: usize,
}

/// The table of functions that C++ calls.
#[repr(C)]
struct Table {
    version: u64,
    plan: unsafe extern "C" fn(
        *const Operator,
        *const RawView,
        usize,
        bool,
        *const bool,
        *const RawPlace,
        *mut RawSizes,
    ) -> bool,
    forward: unsafe extern "C" fn(
        *const Operator,
        *const RawView,
        usize,
        *const RawPlace,
        *const RawMemory,
    ) -> bool,
    backward: unsafe extern "C" fn(
        *const Operator,
        *const RawView,
        usize,
        *const RawPlace,
        *const RawMemory,
    ) -> bool,
    plan_run: unsafe extern "C" fn(
        *const Operator,
        *const RawView,
        usize,
        *const RawPlace,
        *mut RawSizes,
    ) -> bool,
    run: unsafe extern "C" fn(
        *const Operator,
        *const RawView,
        usize,
        *const RawPlace,
        *const RawRun,
    ) -> bool,
}

static TABLE: Table = Table {
    version: VERSION,
    plan,
    forward,
    backward,
    plan_run,
    run,
};

/// The address of the table of C functions.
#[pyfunction]
pub(crate) fn native_table() -> usize {
    std::ptr::from_ref(&TABLE).expose_provenance()
}

/// # Safety
/// The pointers are valid; `wanted` is null, or has `count` items that say which gradients a backward pass makes; `to` may be written.
unsafe extern "C" fn plan(
    operator: *const Operator,
    inputs: *const RawView,
    count: usize,
    backward: bool,
    wanted: *const bool,
    place: *const RawPlace,
    to: *mut RawSizes,
) -> bool {
    let pass = match backward {
        false => Pass::Forward,
        true => Pass::Backward,
    };
    // SAFETY: the caller promises it.
    let (operator, inputs, place) = unsafe { (&*operator, views(inputs, count), &*place) };
    // SAFETY: the caller promises it.
    let wanted = (!wanted.is_null()).then(|| unsafe { std::slice::from_raw_parts(wanted, count) });
    let plan = caught(place, || {
        let inputs = inputs?;
        match place.gpu() {
            None => host::plan(&operator.inner, &inputs, pass, wanted).ok(),
            Some(gpu) => operator
                .devices
                .plan(&operator.inner, &inputs, pass, gpu)
                .ok(),
        }
    });
    let Some(sizes) = plan.and_then(|plan| RawSizes::new(&plan)) else {
        return false;
    };
    // SAFETY: the caller promises it.
    unsafe { to.write(sizes) };
    true
}

/// # Safety
/// The pointers are valid. Addresses hold what `plan` asked for, as [`host::forward`] and `Devices::forward` demand it.
unsafe extern "C" fn forward(
    operator: *const Operator,
    inputs: *const RawView,
    count: usize,
    place: *const RawPlace,
    memory: *const RawMemory,
) -> bool {
    // SAFETY: the caller promises it.
    let (operator, inputs, place, memory) =
        unsafe { (&*operator, views(inputs, count), &*place, &*memory) };
    let done = caught(place, || {
        let given = memory.given(inputs?);
        // SAFETY: the caller promises it.
        let done: Result<(), Error> = unsafe {
            match place.gpu() {
                None => host::forward(&operator.inner, &given),
                Some(gpu) => operator.devices.forward(&operator.inner, &given, gpu),
            }
        };
        done.ok()
    });
    done.is_some()
}

/// # Safety
/// The contract of [`forward`] holds, and `memory.grads` has `count` addresses.
unsafe extern "C" fn backward(
    operator: *const Operator,
    inputs: *const RawView,
    count: usize,
    place: *const RawPlace,
    memory: *const RawMemory,
) -> bool {
    // SAFETY: the caller promises it.
    let (operator, inputs, place, memory) =
        unsafe { (&*operator, views(inputs, count), &*place, &*memory) };
    // SAFETY: the caller promises it.
    let grads = unsafe { std::slice::from_raw_parts(memory.grads, count) };
    let done = caught(place, || {
        let given = memory.given(inputs?);
        let gradients = Gradients {
            grad_output: memory.grad_output,
            grads: grads.iter().map(|&at| (at != 0).then_some(at)).collect(),
        };
        // SAFETY: the caller promises it.
        let done: Result<(), Error> = unsafe {
            match place.gpu() {
                None => host::backward(&operator.inner, &given, &gradients),
                Some(gpu) => operator
                    .devices
                    .backward(&operator.inner, &given, &gradients, gpu),
            }
        };
        done.ok()
    });
    done.is_some()
}

/// Says what a run of all outputs needs. The shapes of outputs are left out: who runs a derivative knows them.
///
/// # Safety
/// The pointers are valid; `to` may be written.
unsafe extern "C" fn plan_run(
    operator: *const Operator,
    inputs: *const RawView,
    count: usize,
    place: *const RawPlace,
    to: *mut RawSizes,
) -> bool {
    // SAFETY: the caller promises it.
    let (operator, inputs, place) = unsafe { (&*operator, views(inputs, count), &*place) };
    let plan = caught(place, || {
        let inputs = inputs?;
        let plan = match place.gpu() {
            None => runs::plan(&operator.inner, &inputs),
            Some(gpu) => operator.devices.plan_run(&operator.inner, &inputs, gpu),
        };
        plan.ok()
    });
    let Some(plan) = plan else {
        return false;
    };
    let sizes = RawSizes {
        rank: 0,
        shape: [0; MOST_AXES],
        saved: 0,
        workspace: plan.workspace,
        is_large: plan.is_large,
    };
    // SAFETY: the caller promises it.
    unsafe { to.write(sizes) };
    true
}

/// Writes all outputs.
///
/// # Safety
/// The pointers are valid. Addresses hold what `plan_run` asked for, as [`runs::run`] and `Devices::run` demand it.
unsafe extern "C" fn run(
    operator: *const Operator,
    inputs: *const RawView,
    count: usize,
    place: *const RawPlace,
    memory: *const RawRun,
) -> bool {
    // SAFETY: the caller promises it.
    let (operator, inputs, place, memory) =
        unsafe { (&*operator, views(inputs, count), &*place, &*memory) };
    // SAFETY: the caller promises it.
    let outputs = unsafe { std::slice::from_raw_parts(memory.outputs, memory.count) };
    let done = caught(place, || {
        let given = Run {
            inputs: inputs?,
            outputs: outputs.iter().copied().map(Some).collect(),
            workspace: Space {
                address: memory.workspace,
                bytes: memory.workspace_bytes,
            },
        };
        // SAFETY: the caller promises it.
        let done: Result<(), Error> = unsafe {
            match place.gpu() {
                None => runs::run(&operator.inner, &given),
                Some(gpu) => operator.devices.run(&operator.inner, &given, gpu),
            }
        };
        done.ok()
    });
    done.is_some()
}

/// Does work with the number of threads that is in force. A panic, which would be a defect of the library, is a refusal: Python makes the
/// call again and reports it.
fn caught<T>(place: &RawPlace, work: impl FnOnce() -> Option<T>) -> Option<T> {
    let ceiling = match place.device >= 0 || threads::is_set() {
        true => usize::MAX,
        false => place.threads,
    };
    let work = || threads::at_most(ceiling, work);
    catch_unwind(AssertUnwindSafe(work)).ok().flatten()
}

/// The tensors, if their element types and shapes are ones.
///
/// # Safety
/// At `first` there are `count` views, whose shapes are valid.
unsafe fn views(first: *const RawView, count: usize) -> Option<Vec<View>> {
    // SAFETY: the caller promises it.
    let views = unsafe { std::slice::from_raw_parts(first, count) };
    let view = |view: &RawView| {
        // SAFETY: the caller promises it.
        let shape = unsafe { std::slice::from_raw_parts(view.shape, view.rank) };
        let axes = shape.iter().map(|&axis| usize::try_from(axis).ok());
        Some(View {
            address: view.address,
            shape: axes.collect::<Option<_>>()?,
            dtype: dtype(view.dtype)?,
        })
    };
    views.iter().map(view).collect()
}

fn dtype(number: u32) -> Option<Dtype> {
    [Dtype::F32, Dtype::F64, Dtype::Bf16, Dtype::F16]
        .get(number as usize)
        .copied()
}

impl RawPlace {
    fn gpu(&self) -> Option<Gpu> {
        Some(Gpu {
            ordinal: usize::try_from(self.device).ok()?,
            stream: self.stream,
            tf32: self.tf32,
        })
    }
}

impl RawMemory {
    fn given(&self, inputs: Vec<View>) -> Given {
        Given {
            inputs,
            output: self.output,
            saved: self.saved,
            workspace: Space {
                address: self.workspace,
                bytes: self.workspace_bytes,
            },
        }
    }
}

impl RawSizes {
    fn new(plan: &Plan) -> Option<Self> {
        let mut shape = [0; MOST_AXES];
        let axes = shape.get_mut(..plan.output.len())?;
        for (axis, &size) in axes.iter_mut().zip(&plan.output) {
            *axis = i64::try_from(size).ok()?;
        }
        Some(Self {
            rank: plan.output.len(),
            shape,
            saved: plan.saved,
            workspace: plan.workspace,
            is_large: plan.is_large,
        })
    }
}
