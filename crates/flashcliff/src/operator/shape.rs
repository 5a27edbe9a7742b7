//! Symbolic shapes, and the sizes that they stand for in a call.

use std::fmt;

use crate::{Error, sizes};

/// The largest number of elements of a tensor. It leaves room for workspaces that are a multiple of it.
const MAX_ELEMENTS: usize = isize::MAX as usize >> if usize::BITS == 64 { 20 } else { 8 };

/// The largest number of elements of a tensor for which buffers are counted: so many that no call has them, and so
/// few that a multiple is a number.
pub(super) const MAX_COUNTED: usize = usize::MAX >> 10;

/// An axis of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dim {
    /// A fixed size: blades, grades or paths.
    Fixed(usize),
    /// The batch.
    Batch,
    /// The channels of the input; of the output too unless the operator has [`Dim::Out`].
    In,
    /// The channels of the output.
    Out,
    /// The scalar channels, which some operators have beside the channels.
    Scalars,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Batch => f.write_str("batch"),
            Self::In => f.write_str("in"),
            Self::Out => f.write_str("out"),
            Self::Scalars => f.write_str("scalars"),
        }
    }
}

/// The name and shape of a tensor of an operator. It displays as `x [8, batch, in]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorSpec {
    /// The name of the tensor.
    pub name: &'static str,
    /// The axes of the tensor.
    pub dims: Vec<Dim>,
}

impl TensorSpec {
    pub(crate) fn new(name: &'static str, dims: &[Dim]) -> Self {
        Self {
            name,
            dims: dims.to_vec(),
        }
    }

    /// The shape for given sizes.
    pub fn shape(&self, dims: &Dims) -> Vec<usize> {
        self.sizes(dims).collect()
    }

    /// The axes of [`Self::shape`], without a vector.
    pub(crate) fn sizes(&self, dims: &Dims) -> impl Iterator<Item = usize> + Clone {
        let dims = *dims;
        self.dims.iter().map(move |dim| match *dim {
            Dim::Fixed(size) => size,
            Dim::Batch => dims.batch,
            Dim::In => dims.in_channels,
            Dim::Out => dims.out_channels,
            Dim::Scalars => dims.scalar_channels,
        })
    }

    /// Whether the tensor is a parameter. Data has a batch, parameters have none.
    pub fn is_parameter(&self) -> bool {
        !self.dims.contains(&Dim::Batch)
    }

    fn axes(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        format!("[{}]", dims.join(", "))
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.axes())
    }
}

/// The sizes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// The batch.
    pub batch: usize,
    /// The channels of the input.
    pub in_channels: usize,
    /// The channels of the output. They equal the channels of the input if the operator keeps the number of channels.
    pub out_channels: usize,
    /// The scalar channels; 0 for operators without them.
    pub scalar_channels: usize,
}

/// The sizes that the shapes of all inputs agree on. Allocates only to report an error.
pub(super) fn unify<'s>(
    operator: &str,
    inputs: &[TensorSpec],
    outputs: &[TensorSpec],
    shapes: impl Iterator<Item = &'s [usize]> + Clone,
) -> Result<Dims, Error> {
    let mut known: [Option<usize>; 4] = [None; 4];
    for (spec, shape) in inputs.iter().zip(shapes.clone()) {
        let before = known;
        let fits = spec.dims.len() == shape.len()
            && spec.dims.iter().zip(shape).all(|(dim, &size)| match dim {
                Dim::Fixed(fixed) => *fixed == size,
                Dim::Batch => *known[0].get_or_insert(size) == size,
                Dim::In => *known[1].get_or_insert(size) == size,
                Dim::Out => *known[2].get_or_insert(size) == size,
                Dim::Scalars => *known[3].get_or_insert(size) == size,
            });
        if !fits {
            return Err(Error::ShapeMismatch {
                operator: operator.to_owned(),
                tensor: spec.name.to_owned(),
                expected: expectation(spec, before),
                got: shape.to_vec(),
            });
        }
    }
    let [batch, in_channels, out_channels, scalar_channels] = known;
    let in_channels = in_channels.unwrap_or(0);
    let dims = Dims {
        batch: batch.unwrap_or(0),
        in_channels,
        out_channels: out_channels.unwrap_or(in_channels),
        scalar_channels: scalar_channels.unwrap_or(0),
    };
    match larger(inputs.iter().chain(outputs), &dims, MAX_ELEMENTS) {
        None => Ok(dims),
        Some(spec) => Err(Error::ShapeTooLarge {
            shape: spec.shape(&dims),
        }),
    }
}

/// The first tensor with more elements than that.
pub(super) fn larger<'s>(
    mut tensors: impl Iterator<Item = &'s TensorSpec>,
    dims: &Dims,
    elements: usize,
) -> Option<&'s TensorSpec> {
    tensors.find(|spec| count(spec.sizes(dims)) > elements)
}

/// The number of elements of a shape. An axis of size zero counts as one, because the sizes of buffers are computed for
/// empty tensors too.
fn count(axes: impl Iterator<Item = usize>) -> usize {
    sizes::product(axes.map(|axis| axis.max(1)))
}

/// The axes of a tensor with the sizes that other tensors have settled.
fn expectation(spec: &TensorSpec, known: [Option<usize>; 4]) -> String {
    let dims = spec.dims.iter().map(|dim| {
        let settled = match dim {
            Dim::Fixed(_) => None,
            Dim::Batch => known[0],
            Dim::In => known[1],
            Dim::Out => known[2],
            Dim::Scalars => known[3],
        };
        settled.map_or_else(|| dim.to_string(), |size| format!("{dim} = {size}"))
    });
    format!("[{}]", dims.collect::<Vec<_>>().join(", "))
}
