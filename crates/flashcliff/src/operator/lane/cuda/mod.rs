//! Operators that are one lane program.
//!
//! * `kernels` - the kernels of a program.
//! * `strided` - the kernels for tensors with their own strides.

mod kernels;
#[cfg(feature = "jit")]
mod strided;

use std::fmt;
use std::ptr;
use std::sync::OnceLock;
use std::thread;

use flashcliff_program::ir::{Argument, Returned};
use flashcliff_program::plan::{Limits, plan};
use flashcliff_sys as sys;

use crate::cuda::call::{Call, Gradients, Kept, MAX_INPUTS, address};
use crate::cuda::device::Device;
use crate::cuda::dtype::{Dtypes, code};
#[cfg(feature = "jit")]
use crate::cuda::jit;
use crate::cuda::operator::{StridedTensor, StridedWorkspace, WideTensors};
use crate::cuda::{Address, OnCuda, RawStream, fault, launches};
use crate::operator::{Dims, LaneOperator, Operator, Pass};
use crate::programs::Known;
use crate::{Algebra, Error, Gate};
use kernels::{Found, Kernels, Origin};

// The generator refuses programs for which the arrays of the C interface have no room.
const _: () = assert!(Limits::CUDA.tensors == sys::FC_MAX_TENSORS as usize);
const _: () = assert!(Limits::CUDA.params == sys::FC_MAX_PARAMS as usize);

/// The kernels of a program and of its adjoint, with their options.
pub(crate) struct Lanes {
    origin: Origin,
    program: Kernels,
    /// The adjoint, once something has asked for it.
    adjoint: OnceLock<Kernels>,
    gate: sys::fc_gate,
    eps: f64,
}

/// Sums over the batch for each channel, in the type of the parameters: of the first component, or of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnSums {
    pub(crate) to: Address,
    pub(crate) of_all_components: bool,
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes")
            .field("operator", &self.origin.operator)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl LaneOperator {
    pub(crate) fn on_cuda(&self, operator: &Operator, device: &Device) -> Result<Lanes, Error> {
        let (operator, algebra) = (operator.name(), operator.algebra());
        let program = self.program;
        let source = program.source();
        let room = Limits::CUDA.check(source, &plan(source));
        room.map_err(|excess| Error::UnsupportedOnCuda {
            operator: operator.to_owned(),
            reason: excess.to_string(),
        })?;
        let program = Kernels::new(program);
        if !program.are_built() {
            can_compile(operator, algebra)?;
        }
        Ok(Lanes {
            origin: Origin {
                operator: operator.to_owned(),
                title: format!("{operator} of {}", algebra.signature()),
                capability: device.compute_capability(),
            },
            program,
            adjoint: OnceLock::new(),
            gate: gate_code(self.gate),
            eps: self.eps,
        })
    }
}

impl Lanes {
    fn kernels(&self, pass: Pass) -> &Kernels {
        match pass {
            Pass::Forward => &self.program,
            Pass::Backward => {
                let adjoint = || Kernels::new(self.program.program.adjoint());
                self.adjoint.get_or_init(adjoint)
            }
        }
    }

    /// Whether there is a backward pass. A derivative of an operator with a gate has none: its gradient is a separate operator.
    fn has_backward(&self) -> bool {
        self.kernels(Pass::Backward).source().is_resolved()
    }

    /// The kernel of a pass that takes a call, compiled now if it is not there.
    fn kernel(&self, pass: Pass, call: &mut sys::fc_call) -> Result<Found, Error> {
        if pass == Pass::Backward && !self.has_backward() {
            return Err(Error::UnsupportedOnCuda {
                operator: self.origin.operator.clone(),
                reason:
                    "a derivative with a gate has no backward pass; run `Operator::gradient` of it"
                        .to_owned(),
            });
        }
        self.kernels(pass).of_call(&self.origin, call)
    }

    /// Loads the kernel of a call on the current device.
    fn load(&self, pass: Pass, call: &mut sys::fc_call) -> Result<(), Error> {
        let kernel = self.kernel(pass, call)?.as_ptr();
        // SAFETY: the kernel is one of the library.
        fault::kernel("fc_prepare", unsafe { sys::fc_prepare(kernel) })
    }

    /// Loads the kernel of [`Self::run_strided`] on the current device, for tensors that lie at multiples of as many
    /// elements as their channels.
    pub(crate) fn prepare_strided(
        &self,
        dims: &Dims,
        types: (Dtypes, WideTensors),
    ) -> Result<(), Error> {
        let mut call = self.strided_call(dims, types);
        self.load(Pass::Forward, &mut call)
    }

    /// The workspace of a pass that may write column sums too: see [`Self::backward_with`].
    pub(crate) fn workspace_bytes_with(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
        column_sums: Option<ColumnSums>,
    ) -> Result<usize, Error> {
        let mut call = self.empty_call(dims, dtypes);
        let kernel = self.kernel(pass, &mut call)?.as_ptr();
        let results = &self.kernels(pass).source().results;
        for (at, result) in results.iter().enumerate() {
            // A run of one program wants all of its results.
            let is_wanted = pass == Pass::Forward || grads[at].is_some();
            if let (Returned::Sum(sum), true) = (*result, is_wanted) {
                // It only matters whether the address is null.
                call.sums[sum] = ptr::dangling_mut::<f64>().cast();
            }
        }
        if column_sums.is_some() {
            call.column_sums = ptr::dangling_mut::<f64>().cast();
        }
        let mut bytes = 0;
        // SAFETY: the function reads sizes and types of the call, and writes the number of bytes.
        let code = unsafe { sys::fc_workspace_bytes(kernel, &raw const call, &raw mut bytes) };
        fault::kernel("fc_workspace_bytes", code)?;
        Ok(bytes)
    }

    /// Does the same as [`OnCuda::backward`], and writes column sums of the gradient of the second input, which is wanted then. The
    /// program has one parameter and two inputs.
    ///
    /// # Safety
    /// The contract of [`OnCuda::run`] holds; a number for each channel fits at the address of the sums.
    pub(crate) unsafe fn backward_with(
        &self,
        call: &Call,
        column_sums: Option<ColumnSums>,
    ) -> Result<(), Error> {
        if call.grads.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut arguments = self.backward_arguments(call);
        let found = self.kernel(Pass::Backward, &mut arguments)?;
        if let Some(sums) = column_sums {
            arguments.column_sums = address(sums.to);
            arguments.sums_all_components = sums.of_all_components.into();
        }
        // SAFETY: the caller promises it.
        unsafe { self.launch(Pass::Backward, found, &arguments, call.stream) }
    }

    /// Whether the backward pass can leave sums over the batch in parts: not in kernels for rows with scalars or row
    /// values, which add them up themselves.
    pub(crate) fn leaves_parts(&self) -> bool {
        !self.kernels(Pass::Backward).have_others()
    }

    /// The place of an input among the parameters of the program, if it is one of them.
    pub(crate) fn parameter(&self, input: usize) -> Option<usize> {
        match self.program.source().arguments.get(input) {
            Some(&Argument::Param(param)) => Some(param),
            _ => None,
        }
    }

    /// The arguments of a backward pass. The gradient of the output comes after the inputs.
    fn backward_arguments(&self, call: &Call) -> sys::fc_call {
        let mut inputs = call.inputs;
        inputs[self.program.source().arguments.len()] = call.output;
        let adjoint = self.kernels(Pass::Backward).program;
        let mut arguments = self.arguments(adjoint, call, &inputs, &call.grads);
        if adjoint.source().saved_row_sums == 0 {
            arguments.saved = ptr::null_mut();
        }
        arguments
    }

    /// The arguments of a launch, from inputs and results in the order of callers.
    fn arguments(
        &self,
        program: &Known,
        call: &Call,
        inputs: &[Address; MAX_INPUTS],
        results: &Gradients,
    ) -> sys::fc_call {
        let mut arguments = self.empty_call(&call.dims, call.dtypes);
        let source = program.source();
        for (place, &input) in source.arguments.iter().zip(inputs) {
            match *place {
                Argument::Input(at) => arguments.inputs[at] = address(input),
                Argument::Param(at) => arguments.params[at] = address(input),
                Argument::RowValue(at) => {
                    arguments.inputs[source.inputs.len() + at] = address(input)
                }
            }
        }
        for (place, result) in source.results.iter().zip(results) {
            let result = address(result.unwrap_or(0));
            match *place {
                Returned::Output(at) => arguments.outputs[at] = result,
                Returned::Sum(at) => arguments.sums[at] = result,
                Returned::Total(at) => arguments.outputs[source.outputs.len() + at] = result,
            }
        }
        arguments.saved = address(call.saved);
        arguments.workspace = address(call.workspace);
        arguments.workspace_bytes = call.workspace_bytes;
        arguments
    }

    fn empty_call(&self, dims: &Dims, dtypes: Dtypes) -> sys::fc_call {
        sys::fc_call {
            inputs: [ptr::null(); sys::FC_MAX_TENSORS as usize],
            outputs: [ptr::null_mut(); sys::FC_MAX_TENSORS as usize],
            params: [ptr::null(); sys::FC_MAX_PARAMS as usize],
            sums: [ptr::null_mut(); sys::FC_MAX_PARAMS as usize],
            column_sums: ptr::null_mut(),
            sums_all_components: 0,
            saved: ptr::null_mut(),
            workspace: ptr::null_mut(),
            workspace_bytes: 0,
            // Sizes are below 2^63: `bind` bounds the elements of every tensor.
            batch: dims.batch as i64,
            channels: dims.in_channels as i64,
            scalars: dims.scalar_channels as i64,
            eps: self.eps,
            gate: self.gate,
            lane_dtype: code(dtypes.lanes),
            param_dtype: code(dtypes.params),
            strided: 0,
            input_strides: Default::default(),
            output_strides: Default::default(),
            wide: 0,
        }
    }

    /// A call on tensors with strides, without addresses.
    fn strided_call(&self, dims: &Dims, (dtypes, wide): (Dtypes, WideTensors)) -> sys::fc_call {
        let source = self.program.source();
        let is_in = |set: u32, at: usize| u64::from(set >> at & 1);
        let inputs = source.arguments.iter().enumerate().map(|(at, place)| {
            let bit = match *place {
                Argument::Input(own) => own,
                Argument::RowValue(own) => source.inputs.len() + own,
                Argument::Param(_) => return 0,
            };
            is_in(wide.inputs, at) << bit
        });
        let outputs = source.results.iter().enumerate().map(|(at, place)| {
            let bit = match *place {
                Returned::Output(own) => own,
                Returned::Total(own) => source.outputs.len() + own,
                Returned::Sum(_) => return 0,
            };
            is_in(wide.outputs, at) << (sys::FC_FIRST_OUTPUT as usize + bit)
        });
        sys::fc_call {
            strided: 1,
            wide: inputs.chain(outputs).sum(),
            ..self.empty_call(dims, dtypes)
        }
    }

    /// The bytes of workspace of [`Self::run_strided`], if all results are wanted.
    pub(crate) fn strided_workspace_bytes(
        &self,
        dims: &Dims,
        types: (Dtypes, WideTensors),
    ) -> Result<usize, Error> {
        let mut call = self.strided_call(dims, types);
        let kernel = self.kernel(Pass::Forward, &mut call)?.as_ptr();
        for sum in &mut call.sums[..self.program.source().sums.len()] {
            // It only matters whether the address is null.
            *sum = ptr::dangling_mut::<f64>().cast();
        }
        let mut bytes = 0;
        // SAFETY: the function reads sizes and types of the call, and writes the number of bytes.
        let code = unsafe { sys::fc_workspace_bytes(kernel, &raw const call, &raw mut bytes) };
        fault::kernel("fc_workspace_bytes", code)?;
        Ok(bytes)
    }

    /// Writes the results that are wanted, with strides for tensors of lanes. Inputs and results come in the order of callers.
    ///
    /// # Safety
    /// The tensors hold what their strides and the sizes reach, on the current device, until the work on the stream
    /// is done, and so does the workspace; what is written overlaps nothing else.
    pub(crate) unsafe fn run_strided(
        &self,
        stream: RawStream,
        dims: &Dims,
        types: (Dtypes, WideTensors),
        inputs: &[StridedTensor],
        outputs: &[Option<StridedTensor>],
        workspace: StridedWorkspace,
    ) -> Result<(), Error> {
        let source = self.program.source();
        let mut call = self.strided_call(dims, types);
        call.workspace = address(workspace.address);
        call.workspace_bytes = workspace.bytes;
        for (place, input) in source.arguments.iter().zip(inputs) {
            let at = match *place {
                Argument::Input(at) => at,
                Argument::RowValue(at) => source.inputs.len() + at,
                Argument::Param(at) => {
                    call.params[at] = address(input.address);
                    continue;
                }
            };
            call.inputs[at] = address(input.address);
            call.input_strides[at] = input.strides();
        }
        for (place, output) in source.results.iter().zip(outputs) {
            let Some(output) = output else { continue };
            let at = match *place {
                Returned::Output(at) => at,
                Returned::Total(at) => source.outputs.len() + at,
                Returned::Sum(at) => {
                    call.sums[at] = address(output.address);
                    continue;
                }
            };
            call.outputs[at] = address(output.address);
            call.output_strides[at] = output.strides();
        }
        let found = self.kernel(Pass::Forward, &mut call)?;
        // SAFETY: the caller promises it.
        unsafe { self.launch(Pass::Forward, found, &call, stream) }
    }

    /// Launches a kernel of a pass.
    ///
    /// # Safety
    /// The arguments belong to a checked call, whose context is current.
    unsafe fn launch(
        &self,
        pass: Pass,
        found: Found,
        arguments: &sys::fc_call,
        stream: RawStream,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it; the library copies what the pointers to host memory point to.
        let run = || unsafe { sys::fc_launch(found.as_ptr(), arguments, stream.cast()) };
        launches::program(|| self.kernels(pass).name(&found), "fc_launch", run)
    }
}

impl OnCuda for Lanes {
    /// Loads the kernels of both passes on the current device. If both are to be compiled, that happens at once.
    fn prepare(&self, dims: &Dims, dtypes: Dtypes) -> Result<(), Error> {
        if !self.has_backward() {
            return self.load(Pass::Forward, &mut self.empty_call(dims, dtypes));
        }
        let passes = [Pass::Forward, Pass::Backward];
        let call = self.empty_call(dims, dtypes);
        if passes
            .iter()
            .all(|pass| self.kernels(*pass).find(&call).is_none())
        {
            thread::scope(|scope| {
                // An error is found again below.
                scope.spawn(|| {
                    self.kernel(Pass::Backward, &mut self.empty_call(dims, dtypes))
                        .map(drop)
                });
                self.kernel(Pass::Forward, &mut self.empty_call(dims, dtypes))
                    .map(drop)
            })?;
        }
        let mut passes = passes.into_iter();
        passes.try_for_each(|pass| self.load(pass, &mut self.empty_call(dims, dtypes)))
    }

    fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
        kept: &Kept,
    ) -> Result<usize, Error> {
        match kept.parts {
            // The partial sums of gradients are all that a workspace would hold.
            Some(_) => Ok(0),
            None => self.workspace_bytes_with(dims, pass, dtypes, grads, None),
        }
    }

    unsafe fn run(&self, call: &Call, results: &Gradients) -> Result<(), Error> {
        let mut arguments = self.arguments(self.program.program, call, &call.inputs, results);
        let found = self.kernel(Pass::Forward, &mut arguments)?;
        // SAFETY: the caller promises it.
        unsafe { self.launch(Pass::Forward, found, &arguments, call.stream) }
    }

    unsafe fn backward(&self, call: &Call) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.backward_with(call, None) }
    }

    unsafe fn backward_in_parts(&self, call: &Call, parts: u64) -> Result<sys::fc_partials, Error> {
        let mut left = sys::fc_partials::default();
        if call.grads.iter().all(Option::is_none) {
            return Ok(left);
        }
        let mut arguments = self.backward_arguments(call);
        let found = self.kernel(Pass::Backward, &mut arguments)?;
        arguments.workspace = address(parts);
        arguments.workspace_bytes =
            self.workspace_bytes_with(&call.dims, Pass::Backward, call.dtypes, &call.grads, None)?;
        // SAFETY: the caller promises it.
        let run = || unsafe {
            sys::fc_launch_in_parts(
                found.as_ptr(),
                &raw const arguments,
                &raw mut left,
                call.stream.cast(),
            )
        };
        let name = || self.kernels(Pass::Backward).name(&found);
        launches::program(name, "fc_launch_in_parts", run)?;
        Ok(left)
    }

    fn lanes(&self) -> Option<&Lanes> {
        Some(self)
    }
}

/// Adds up partial sums that backward passes left.
///
/// # Safety
/// The partial sums come from earlier backward passes on the stream, and the gradients have the shapes and types of their parameters; all
/// are in the current context, and the stream is valid.
pub(crate) unsafe fn add_up(all: &[sys::fc_partials], stream: RawStream) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    // SAFETY: the caller promises it. There are at most a few operators.
    let launch = || unsafe { sys::fc_add_up(all.as_ptr(), all.len() as i32, stream.cast()) };
    launches::kernel("fc_add_up", launch)
}

/// Whether kernels of the build are used for the path products of an algebra. [`Algebra::interpreted`] asks for none, where
/// others can be compiled.
pub(crate) fn may_be_built(algebra: Algebra) -> bool {
    cfg!(not(feature = "jit")) || algebra.is_compiled()
}

/// Checks that kernels of an algebra that no build has can be compiled when they are used.
pub(crate) fn can_compile(operator: &str, algebra: Algebra) -> Result<(), Error> {
    let signature = algebra.signature();
    let unsupported = |why: &str| Error::UnsupportedOnCuda {
        operator: operator.to_owned(),
        reason: format!(
            "this build has no CUDA kernel of it for {signature} and these grades, {why}; kernels for all grades of an algebra \
             that has none can be built ahead with FLASHCLIFF_ALGEBRAS=\"{},{},{}\"",
            signature.p(),
            signature.q(),
            signature.r()
        ),
    };
    #[cfg(feature = "jit")]
    return jit::check().map_err(|error| {
        unsupported(&format!(
            "and NVRTC, which would compile it now, is missing: {error}"
        ))
    });
    #[cfg(not(feature = "jit"))]
    Err(unsupported(
        "and the feature `jit`, which compiles kernels when they are used, is off",
    ))
}

pub(crate) fn gate_code(gate: Gate) -> sys::fc_gate {
    match gate {
        Gate::None => sys::fc_gate::FC_GATE_NONE,
        Gate::Gelu => sys::fc_gate::FC_GATE_GELU,
        Gate::GeluTanh => sys::fc_gate::FC_GATE_GELU_TANH,
        Gate::Silu => sys::fc_gate::FC_GATE_SILU,
        Gate::GeluFast => sys::fc_gate::FC_GATE_GELU_FAST,
        other => unreachable!("the gate {other} has no number"),
    }
}
