//! Operators that are one lane program.
//!
//! `cuda` runs `flashcliff-sys/cuda/launch.cu`, which launches the skeletons `skeleton/*.cuh` with generated lane functions.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;

use cayley::GradeSet;

use super::shape::{Dim, Dims, TensorSpec};
use super::{Cost, Derivative, Given, Implementation, Kind, Pass, ProgramOptions, Specs};
use crate::Element;
use crate::few::Few;
use crate::kernel::lanes::{self, Call, MAX_PARAMS, MAX_TENSORS, Operand, Parameter, RowTensor};
use crate::ops::ProductOptions;
use crate::programs::{Known, Made};
use crate::tensor::Tensor;
use crate::{Algebra, Error, Gate, Norm, Tier, sizes};
use flashcliff_program::ir::{
    self, Argument, Id, LaneTensor, Node, Returned, Width, gradient, resolved, tangent_along,
};
use flashcliff_program::plan::{Limits, plan};

/// The largest number of inputs of an operator: tensors and parameters of a lane program.
pub(super) const MAX_INPUTS: usize = MAX_TENSORS + MAX_PARAMS;

// Kernels and programs state the gates with the same constants.
const _: () = assert!(
    ir::TANH_SCALE == flashcliff_kernels::TANH_SCALE
        && ir::TANH_CUBIC == flashcliff_kernels::TANH_CUBIC
        && ir::FAST_SCALE == flashcliff_kernels::FAST_SCALE
);

/// The gate as programs name it.
fn of_programs(gate: Gate) -> ir::Gate {
    match gate {
        Gate::None => ir::Gate::None,
        Gate::Gelu => ir::Gate::Gelu,
        Gate::GeluTanh => ir::Gate::GeluTanh,
        Gate::Silu => ir::Gate::Silu,
        Gate::GeluFast => ir::Gate::GeluFast,
        gate => unreachable!("{gate} is none of `Gate::ALL`"),
    }
}

/// Whether an argument of a program is needed: it is read, it is the first tensor of lanes and no other one is read, or
/// its shape alone says how many channels of its width there are.
fn is_needed(program: &ir::Program, argument: Argument) -> bool {
    let mut inputs = (0..program.inputs.len()).map(Argument::Input);
    let says_count = |width| {
        let first = program.reads_count_from(width);
        first == Some(argument)
    };
    program.reads(argument)
        || argument == Argument::Input(0) && !inputs.any(|input| program.reads(input))
        || Width::ALL.into_iter().any(says_count)
}

/// The input whose components are these values, in order.
fn copied_input(program: &ir::Program, values: &[Id]) -> Option<usize> {
    let Node::Lane { tensor, .. } = program.graph.node(*values.first()?) else {
        return None;
    };
    let is_copied = |(component, &value): (usize, &Id)| {
        program.graph.node(value) == Node::Lane { tensor, component }
    };
    let is_whole = program.inputs[tensor].components.len() == values.len();
    (is_whole && values.iter().enumerate().all(is_copied)).then_some(tensor)
}

/// The axis of the channels of a width.
fn axis(width: Width) -> Dim {
    match width {
        Width::Channels => Dim::In,
        Width::Scalars => Dim::Scalars,
    }
}

/// The number of channels of each width.
fn counts(dims: &Dims) -> [usize; 2] {
    [dims.in_channels, dims.scalar_channels]
}

/// The most lanes of one width: programs count their operations for a lane of each.
fn lanes_of(dims: &Dims) -> usize {
    let [channels, scalars] = counts(dims);
    sizes::product([dims.batch, channels.max(scalars)])
}

/// A program with its options.
#[derive(Clone)]
pub(crate) struct LaneOperator {
    program: &'static Known,
    gate: Gate,
    norm: Norm,
    eps: f64,
}

impl std::fmt::Debug for LaneOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneOperator")
            .field("program", &self.program.source().name)
            .field("formula", &self.program.source().formula)
            .field("gate", &self.gate)
            .field("eps", &self.eps)
            .finish()
    }
}

impl LaneOperator {
    pub(crate) fn new(
        algebra: Algebra,
        name: &str,
        left: GradeSet,
        right: GradeSet,
    ) -> Result<Self, Error> {
        Ok(Self::of(algebra.program(name, left, right)?))
    }

    /// Whether each item is computed on its own.
    pub(super) fn is_of_items(&self) -> bool {
        self.program.is_of_items()
    }

    /// The operator of a program, without a gate.
    pub(crate) fn of(program: &'static Known) -> Self {
        Self {
            program,
            gate: Gate::None,
            norm: Norm::None,
            // A norm without it is not finite for zeros. Programs without a norm do not read it.
            eps: ProductOptions::default().eps,
        }
    }

    pub(crate) fn with_gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    pub(crate) fn with_eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Says which norm the program has.
    pub(crate) fn with_norm(mut self, norm: Norm) -> Self {
        self.norm = norm;
        self
    }

    /// The program as it is written.
    /// The program.
    #[cfg(all(feature = "cuda", feature = "jit"))]
    pub(crate) fn program(&self) -> &'static Known {
        self.program
    }

    pub(super) fn source(&self) -> &'static ir::Program {
        self.program.source()
    }

    /// The values of a call that the program leaves open.
    pub(crate) fn options(&self) -> ProgramOptions {
        ProgramOptions {
            gate: self.gate,
            eps: self.eps,
        }
    }

    /// The operator of another program with the same options.
    fn with_program(&self, program: &'static Known) -> Self {
        Self {
            program,
            ..self.clone()
        }
    }

    /// The derivative as an operator of lanes.
    pub(super) fn derived(&self, derivative: Derivative) -> Self {
        match derivative {
            Derivative::Gradient => {
                let make =
                    |program: &ir::Program| resolved(of_programs(self.gate), gradient(program));
                self.with_program(self.program.made(Made::Gradient(self.gate), make))
            }
            Derivative::Tangent => {
                self.tangent_along(&vec![true; self.program.source().arguments.len()])
            }
        }
    }

    /// The directional derivative along changes of some arguments.
    pub(super) fn tangent_along(&self, along: &[bool]) -> Self {
        let make =
            |program: &ir::Program| resolved(of_programs(self.gate), tangent_along(program, along));
        let how = Made::Tangent(self.gate, along.to_vec());
        self.with_program(self.program.made(how, make))
    }

    /// The operator with some of its results.
    pub(super) fn with_results(&self, wanted: &[bool]) -> Self {
        if !wanted.contains(&false) {
            return self.clone();
        }
        let make = |source: &ir::Program| {
            let results = source.results.iter().zip(wanted);
            let kept = results.filter(|(_, wanted)| **wanted);
            let kept: Vec<Returned> = kept.map(|(result, _)| *result).collect();
            source.rebuilt(|result| kept.contains(&result), |_, _| None)
        };
        self.with_program(self.program.made(Made::Selecting(wanted.to_vec()), make))
    }

    /// Which arguments the program reads. If it reads no tensor of lanes, or none with the channels of a width that it needs, the first one
    /// counts as read, since its shape says how many lanes there are.
    pub(super) fn reads(&self) -> Vec<bool> {
        let source = self.program.source();
        let is_read = |argument: &Argument| is_needed(source, *argument);
        source.arguments.iter().map(is_read).collect()
    }

    /// The operator without the arguments that [`Self::reads`] does not name.
    pub(super) fn reading(&self) -> Self {
        let make =
            |source: &ir::Program| source.without_unread(|argument| !is_needed(source, argument));
        self.with_program(self.program.made(Made::Reading, make))
    }

    /// The operator of sums.
    pub(super) fn of_sums(&self) -> Self {
        self.with_program(self.program.made(Made::OfSums, ir::Program::of_sums))
    }

    /// The operator whose outputs are added to further arguments.
    pub(super) fn adding(&self) -> Self {
        self.with_program(self.program.made(Made::Adding, ir::Program::adding))
    }

    /// For each result the argument that it is a copy of, if it is one.
    pub(super) fn copied(&self) -> Vec<Option<usize>> {
        let source = self.program.source();
        let results = source.results.iter().map(|result| match *result {
            Returned::Output(at) => copied_input(source, &source.outputs[at].values),
            Returned::Sum(_) | Returned::Total(_) => None,
        });
        let place = |input| {
            let mut arguments = source.arguments.iter();
            arguments.position(|argument| *argument == Argument::Input(input))
        };
        results.map(|input| input.and_then(place)).collect()
    }

    /// Whether kernels for CUDA have room for the program too.
    pub(super) fn has_room_everywhere(&self) -> bool {
        let program = self.program.source();
        let on_cuda = Limits::CUDA.check(program, &plan(program));
        self.check_room().is_ok() && on_cuda.is_ok()
    }

    /// The operations of a run of the program.
    pub(super) fn flops(&self, dims: &Dims) -> usize {
        sizes::product([self.program.program().flops, lanes_of(dims)])
    }

    fn call<'a, T: Element>(
        &self,
        program: &'a Known,
        tier: Tier,
        dims: &Dims,
        tensors: &'a Tensors<T>,
        saved: *mut T,
    ) -> Call<'a, T> {
        let program = program.runnable::<T>(tier);
        Call {
            plan: &program.plan,
            inputs: &tensors.inputs,
            outputs: &tensors.outputs,
            params: &tensors.params,
            sums: &tensors.sums,
            row_values: &tensors.row_values,
            totals: &tensors.totals,
            saved,
            saved_stride: dims.batch,
            batch: dims.batch,
            channels: counts(dims),
            flops: program.flops,
            tier,
            gate: self.gate,
            eps: self.eps,
        }
    }
}

impl Implementation for LaneOperator {
    /// The arguments and the results, each in the order of callers.
    fn specs(&self) -> Specs {
        let lane = |tensor: &'static LaneTensor| {
            let components = Dim::Fixed(tensor.components.len());
            TensorSpec::new(&tensor.name, &[components, Dim::Batch, axis(tensor.width)])
        };
        let parameter = |parameter: &'static ir::Parameter| {
            let count = Dim::Fixed(parameter.count);
            TensorSpec::new(&parameter.name, &[axis(parameter.width), count])
        };
        let of_rows = |name: &'static str| TensorSpec::new(name, &[Dim::Batch]);
        let program: &'static ir::Program = self.program.source();
        let inputs = program.arguments.iter().map(|argument| match *argument {
            Argument::Input(at) => lane(&program.inputs[at]),
            Argument::Param(at) => parameter(&program.params[at]),
            Argument::RowValue(at) => of_rows(&program.row_values[at]),
        });
        let outputs = program.results.iter().map(|result| match *result {
            Returned::Output(at) => lane(&program.outputs[at].tensor),
            Returned::Sum(at) => parameter(&program.sums[at].tensor),
            Returned::Total(at) => of_rows(&program.totals[at].name),
        });
        (inputs.collect(), outputs.collect())
    }

    /// The operations of both passes. The adjoint is counted and not planned: if it calls derivatives of the gate
    /// that kernels do not have, it does not run.
    fn cost(&self, dims: &Dims) -> Cost {
        let [forward, backward] = [self.program, self.program.adjoint()].map(|program| {
            let flops = ir::cost(program.source()).flops();
            sizes::product([flops, lanes_of(dims)])
        });
        Cost { forward, backward }
    }

    fn derivative(&self, _: Algebra, derivative: Derivative) -> Result<Kind, Error> {
        Ok(Kind::Lanes(self.derived(derivative)))
    }

    fn run<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        outputs: &mut [Option<&mut [T]>],
        saved: &mut [T],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        // Inputs are only read; operands of both kinds share one type.
        let input = |index: usize| inputs[index].data().as_ptr().cast_mut();
        let outputs = pointers(outputs);
        let tensors = Tensors::of(self.program, dims, input, |index| outputs[index]);
        let saved = match saved.is_empty() {
            true => std::ptr::null_mut(),
            false => saved.as_mut_ptr(),
        };
        let call = self.call(self.program, tier, dims, &tensors, saved);
        // SAFETY: `Operator` has checked every shape and length; `outputs`, `saved` and `workspace` are borrowed mutably, so they
        // overlap nothing.
        unsafe { lanes::run(&call, workspace) };
        Ok(())
    }

    fn backward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        given: &Given<'_, T>,
        grads: &mut [Option<&mut [T]>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let program = self.program.adjoint();
        // The gradient of the output comes after the inputs.
        let input = |index: usize| {
            let input = given.inputs.get(index).unwrap_or(&given.grad_output);
            input.data().as_ptr().cast_mut()
        };
        let grads = pointers(grads);
        let tensors = Tensors::of(program, dims, input, |index| grads[index]);
        // An adjoint without saved sums must not write to them.
        let saved = match program.program().plan.saved_row_sums {
            0 => std::ptr::null_mut(),
            _ => given.saved.as_ptr().cast_mut(),
        };
        let call = self.call(program, tier, dims, &tensors, saved);
        // SAFETY: the same holds as in `run`; the adjoint only reads `saved`.
        unsafe { lanes::run(&call, workspace) };
        Ok(())
    }

    fn workspace_len<T: Element>(&self, tier: Tier, dims: &Dims, pass: Pass) -> usize {
        let program = match pass {
            Pass::Forward => self.program,
            // A pass that kernels cannot run is an error where it is to run.
            Pass::Backward if self.check_backward().is_err() => return 0,
            Pass::Backward => self.program.adjoint(),
        };
        let null = |_| std::ptr::null_mut::<T>();
        let tensors = Tensors::of(program, dims, null, null);
        lanes::workspace_len(&self.call(program, tier, dims, &tensors, null(0)))
    }

    fn row_sums(&self) -> usize {
        self.program.program().plan.row_sums
    }

    fn is_interpreted<T: Element>(&self, _: Algebra, tier: Tier) -> bool {
        self.program.runnable::<T>(tier).plan.is_interpreted()
    }

    fn check_room(&self) -> Result<(), String> {
        self.program.check_room()
    }

    fn check_backward(&self) -> Result<(), String> {
        self.program.check_backward()
    }

    fn selecting(&self, wanted: &[bool]) -> Option<Kind> {
        Some(Kind::Lanes(self.with_results(wanted)))
    }

    fn lanes(&self) -> Option<&LaneOperator> {
        Some(self)
    }

    fn norm(&self) -> Norm {
        self.norm
    }
}

/// The pointers of results; null for those that nobody wants.
fn pointers<T: Copy>(tensors: &mut [Option<&mut [T]>]) -> Few<*mut T, MAX_INPUTS> {
    let null = std::ptr::null_mut::<T>;
    let tensors = tensors.iter_mut();
    let pointers = tensors.map(|tensor| tensor.as_mut().map_or(null(), |data| data.as_mut_ptr()));
    Few::of(null(), pointers)
}

/// The tensors of a run, in the order of the program.
struct Tensors<T> {
    inputs: Few<Operand<T>, MAX_TENSORS>,
    outputs: Few<Operand<T>, MAX_TENSORS>,
    params: Few<Parameter<T>, MAX_PARAMS>,
    sums: Few<Parameter<T>, MAX_PARAMS>,
    row_values: Few<RowTensor<T>, MAX_TENSORS>,
    totals: Few<RowTensor<T>, MAX_TENSORS>,
}

impl<T: Copy> Tensors<T> {
    /// The tensors by the pointer of each argument and of each result, in the order of callers.
    fn of(
        program: &Known,
        dims: &Dims,
        argument: impl Fn(usize) -> *mut T,
        result: impl Fn(usize) -> *mut T,
    ) -> Self {
        let null = std::ptr::null_mut::<T>();
        let counts = counts(dims);
        let lane = |width: Width, components| {
            let sizes = [components, dims.batch, counts[width.index()]];
            Operand::of_width(width, null, sizes)
        };
        let of = |tensor: &LaneTensor| lane(tensor.width, tensor.components.len());
        let parameter = |width, count| Parameter {
            ptr: null,
            width,
            count,
        };
        let given = |param: &ir::Parameter| parameter(param.width, param.count);
        let source = program.source();
        let (inputs, outputs) = (source.inputs.iter(), source.outputs.iter());
        let (params, sums) = (source.params.iter(), source.sums.iter());
        let no_row = RowTensor { ptr: null };
        let (no_lane, no_parameter) = (lane(Width::Channels, 0), parameter(Width::Channels, 0));
        let mut tensors = Self {
            inputs: Few::of(no_lane, inputs.map(of)),
            outputs: Few::of(no_lane, outputs.map(|output| of(&output.tensor))),
            params: Few::of(no_parameter, params.map(given)),
            sums: Few::of(no_parameter, sums.map(|sum| given(&sum.tensor))),
            row_values: Few::of(no_row, source.row_values.iter().map(|_| no_row)),
            totals: Few::of(no_row, source.totals.iter().map(|_| no_row)),
        };
        for (index, place) in source.arguments.iter().enumerate() {
            match *place {
                Argument::Input(at) => tensors.inputs[at].ptr = argument(index),
                Argument::Param(at) => tensors.params[at].ptr = argument(index),
                Argument::RowValue(at) => tensors.row_values[at].ptr = argument(index),
            }
        }
        for (index, place) in source.results.iter().enumerate() {
            match *place {
                Returned::Output(at) => tensors.outputs[at].ptr = result(index),
                Returned::Sum(at) => tensors.sums[at].ptr = result(index),
                Returned::Total(at) => tensors.totals[at].ptr = result(index),
            }
        }
        tensors
    }
}
