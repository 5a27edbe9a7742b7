//! Operators that are one lane program.

use cayley::GradeSet;

use super::shape::{Dim, Dims, TensorSpec};
use super::{Cost, Pass};
use crate::Element;
use crate::few::Few;
use crate::kernel::lanes::{self, Call, MAX_PARAMS, MAX_TENSORS, Operand, Parameter};
use crate::ops::ProductOptions;
use crate::programs::Known;
use crate::tensor::Tensor;
use crate::{Algebra, Error, Gate, Norm, Tier, sizes};
use flashcliff_program::ir::Argument;

/// The largest number of inputs of an operator: tensors and parameters of a lane program.
pub(super) const MAX_INPUTS: usize = MAX_TENSORS + MAX_PARAMS;

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

    #[cfg(feature = "cuda")]
    pub(crate) fn program(&self) -> &'static Known {
        self.program
    }

    /// The norm of the result.
    pub(crate) fn norm(&self) -> Norm {
        self.norm
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn eps(&self) -> f64 {
        self.eps
    }

    pub(crate) fn specs(&self) -> (Vec<TensorSpec>, TensorSpec) {
        let lane = |components| [Dim::Fixed(components), Dim::Batch, Dim::In];
        let program = self.program.source();
        let inputs = program.arguments.iter().map(|argument| match *argument {
            Argument::Input(tensor) => {
                let input = &program.inputs[tensor];
                TensorSpec::new(&input.name, &lane(input.components.len()))
            }
            Argument::Param(param) => {
                let param = &program.params[param];
                TensorSpec::new(&param.name, &[Dim::In, Dim::Fixed(param.count)])
            }
        });
        let output = TensorSpec::new("o", &lane(self.program.output_components()));
        (inputs.collect(), output)
    }

    pub(super) fn is_interpreted<T: Element>(&self, tier: Tier) -> bool {
        self.program.runnable::<T>(tier).forward.is_interpreted()
    }

    pub(super) fn row_sums(&self) -> usize {
        self.program.program().forward.row_sums
    }

    pub(super) fn cost(&self, dims: &Dims) -> Cost {
        let of_call = |flops| sizes::product([flops, dims.batch, dims.in_channels]);
        let [forward, backward] = self.program.program().flops.map(of_call);
        Cost { forward, backward }
    }

    pub(super) fn workspace_len<T: Element>(&self, tier: Tier, dims: &Dims, pass: Pass) -> usize {
        let null = std::ptr::null_mut::<T>();
        let lanes = self.lanes(dims, |_| null);
        let params = self.params(|_| null);
        match pass {
            Pass::Forward => {
                let outputs = [self.output(dims, null)];
                let operands = (&lanes[..], &outputs[..], &params[..], &[][..]);
                lanes::workspace_len(&self.call(tier, dims, Pass::Forward, operands, null))
            }
            Pass::Backward => {
                let mut inputs = lanes;
                inputs.push(self.output(dims, null));
                let operands = (&inputs[..], &lanes[..], &params[..], &params[..]);
                lanes::workspace_len(&self.call(tier, dims, Pass::Backward, operands, null))
            }
        }
    }

    pub(super) fn forward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        output: &mut [T],
        saved: &mut [T],
        workspace: &mut [T],
    ) {
        // Inputs are only read; operands of both kinds share one type.
        let input = |index: usize| inputs[index].data().as_ptr().cast_mut();
        let lanes = self.lanes(dims, input);
        let params = self.params(input);
        let outputs = [self.output(dims, output.as_mut_ptr())];
        let operands = (&lanes[..], &outputs[..], &params[..], &[][..]);
        let call = self.call(tier, dims, Pass::Forward, operands, saved.as_mut_ptr());
        // SAFETY: `Operator::forward` has checked every shape and length; `output`, `saved` and
        // `workspace` are borrowed mutably, so they overlap nothing.
        unsafe { lanes::run(&call, workspace) };
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one backward pass")]
    pub(super) fn backward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        saved: &[T],
        grad_output: &[T],
        grads: &mut [Option<&mut [T]>],
        workspace: &mut [T],
    ) {
        let null = std::ptr::null_mut::<T>;
        let input = |index: usize| inputs[index].data().as_ptr().cast_mut();
        let mut lanes = self.lanes(dims, input);
        lanes.push(self.output(dims, grad_output.as_ptr().cast_mut()));
        let params = self.params(input);
        let grads = grads.iter_mut();
        let grads = grads.map(|grad| grad.as_mut().map_or(null(), |grad| grad.as_mut_ptr()));
        let grads: Few<*mut T, MAX_INPUTS> = Few::of(null(), grads);
        let mut outputs = self.lanes(dims, |index| grads[index]);
        for output in outputs.iter_mut() {
            if output.is_unwanted() {
                *output = Operand::unwanted(output.components);
            }
        }
        let param_grads = self.params(|index| grads[index]);
        let operands = (&lanes[..], &outputs[..], &params[..], &param_grads[..]);
        let saved = saved.as_ptr().cast_mut();
        let call = self.call(tier, dims, Pass::Backward, operands, saved);
        // SAFETY: the same holds as in `forward`; the plan of the backward pass only reads `saved`, and nothing
        // if the operator has no row sums.
        unsafe { lanes::run(&call, workspace) };
    }

    /// The lane inputs, by the pointer of each input of the operator.
    fn lanes<T: Copy>(
        &self,
        dims: &Dims,
        pointer: impl Fn(usize) -> *mut T,
    ) -> Few<Operand<T>, MAX_TENSORS> {
        let (batch, channels) = (dims.batch, dims.in_channels);
        let program = self.program.source();
        let components = self.program.input_components();
        let lane =
            |components| Operand::contiguous(std::ptr::null_mut(), components, batch, channels);
        let mut lanes = Few::of(Operand::unwanted(0), components.map(lane));
        // Arguments are in the order of callers, lanes in that of the program.
        for (index, argument) in program.arguments.iter().enumerate() {
            if let Argument::Input(tensor) = *argument {
                lanes[tensor].ptr = pointer(index);
            }
        }
        lanes
    }

    fn params<T: Copy>(&self, pointer: impl Fn(usize) -> *mut T) -> Few<Parameter<T>, MAX_PARAMS> {
        let program = self.program.source();
        let arguments = program.arguments.iter().enumerate();
        let params = arguments.filter_map(|(index, argument)| match *argument {
            Argument::Param(param) => Some(Parameter {
                ptr: pointer(index),
                count: program.params[param].count,
            }),
            Argument::Input(_) => None,
        });
        let none = Parameter {
            ptr: std::ptr::null_mut(),
            count: 0,
        };
        Few::of(none, params)
    }

    fn output<T>(&self, dims: &Dims, ptr: *mut T) -> Operand<T> {
        let components = self.program.output_components();
        Operand::contiguous(ptr, components, dims.batch, dims.in_channels)
    }

    fn call<'a, T: Element>(
        &'a self,
        tier: Tier,
        dims: &Dims,
        pass: Pass,
        (inputs, outputs, params, param_grads): Operands<'a, T>,
        saved: *mut T,
    ) -> Call<'a, T> {
        let program = self.program.runnable::<T>(tier);
        let (plan, flops) = match pass {
            Pass::Forward => (&program.forward, program.flops[0]),
            Pass::Backward => (&program.backward, program.flops[1]),
        };
        // A backward plan without row sums must not write to `saved`.
        let saves = plan.saved_row_sums > 0 || pass == Pass::Forward;
        Call {
            plan,
            inputs,
            outputs,
            params,
            param_grads,
            saved: if saves { saved } else { std::ptr::null_mut() },
            saved_stride: dims.batch,
            batch: dims.batch,
            channels: dims.in_channels,
            flops,
            tier,
            gate: self.gate,
            eps: self.eps,
        }
    }
}

/// Inputs, outputs, parameters and parameter gradients of a pass.
type Operands<'a, T> = (
    &'a [Operand<T>],
    &'a [Operand<T>],
    &'a [Parameter<T>],
    &'a [Parameter<T>],
);

#[cfg(test)]
mod tests {
    use cayley::Signature;

    use super::*;

    /// The inputs of an operator of space, compiled or not.
    fn inputs(name: &str) -> Result<[Vec<&'static str>; 2], Error> {
        let signature = Signature::of(3, 0, 0);
        let mut lists = [Vec::new(), Vec::new()];
        let algebras = [Algebra::new(signature)?, Algebra::interpreted(signature)?];
        for (list, algebra) in lists.iter_mut().zip(algebras) {
            let operator = LaneOperator::new(algebra, name, algebra.full(), algebra.full())?;
            let (specs, _) = operator.specs();
            list.extend(specs.iter().map(|spec| spec.name));
        }
        Ok(lists)
    }

    #[test]
    fn inputs_come_in_the_order_of_the_program() -> Result<(), Error> {
        for (name, expected) in [
            ("sgp_rms", &["x", "y", "w"][..]),
            ("steerable_product", &["x", "r", "w"]),
            ("steerable_product_norm", &["x", "r", "w", "a"]),
            ("steerable_product_first_order", &["x", "r", "w", "l"]),
            (
                "steerable_product_norm_first_order",
                &["x", "r", "w", "a", "l"],
            ),
            ("mv_silu_norm", &["x", "a", "b"]),
        ] {
            for list in inputs(name)? {
                assert_eq!(list, expected, "{name}");
            }
        }
        Ok(())
    }
}
