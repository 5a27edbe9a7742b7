//! A network with its error as a fixed list of operations.

use std::sync::Arc;

use candle_core::Tensor;
use candle_nn::Linear;
use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, Dims, Dtype, GradeSet, Operator};

use super::blocks::Blocks;
use crate::Error;

/// A value of a plan, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueId(pub(super) usize);

/// The holder of a value.
#[derive(Clone, Debug)]
pub(super) enum Holder {
    /// A tensor of the batch, by its place there.
    Batch(usize),
    /// A parameter, by its place among those of the plan.
    Parameter(usize),
    /// A buffer of the plan.
    Buffer,
}

#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) holder: Holder,
    /// The number of elements.
    pub(super) len: usize,
    /// Whether the value depends on a parameter.
    pub(super) tracked: bool,
    /// Whether the value has the type of the model even where features have another: the prediction, what linear maps make it of, and a
    /// parameter in another order.
    pub(super) wide: bool,
    /// Whether the value is a parameter in another order. Operators take it beside features of another type.
    of_parameter: bool,
}

impl Value {
    /// The place of the gradient in the buffer that it shares with others: that of the features, or that of the model if it has another type.
    pub(super) fn gradient_place(&self, dtypes: [Dtype; 2]) -> usize {
        usize::from(self.wide && dtypes[0] != dtypes[1])
    }
}

/// The first elements of a value, in a shape.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) value: ValueId,
    pub(super) shape: Vec<usize>,
}

impl Operand {
    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A function between the linear maps of a perceptron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `max(x, 0)`.
    Relu,
}

/// The work of a node.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Points as multivectors of grades 0 and 1.
    Points,
    /// An operator of the core.
    Operator(Arc<Operator>, Dims),
    /// The Euclidean norm over blades.
    Norm,
    /// An activation.
    Activation(Activation),
    /// The sum of the inputs times a number.
    ScaledSum(f64),
    /// One blade of an input `[blades, rows, channels]`.
    Blade(usize),
    /// An input of three axes with its axes in reverse order.
    ReverseAxes,
}

/// An operation.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) work: Work,
    pub(super) inputs: Vec<Operand>,
    pub(super) output: Operand,
}

/// The use that the backward pass of a node makes of the gradient of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Nothing.
    No,
    /// It writes the gradient of a value.
    Written,
    /// It adds to the gradient of a value.
    Added,
    /// It writes the gradient of a parameter.
    Parameter(usize),
}

/// Makes a plan.
#[derive(Debug)]
pub(crate) struct Builder {
    rows: usize,
    values: Vec<Value>,
    nodes: Vec<Node>,
    parameters: Vec<Tensor>,
    /// The first node of each block.
    blocks: Vec<usize>,
}

/// A network with its mean squared error, for batches of a fixed number of rows: the operations in order, and where the
/// backward pass leaves each gradient.
///
/// A gradient that several operations contribute to is written by the first of them and added to by the others. **No
/// gradient is cleared first, and none is summed in a buffer of its own.** Gradients share buffers: one is free again
/// once the operation that made its value has read it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) rows: usize,
    pub(super) values: Vec<Value>,
    pub(super) nodes: Vec<Node>,
    /// The parameters in the order of their first use.
    pub(super) parameters: Vec<Tensor>,
    pub(super) prediction: ValueId,
    /// The place of the targets in the batch.
    pub(super) targets: usize,
    /// For each node what happens to the gradients of its inputs.
    pub(super) wanted: Vec<Vec<Wanted>>,
    /// For each value the buffer of its gradient.
    pub(super) gradient_of: Vec<Option<usize>>,
    /// The lengths of the buffers of gradients.
    pub(super) buffers: Vec<usize>,
    /// The memory of values.
    pub(super) blocks: Blocks,
}

impl Builder {
    /// A plan for batches of so many rows.
    pub(crate) fn new(rows: usize) -> Self {
        Self {
            rows,
            values: Vec::new(),
            nodes: Vec::new(),
            parameters: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Begins a block of the network. With gradient checkpointing, values that one block alone reads share memory with those of other
    /// blocks, and are computed again in the backward pass. Without this call a network is one block.
    pub(crate) fn block(&mut self) {
        self.blocks.push(self.nodes.len());
    }

    /// The shape of a value of multivectors in an algebra.
    pub(crate) fn lanes(&self, algebra: Algebra, channels: usize) -> Vec<usize> {
        vec![algebra.blade_count(), self.rows, channels]
    }

    fn value(&mut self, holder: Holder, len: usize, tracked: bool) -> ValueId {
        self.values.push(Value {
            holder,
            len,
            tracked,
            wide: false,
            of_parameter: false,
        });
        ValueId(self.values.len() - 1)
    }

    /// The points of the batch, `[rows, points, dim]`, as multivectors of grades 0 and 1. The result has at least `room` elements; those after
    /// these grades are 0.
    pub(crate) fn points(&mut self, points: usize, dim: usize, room: usize) -> ValueId {
        let shape = vec![self.rows, points, dim];
        let len = shape.iter().product();
        let value = self.value(Holder::Batch(0), len, false);
        let output = vec![dim + 1, self.rows, points];
        self.push(Work::Points, vec![Operand { value, shape }], output, room)
    }

    /// The norm over the blades of a value `[blades, rows, channels]`: `[1, rows, channels]`.
    pub(crate) fn norm(&mut self, x: ValueId, blades: usize, channels: usize) -> ValueId {
        let shape = vec![blades, self.rows, channels];
        let output = vec![1, self.rows, channels];
        self.push(Work::Norm, vec![Operand { value: x, shape }], output, 0)
    }

    /// An activation of a value `[1, rows, channels]`.
    pub(crate) fn activation(&mut self, x: ValueId, channels: usize, kind: Activation) -> ValueId {
        let shape = vec![1, self.rows, channels];
        let output = shape.clone();
        let inputs = vec![Operand { value: x, shape }];
        self.push(Work::Activation(kind), inputs, output, 0)
    }

    /// `scale (x + y)` of two values of one shape.
    pub(crate) fn scaled_sum(
        &mut self,
        [x, y]: [ValueId; 2],
        shape: Vec<usize>,
        scale: f64,
    ) -> ValueId {
        let operand = |value| Operand {
            value,
            shape: shape.clone(),
        };
        let inputs = vec![operand(x), operand(y)];
        self.push(Work::ScaledSum(scale), inputs, shape, 0)
    }

    /// One blade of a value `[blades, rows, channels]`: `[1, rows, channels]`.
    pub(crate) fn blade(
        &mut self,
        x: ValueId,
        [blades, channels]: [usize; 2],
        at: usize,
    ) -> ValueId {
        let shape = vec![blades, self.rows, channels];
        let output = vec![1, self.rows, channels];
        self.push(
            Work::Blade(at),
            vec![Operand { value: x, shape }],
            output,
            0,
        )
    }

    /// A parameter `[first, middle, last]` with its axes in reverse order.
    ///
    /// # Errors
    /// A tensor of another number of axes.
    pub(crate) fn reverse_axes(&mut self, tensor: &Tensor) -> Result<ValueId, Error> {
        let (first, middle, last) = tensor.dims3()?;
        let value = self.parameter(tensor);
        let shape = vec![first, middle, last];
        let output = vec![last, middle, first];
        let reversed = self.push(Work::ReverseAxes, vec![Operand { value, shape }], output, 0);
        let value = &mut self.values[reversed.0];
        (value.wide, value.of_parameter) = (true, true);
        Ok(reversed)
    }

    /// A linear map of the first blade of a value.
    ///
    /// # Errors
    /// A weight that is no matrix; the errors of the core.
    pub(crate) fn linear(
        &mut self,
        algebra: Algebra,
        x: ValueId,
        linear: &Linear,
    ) -> Result<ValueId, Error> {
        let channels = linear.weight().dims2()?.1;
        let bias = match linear.bias() {
            Some(_) => Bias::Scalar,
            None => Bias::None,
        };
        let options = LinearOptions::default()
            .with_per_grade(false)
            .with_bias(bias)
            .with_grades(GradeSet::single(0));
        let operator = Arc::new(ops::mv_linear(algebra, &options)?);
        let mut parameters = vec![(linear.weight(), linear.weight().dims().to_vec())];
        if let Some(bias) = linear.bias() {
            parameters.push((bias, bias.dims().to_vec()));
        }
        let shape = vec![1, self.rows, channels];
        self.operator(&operator, &[(x, shape)], &parameters, 0)
    }

    /// An operator of the core, whose inputs are some values and then some parameters, each with the shape in which the
    /// operator sees it. Values made of parameters come behind the values of rows. The result has at least `room` elements; those after the output are 0.
    ///
    /// # Errors
    /// Shapes that do not fit the operator.
    pub(crate) fn operator(
        &mut self,
        operator: &Arc<Operator>,
        values: &[(ValueId, Vec<usize>)],
        parameters: &[(&Tensor, Vec<usize>)],
        room: usize,
    ) -> Result<ValueId, Error> {
        let mut inputs: Vec<Operand> = values
            .iter()
            .map(|(value, shape)| Operand {
                value: *value,
                shape: shape.clone(),
            })
            .collect();
        for (tensor, shape) in parameters {
            let value = self.parameter(tensor);
            let shape = shape.clone();
            inputs.push(Operand { value, shape });
        }
        // The tensors of the core have their axes in the order of its inputs; values may come after parameters there.
        let order = order(operator);
        let inputs: Vec<Operand> = order.into_iter().map(|at| inputs[at].clone()).collect();
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| &input.shape[..]).collect();
        let dims = operator.bind(&shapes)?;
        let output = operator.output_shape(&dims);
        let work = Work::Operator(operator.clone(), dims);
        Ok(self.push(work, inputs, output, room))
    }

    fn parameter(&mut self, tensor: &Tensor) -> ValueId {
        let known = self
            .parameters
            .iter()
            .position(|known| known.id() == tensor.id());
        let at = known.unwrap_or_else(|| {
            self.parameters.push(tensor.clone());
            self.parameters.len() - 1
        });
        self.value(Holder::Parameter(at), tensor.elem_count(), true)
    }

    fn push(
        &mut self,
        work: Work,
        inputs: Vec<Operand>,
        shape: Vec<usize>,
        room: usize,
    ) -> ValueId {
        let tracked = inputs
            .iter()
            .any(|input| self.values[input.value.0].tracked);
        let len = shape.iter().product::<usize>().max(room);
        let value = self.value(Holder::Buffer, len, tracked);
        let output = Operand { value, shape };
        self.nodes.push(Node {
            work,
            inputs,
            output,
        });
        value
    }

    /// The plan that ends with the mean squared error of a prediction, whose targets are the second tensor of the batch.
    /// `None` if gradients would have to be summed in other ways than a plan can.
    pub(crate) fn finish(self, prediction: ValueId) -> Option<Plan> {
        let mut uses = vec![0; self.parameters.len()];
        let lens = self.values.iter().map(|value| value.len).collect();
        let mut plan = Plan {
            blocks: Blocks::new(self.blocks, lens, self.nodes.len()),
            rows: self.rows,
            gradient_of: vec![None; self.values.len()],
            wanted: Vec::with_capacity(self.nodes.len()),
            values: self.values,
            nodes: self.nodes,
            parameters: self.parameters,
            prediction,
            targets: 1,
            buffers: Vec::new(),
        };
        if plan.values[prediction.0].len != plan.rows || !plan.values[prediction.0].tracked {
            return None;
        }
        plan.widen();
        let mut free: Vec<usize> = Vec::new();
        plan.take(prediction, &mut free);
        for at in (0..plan.nodes.len()).rev() {
            let node = plan.nodes[at].clone();
            let mut wanted = Vec::with_capacity(node.inputs.len());
            for (place, input) in node.inputs.iter().enumerate() {
                let value = &plan.values[input.value.0];
                let output = &plan.values[node.output.value.0];
                wanted.push(match value.holder {
                    _ if !value.tracked || !output.tracked => Wanted::No,
                    Holder::Batch(_) => Wanted::No,
                    Holder::Parameter(parameter) => {
                        uses[parameter] += 1;
                        Wanted::Parameter(parameter)
                    }
                    Holder::Buffer if plan.gradient_of[input.value.0].is_none() => {
                        plan.take(input.value, &mut free);
                        Wanted::Written
                    }
                    // An operator adds to the gradient of its first input, and there only once.
                    Holder::Buffer if place == 0 && adds(&node) => Wanted::Added,
                    Holder::Buffer => return None,
                });
            }
            // The gradient of a value without use would never be written.
            if plan.values[node.output.value.0].tracked {
                free.push(plan.gradient_of[node.output.value.0]?);
            }
            plan.wanted.push(wanted);
        }
        plan.wanted.reverse();
        uses.iter().all(|&uses| uses == 1).then_some(plan)
    }
}

impl Plan {
    /// Marks the values of the type of the model: the prediction, from which targets are subtracted, and all that shares an operator with such
    /// a value, since the values of an operator have one type. Norms and activations change the type.
    fn widen(&mut self) {
        self.values[self.prediction.0].wide = true;
        let mut changed = true;
        while changed {
            changed = false;
            for node in self.nodes.iter().rev() {
                if !matches!(node.work, Work::Operator(..)) {
                    continue;
                }
                let ends = node.inputs.iter().chain([&node.output]);
                let own: Vec<usize> = ends
                    .map(|operand| operand.value.0)
                    .filter(|&value| {
                        let value = &self.values[value];
                        matches!(value.holder, Holder::Buffer) && !value.of_parameter
                    })
                    .collect();
                let wide = own.iter().filter(|&&value| self.values[value].wide).count();
                if wide > 0 && wide < own.len() {
                    own.iter().for_each(|&value| self.values[value].wide = true);
                    changed = true;
                }
            }
        }
    }

    /// Gives the gradient of a value the smallest free buffer that is large enough, or a new one.
    fn take(&mut self, value: ValueId, free: &mut Vec<usize>) {
        let len = self.values[value.0].len;
        let fits = (0..free.len()).filter(|&at| self.buffers[free[at]] >= len);
        let best = fits.min_by_key(|&at| self.buffers[free[at]]);
        let buffer = match best {
            Some(at) => free.swap_remove(at),
            None => {
                self.buffers.push(len);
                self.buffers.len() - 1
            }
        };
        self.gradient_of[value.0] = Some(buffer);
    }
}

/// Whether the backward pass of a node can add to the gradient of its first input.
fn adds(node: &Node) -> bool {
    match &node.work {
        Work::Operator(operator, _) => operator.adds_to_gradient(),
        Work::Points
        | Work::Norm
        | Work::Activation(_)
        | Work::ScaledSum(_)
        | Work::Blade(_)
        | Work::ReverseAxes => false,
    }
}

/// The places of an operator's inputs in a list of those with rows and then those without.
fn order(operator: &Operator) -> Vec<usize> {
    let has_rows = |spec: &flashcliff::TensorSpec| spec.dims.contains(&flashcliff::Dim::Batch);
    let specs = operator.inputs().iter();
    let (mut value, mut parameter) = (0, specs.filter(|spec| has_rows(spec)).count());
    let place = |spec: &flashcliff::TensorSpec| {
        let next = match has_rows(spec) {
            true => &mut value,
            false => &mut parameter,
        };
        *next += 1;
        *next - 1
    };
    operator.inputs().iter().map(place).collect()
}
