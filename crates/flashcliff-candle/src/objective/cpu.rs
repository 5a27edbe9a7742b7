//! A plan on the CPU: its buffers, and both passes.

use std::ops::Deref;

use candle_core::{Layout, Storage, Tensor};
use flashcliff::{Operator, Pass, TensorMut};

use super::operations::Reports;
use super::plan::{Activation, Holder, Node, Operand, Plan, Value, ValueId, Wanted, Work};
use super::planned::Part;
use crate::Error;
use crate::op::Scalar;
use crate::op::blade_norm::{self, BladeNorm};
use crate::op::function::{Array, Function};

/// The most inputs of a node: those of a weighted product with normalisation and first-order term.
const MOST_INPUTS: usize = 5;

/// The buffers of a plan. They are taken once.
#[derive(Debug)]
pub(super) struct OnCpu<T> {
    /// For each place of memory of the plan; empty where a tensor holds the value.
    values: Vec<Vec<T>>,
    /// For each node the values that its forward pass saves.
    saved: Vec<Vec<T>>,
    /// The gradients of values.
    gradients: Vec<Vec<T>>,
    /// The gradients of parameters.
    sums: Vec<Vec<T>>,
    /// The gradients of parameters for one part of a batch; empty until there are several parts.
    shares: Vec<Vec<T>>,
    workspace: Vec<T>,
    loss: f64,
}

/// The batch, and the plan that has the parameters.
#[derive(Clone, Copy)]
struct Given<'a> {
    plan: &'a Plan,
    batch: &'a [Tensor],
}

/// The tensors that a node reads, locked while it runs. The locks of all tensors of a plan would need a list that is allocated in each step.
struct Held<'a, G>([Option<(G, &'a Layout)>; MOST_INPUTS]);

impl<'a> Given<'a> {
    /// The tensor that holds a value; `None` where a buffer does.
    fn tensor(self, value: ValueId) -> Option<&'a Tensor> {
        match self.plan.values[value.0].holder {
            Holder::Batch(tensor) => Some(&self.batch[tensor]),
            Holder::Parameter(parameter) => Some(&self.plan.parameters[parameter]),
            Holder::Buffer => None,
        }
    }

    /// The tensors of a node. They differ: a parameter has one use in a plan.
    fn hold(self, node: &Node) -> Held<'a, impl Deref<Target = Storage> + use<'a>> {
        let mut held = Held(std::array::from_fn(|_| None));
        for (held, input) in held.0.iter_mut().zip(&node.inputs) {
            *held = self.tensor(input.value).map(Tensor::storage_and_layout);
        }
        held
    }
}

impl<T: Scalar> OnCpu<T> {
    pub(super) fn new(plan: &Plan) -> Self {
        let zeros = |len: usize| vec![T::zero(); len];
        let value = |(value, &len): (&Value, &usize)| match value.holder {
            Holder::Buffer => zeros(len),
            Holder::Batch(_) | Holder::Parameter(_) => Vec::new(),
        };
        let values = plan.values.iter().zip(plan.blocks.lens());
        let saved = |node: &Node| match &node.work {
            Work::Operator(operator, dims) => zeros(operator.saved_len(dims)),
            _ => Vec::new(),
        };
        let parameters = plan.parameters.iter();
        Self {
            values: values.map(value).collect(),
            saved: plan.nodes.iter().map(saved).collect(),
            gradients: plan.buffers.iter().map(|&len| zeros(len)).collect(),
            sums: parameters
                .map(|tensor| zeros(tensor.elem_count()))
                .collect(),
            shares: Vec::new(),
            workspace: Vec::new(),
            loss: 0.0,
        }
    }

    /// Computes the error of a part of a batch, and its gradients.
    /// Gradients are multiplied by the scale of the loss.
    pub(super) fn run(
        &mut self,
        (plan, reports): (&Plan, Reports<'_>),
        batch: &[Tensor],
        part: Part,
        loss_scale: f64,
    ) -> Result<(), Error> {
        let given = Given { plan, batch };
        self.both_passes((plan, reports), given, part, loss_scale)
    }

    /// The bytes of all buffers.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let all = [&self.values, &self.saved, &self.gradients, &self.sums];
        let lengths = all.into_iter().flatten().map(Vec::len);
        size_of::<T>() * lengths.sum::<usize>()
    }

    /// The sum of the errors of the parts so far.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// The gradient of a parameter.
    pub(super) fn gradient(&self, parameter: usize) -> &[T] {
        &self.sums[parameter]
    }

    fn both_passes(
        &mut self,
        (plan, reports): (&Plan, Reports<'_>),
        given: Given<'_>,
        part: Part,
        loss_scale: f64,
    ) -> Result<(), Error> {
        for (at, node) in plan.nodes.iter().enumerate() {
            reports.node(at, Pass::Forward);
            self.forward(given, at, node)?;
        }
        reports.error();
        self.error(given, part, loss_scale)?;
        if part.adds && self.shares.is_empty() {
            let of = |sum: &Vec<T>| vec![T::zero(); sum.len()];
            self.shares = self.sums.iter().map(of).collect();
        }
        for (at, node) in plan.nodes.iter().enumerate().rev() {
            for &again in plan.blocks.again(at) {
                reports.node(again, Pass::Forward);
                self.forward(given, again, &plan.nodes[again])?;
            }
            reports.node(at, Pass::Backward);
            self.backward(given, at, node, part)?;
        }
        reports.end();
        if part.adds {
            for (sum, share) in self.sums.iter_mut().zip(&self.shares) {
                for (sum, &share) in sum.iter_mut().zip(share) {
                    *sum += share;
                }
            }
        }
        Ok(())
    }

    /// The workspace, at least as long as an operator needs for a pass. It grows with the number of threads.
    fn take_workspace(
        &mut self,
        operator: &Operator,
        dims: &flashcliff::Dims,
        pass: Pass,
    ) -> Vec<T> {
        let mut workspace = std::mem::take(&mut self.workspace);
        let needed = operator.workspace_len::<T>(dims, pass);
        if workspace.len() < needed {
            // Without this line a vector that grows takes twice what it had.
            workspace.reserve_exact(needed - workspace.len());
            workspace.resize(needed, T::zero());
        }
        workspace
    }

    fn forward(&mut self, given: Given<'_>, at: usize, node: &Node) -> Result<(), Error> {
        let (plan, held) = (given.plan, given.hold(node));
        let place = plan.blocks.memory(node.output.value);
        let mut output = std::mem::take(&mut self.values[place]);
        let own = &mut output[..node.output.len()];
        let done = match &node.work {
            Work::Points => {
                points(self.input(plan, &held, node, 0)?, own);
                Ok(())
            }
            Work::Norm => {
                let x = self.input(plan, &held, node, 0)?;
                BladeNorm.forward(&[x], own)
            }
            Work::Activation(kind) => {
                let x = self.input(plan, &held, node, 0)?;
                activate(*kind, x.data, own);
                Ok(())
            }
            Work::ScaledSum(scale) => {
                let x = self.input(plan, &held, node, 0)?.data;
                let y = self.input(plan, &held, node, 1)?.data;
                let scale = <T as candle_core::WithDType>::from_f64(*scale);
                for ((o, &x), &y) in own.iter_mut().zip(x).zip(y) {
                    *o = scale * (x + y);
                }
                Ok(())
            }
            Work::Blade(blade) => {
                let x = self.input(plan, &held, node, 0)?.data;
                own.copy_from_slice(&x[blade * own.len()..][..own.len()]);
                Ok(())
            }
            Work::ReverseAxes => {
                reverse_axes(self.input(plan, &held, node, 0)?, own);
                Ok(())
            }
            Work::Operator(operator, dims) => {
                let mut saved = std::mem::take(&mut self.saved[at]);
                let mut workspace = self.take_workspace(operator, dims, Pass::Forward);
                let done = self.with_inputs(plan, &held, node, |inputs| {
                    let output = TensorMut::new(own, &node.output.shape)?;
                    operator.forward(inputs, output, &mut saved, &mut workspace)?;
                    Ok(())
                });
                (self.saved[at], self.workspace) = (saved, workspace);
                done
            }
        };
        self.values[place] = output;
        done
    }

    /// The error of a part, and the gradient of the prediction.
    fn error(&mut self, given: Given<'_>, part: Part, loss_scale: f64) -> Result<(), Error> {
        let plan = given.plan;
        let Some(buffer) = plan.gradient_of[plan.prediction.0] else {
            return Ok(());
        };
        let scale = <T as candle_core::WithDType>::from_f64(2.0 * part.scale * loss_scale);
        let mut sum = 0.0;
        let targets = given.batch[plan.targets].storage_and_layout();
        let targets = elements(&targets)?;
        let prediction = &self.values[plan.blocks.memory(plan.prediction)];
        let pairs = prediction.iter().zip(targets);
        for (grad, (&y, &target)) in self.gradients[buffer].iter_mut().zip(pairs) {
            let difference = y - target;
            *grad = scale * difference;
            let wide = candle_core::WithDType::to_f64(difference);
            sum += wide * wide;
        }
        let before = if part.adds { self.loss } else { 0.0 };
        self.loss = before + part.scale * sum;
        Ok(())
    }

    fn backward(
        &mut self,
        given: Given<'_>,
        at: usize,
        node: &Node,
        part: Part,
    ) -> Result<(), Error> {
        let plan = given.plan;
        let wanted = &plan.wanted[at];
        let Some(buffer) = plan.gradient_of[node.output.value.0] else {
            return Ok(());
        };
        if wanted.iter().all(|&wanted| wanted == Wanted::No) {
            return Ok(());
        }
        let held = given.hold(node);
        let mut grads: [Vec<T>; MOST_INPUTS] = std::array::from_fn(|_| Vec::new());
        for ((grad, &wanted), input) in grads.iter_mut().zip(wanted).zip(&node.inputs) {
            if let Some(place) = self.place(plan, wanted, input, part) {
                *grad = std::mem::take(place);
            }
            if wanted == Wanted::Written {
                let whole = plan.values[input.value.0].len;
                grad[input.len()..whole].fill(T::zero());
            }
        }
        let grad_output = &self.gradients[buffer][..node.output.len()];
        let done = match &node.work {
            Work::Points => Ok(()),
            Work::Norm => {
                let x = self.input(plan, &held, node, 0)?.data;
                let o = self.value(plan, node.output.value);
                blade_norm::pull_back(x, o, grad_output, &mut grads[0][..node.inputs[0].len()]);
                Ok(())
            }
            Work::Activation(kind) => {
                let x = self.input(plan, &held, node, 0)?;
                activate_backward(*kind, x.data, grad_output, &mut grads[0]);
                Ok(())
            }
            Work::ScaledSum(scale) => {
                let scale = <T as candle_core::WithDType>::from_f64(*scale);
                for grad in &mut grads[..2] {
                    // The gradient of an input that needs none has no elements.
                    for (grad, &g) in grad.iter_mut().zip(grad_output) {
                        *grad = scale * g;
                    }
                }
                Ok(())
            }
            Work::Blade(blade) => {
                let grad = &mut grads[0][..node.inputs[0].len()];
                grad.fill(T::zero());
                grad[blade * grad_output.len()..][..grad_output.len()].copy_from_slice(grad_output);
                Ok(())
            }
            Work::ReverseAxes => {
                let shape = &node.output.shape;
                let grad_output = Array {
                    data: grad_output,
                    shape,
                };
                reverse_axes(grad_output, &mut grads[0]);
                Ok(())
            }
            Work::Operator(operator, dims) => {
                let mut workspace = self.take_workspace(operator, dims, Pass::Backward);
                let done = self.operator_backward(
                    plan,
                    &held,
                    (at, node),
                    operator,
                    &mut grads,
                    &mut workspace,
                );
                self.workspace = workspace;
                done
            }
        };
        for ((grad, &wanted), input) in grads.into_iter().zip(wanted).zip(&node.inputs) {
            if let Some(place) = self.place(plan, wanted, input, part) {
                *place = grad;
            }
        }
        done
    }

    fn operator_backward(
        &self,
        plan: &Plan,
        held: &Held<'_, impl Deref<Target = Storage>>,
        (at, node): (usize, &Node),
        operator: &Operator,
        grads: &mut [Vec<T>; MOST_INPUTS],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let wanted = &plan.wanted[at];
        let Some(buffer) = plan.gradient_of[node.output.value.0] else {
            return Ok(());
        };
        let mut slots: [Option<TensorMut<'_, T>>; MOST_INPUTS] = std::array::from_fn(|_| None);
        let each = slots.iter_mut().zip(grads).zip(wanted).zip(&node.inputs);
        for (((slot, grad), &wanted), input) in each {
            if wanted != Wanted::No {
                *slot = Some(TensorMut::new(&mut grad[..input.len()], &input.shape)?);
            }
        }
        let slots = &mut slots[..node.inputs.len()];
        let shape = &node.output.shape;
        let len = node.output.len();
        let output = &self.value(plan, node.output.value)[..len];
        let output = flashcliff::Tensor::new(output, shape)?;
        let grad_output = flashcliff::Tensor::new(&self.gradients[buffer][..len], shape)?;
        let saved = &self.saved[at];
        self.with_inputs(plan, held, node, |inputs| {
            match wanted.contains(&Wanted::Added) {
                false => {
                    operator.backward(inputs, output, saved, grad_output, slots, workspace)?;
                }
                true => {
                    operator.backward_adding(
                        inputs,
                        output,
                        saved,
                        grad_output,
                        slots,
                        workspace,
                    )?;
                }
            }
            Ok(())
        })
    }

    /// The buffer of the gradient of an input.
    fn place(
        &mut self,
        plan: &Plan,
        wanted: Wanted,
        input: &Operand,
        part: Part,
    ) -> Option<&mut Vec<T>> {
        match wanted {
            Wanted::No => None,
            Wanted::Written | Wanted::Added => {
                Some(&mut self.gradients[plan.gradient_of[input.value.0]?])
            }
            Wanted::Parameter(parameter) if part.adds => Some(&mut self.shares[parameter]),
            Wanted::Parameter(parameter) => Some(&mut self.sums[parameter]),
        }
    }

    /// An input of a node.
    fn input<'a>(
        &'a self,
        plan: &Plan,
        held: &'a Held<'_, impl Deref<Target = Storage>>,
        node: &'a Node,
        at: usize,
    ) -> Result<Array<'a, T>, Error> {
        let operand = &node.inputs[at];
        let data = match &held.0[at] {
            Some(locked) => elements(locked)?,
            None => self.value(plan, operand.value),
        };
        Ok(Array {
            data: &data[..operand.len()],
            shape: &operand.shape,
        })
    }

    /// The elements of a value in a buffer.
    fn value(&self, plan: &Plan, value: ValueId) -> &[T] {
        &self.values[plan.blocks.memory(value)][..plan.values[value.0].len]
    }

    /// Calls a function with the inputs of a node.
    fn with_inputs(
        &self,
        plan: &Plan,
        held: &Held<'_, impl Deref<Target = Storage>>,
        node: &Node,
        f: impl FnOnce(&[flashcliff::Tensor<'_, T>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let first = self.input(plan, held, node, 0)?.tensor()?;
        let mut inputs = [first; MOST_INPUTS];
        for (at, tensor) in inputs[..node.inputs.len()].iter_mut().enumerate().skip(1) {
            *tensor = self.input(plan, held, node, at)?.tensor()?;
        }
        f(&inputs[..node.inputs.len()])
    }
}

/// The elements of a contiguous tensor.
fn elements<'a, T: Scalar>(
    (storage, layout): &'a (impl Deref<Target = Storage>, &Layout),
) -> Result<&'a [T], Error> {
    let (Storage::Cpu(storage), Some((start, end))) = (&**storage, layout.contiguous_offsets())
    else {
        let op = "objective";
        return Err(candle_core::Error::RequiresContiguous { op }.into());
    };
    Ok(&T::cpu_storage_as_slice(storage)?[start..end])
}

/// `to[0] = 0`, `to[1 + i][b][p] = from[b][p][i]`.
fn points<T: Scalar>(from: Array<'_, T>, to: &mut [T]) {
    let dim = from.shape[2];
    let rows = from.data.len() / dim.max(1);
    let (scalars, vectors) = to.split_at_mut(rows);
    scalars.fill(T::zero());
    for (i, blade) in vectors.chunks_exact_mut(rows.max(1)).enumerate() {
        for (to, point) in blade.iter_mut().zip(from.data.chunks_exact(dim)) {
            *to = point[i];
        }
    }
}

/// `to[k][j][i] = from[i][j][k]`.
fn reverse_axes<T: Scalar>(from: Array<'_, T>, to: &mut [T]) {
    let (middle, last) = (from.shape[1], from.shape[2]);
    let first = from.shape[0];
    for (at, to) in to.iter_mut().enumerate() {
        let [k, j, i] = [at / first / middle, at / first % middle, at % first];
        *to = from.data[(i * middle + j) * last + k];
    }
}

fn sigmoid<T: Scalar>(x: T) -> T {
    T::one() / (T::one() + (T::zero() - x).exponential())
}

fn activate<T: Scalar>(kind: Activation, x: &[T], o: &mut [T]) {
    for (o, &x) in o.iter_mut().zip(x) {
        *o = match kind {
            Activation::Silu => x * sigmoid(x),
            Activation::Relu if x < T::zero() => T::zero(),
            Activation::Relu => x,
        };
    }
}

fn activate_backward<T: Scalar>(kind: Activation, x: &[T], grad_o: &[T], grad_x: &mut [T]) {
    for ((grad_x, &grad_o), &x) in grad_x.iter_mut().zip(grad_o).zip(x) {
        let slope = match kind {
            Activation::Silu => {
                let s = sigmoid(x);
                s * (T::one() + x * (T::one() - s))
            }
            Activation::Relu if x > T::zero() => T::one(),
            Activation::Relu => T::zero(),
        };
        *grad_x = grad_o * slope;
    }
}
