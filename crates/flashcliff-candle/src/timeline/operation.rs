//! An operation of a step, with what it moves, computes and keeps.

use std::sync::{Arc, LazyLock};

use flashcliff::{Dims, Dtype, Operator, Pass};

/// An operation of a training step. Bytes and operations are a model: each tensor is moved once, and all operations
/// of the operator are done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Operation {
    /// The name of an operator of the core, or of another part of a step.
    pub operator: String,
    /// Whether this crate computes it, with kernels of the core or its own functions. The others are candle's
    /// operations, the optimiser, and what nothing reports.
    pub is_ours: bool,
    /// The algebra, as `cl300`; empty where there is none.
    pub algebra: String,
    /// The pass, where there are two.
    pub phase: Option<Pass>,
    /// The inputs of an operator whose gradients a backward pass computes.
    pub gradients: Vec<&'static str>,
    /// The shapes of the inputs.
    pub shapes: Vec<Vec<usize>>,
    /// The type of the tensors that have a batch.
    pub dtype: Option<Dtype>,
    /// The bytes that are moved at least.
    pub bytes: usize,
    /// The part of the bytes that inputs, output and gradients have: all but the values that one pass saves for the other.
    pub tensor_bytes: usize,
    /// The part of the bytes that parameters and their gradients have.
    pub parameter_bytes: usize,
    /// The bytes that the output of a forward pass holds.
    pub output_bytes: usize,
    /// The floating-point operations, if they are known.
    pub flops: Option<usize>,
    /// Whether most of these operations belong to matrix products.
    pub has_matrix_products: bool,
    /// The bytes that a forward pass makes for the backward pass, besides the output.
    pub saved_bytes: usize,
    /// The bytes of inputs and output that stay for the backward pass, each operation counted by itself.
    pub held_bytes: usize,
}

/// The types of an operation's tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The type of tensors with a batch.
    pub(crate) lanes: Dtype,
    /// The type of parameters.
    pub(crate) params: Dtype,
}

impl Sizes {
    /// One type for all tensors.
    pub(crate) fn of(dtype: Dtype) -> Self {
        Self {
            lanes: dtype,
            params: dtype,
        }
    }
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

impl Operation {
    /// An operation that is not ours, of a name.
    pub(crate) fn other(operator: &str, phase: Option<Pass>) -> Self {
        Self {
            operator: operator.to_owned(),
            phase,
            ..Self::default()
        }
    }

    /// The operation of all time that no other one reports.
    pub fn rest() -> Arc<Self> {
        static REST: LazyLock<Arc<Operation>> =
            LazyLock::new(|| Arc::new(Operation::other("the rest", None)));
        REST.clone()
    }

    /// A pass of an operator. `wanted` says for each input whether its gradient is computed.
    pub(crate) fn of_operator(
        operator: &Operator,
        dims: &Dims,
        sizes: Sizes,
        pass: Pass,
        wanted: &[bool],
    ) -> Self {
        let specs = operator.inputs();
        let shapes: Vec<Vec<usize>> = specs.iter().map(|spec| spec.shape(dims)).collect();
        let inputs: Vec<usize> = specs
            .iter()
            .zip(&shapes)
            .map(|(spec, shape)| {
                let dtype = match spec.is_parameter() {
                    true => sizes.params,
                    false => sizes.lanes,
                };
                elements(shape) * dtype.bytes()
            })
            .collect();
        let output = elements(&operator.output_shape(dims)) * sizes.lanes.bytes();
        let saved = operator.saved_len(dims) * sizes.lanes.arithmetic().bytes();
        let given: usize = inputs.iter().sum();
        let of_parameters = |of: &dyn Fn(usize) -> bool| -> usize {
            let pairs = specs.iter().zip(&inputs).enumerate();
            let own = pairs.filter(|(at, (spec, _))| spec.is_parameter() && of(*at));
            own.map(|(_, (_, bytes))| bytes).sum()
        };
        let cost = operator.cost(dims);
        let is_wanted = |at: usize| wanted.get(at) == Some(&true);
        let gradients = specs.iter().enumerate().filter(|(at, _)| is_wanted(*at));
        let gradients: Vec<&'static str> = gradients.map(|(_, spec)| spec.name).collect();
        let is_kept = wanted.contains(&true);
        let base = Self {
            is_ours: true,
            algebra: operator.algebra().name(),
            shapes,
            dtype: Some(sizes.lanes),
            has_matrix_products: operator.has_matrix_products(),
            ..Self::other(operator.name(), Some(pass))
        };
        match pass {
            Pass::Forward => Self {
                bytes: given + output + saved,
                tensor_bytes: given + output,
                parameter_bytes: of_parameters(&|_| true),
                output_bytes: output,
                flops: Some(cost.forward),
                saved_bytes: if is_kept { saved } else { 0 },
                held_bytes: if is_kept { given + output } else { 0 },
                ..base
            },
            Pass::Backward => {
                let written = inputs.iter().enumerate();
                let written = written.filter(|(at, _)| is_wanted(*at));
                let written: usize = written.map(|(_, bytes)| bytes).sum();
                Self {
                    gradients,
                    bytes: given + output + saved + written,
                    tensor_bytes: given + output + written,
                    parameter_bytes: of_parameters(&|_| true) + of_parameters(&is_wanted),
                    flops: Some(cost.backward),
                    ..base
                }
            }
        }
    }

    /// A pass of a function from tensors of some shapes to one of another. A backward pass reads what a forward pass
    /// does and the gradient of the output, and writes gradients as large as the inputs that are `wanted`.
    pub(crate) fn of_function(
        name: &str,
        shapes: &[Vec<usize>],
        output: &[usize],
        dtype: Dtype,
        pass: Pass,
        wanted: &[bool],
    ) -> Self {
        let bytes = |shape: &[usize]| elements(shape) * dtype.bytes();
        let given: usize = shapes.iter().map(|shape| bytes(shape)).sum();
        let pairs = shapes.iter().zip(wanted).filter(|(_, wanted)| **wanted);
        let written: usize = pairs.map(|(shape, _)| bytes(shape)).sum();
        let output = bytes(output);
        let is_kept = wanted.contains(&true);
        let moved = match pass {
            Pass::Forward => given + output,
            Pass::Backward => given + output + written,
        };
        Self {
            is_ours: true,
            // A function may have hundreds of parameters, which come after what they are applied to.
            shapes: shapes.first().cloned().into_iter().collect(),
            dtype: Some(dtype),
            bytes: moved,
            tensor_bytes: moved,
            output_bytes: match pass {
                Pass::Forward => output,
                Pass::Backward => 0,
            },
            held_bytes: match pass {
                Pass::Forward if is_kept => given + output,
                _ => 0,
            },
            ..Self::other(name, Some(pass))
        }
    }

    /// The same operation with a number of floating-point operations.
    pub(crate) fn with_flops(self, flops: usize) -> Self {
        Self {
            flops: Some(flops),
            ..self
        }
    }
}

/// A pass of candle's graph, without the nodes of this crate in it.
pub(crate) fn graph_pass(pass: Pass) -> Arc<Operation> {
    static PASSES: LazyLock<[Arc<Operation>; 2]> = LazyLock::new(|| {
        let pass = |pass| Arc::new(Operation::other("candle's operations", Some(pass)));
        [pass(Pass::Forward), pass(Pass::Backward)]
    });
    let [forward, backward] = &*PASSES;
    match pass {
        Pass::Forward => forward.clone(),
        Pass::Backward => backward.clone(),
    }
}
