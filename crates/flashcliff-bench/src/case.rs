//! A case: an operator of the table at a size, and the passes to time.

use cayley::Signature;
use flashcliff::ops;
use flashcliff::{Algebra, Dims, Dtype, Operator, Pass};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::selection::square;

/// The passes that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passes {
    /// The forward pass alone.
    Forward,
    /// The forward pass, and the backward pass with the gradients of all inputs.
    Both,
}

impl Passes {
    /// Both values.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Both];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Both => "forward+backward",
        }
    }

    /// The number of calls of the library.
    pub fn calls(self) -> usize {
        match self {
            Self::Forward => 1,
            Self::Both => 2,
        }
    }
}

/// Who has the memory of the tensors that a call writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The caller, as with `out=` in other languages: output, gradients and workspaces are given, and used again by the next call.
    Given,
    /// The call, which makes new tensors each time: `evaluate` and `gradients`.
    Made,
}

/// An operator of the table, with the defaults of its options, at a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The name in the table.
    pub operator: &'static str,
    /// The algebra.
    pub signature: Signature,
    /// Whether the operator is interpreted although its algebra is compiled.
    pub is_interpreted: bool,
    /// Who has the memory of what is written.
    pub form: Form,
    /// The type of all tensors.
    pub dtype: Dtype,
    /// The passes.
    pub passes: Passes,
    /// The batch and the channels.
    pub dims: Dims,
}

impl Case {
    /// The name in reports. A name without a type is of f32.
    pub fn name(&self) -> String {
        let way = if self.is_interpreted {
            " interpreted"
        } else {
            ""
        };
        let form = match self.form {
            Form::Given => "",
            Form::Made => " allocating",
        };
        let algebra = self.signature.name();
        let Dims {
            batch,
            in_channels,
            out_channels,
            // Operators of the table have none.
            scalar_channels: _,
        } = self.dims;
        let out = match in_channels == out_channels {
            true => String::new(),
            false => format!("->{out_channels}"),
        };
        let dtype = match self.dtype {
            Dtype::F32 => String::new(),
            dtype => format!(" {dtype}"),
        };
        let passes = self.passes.name();
        format!(
            "{}{way} {algebra} {batch}x{in_channels}{out}{dtype}{form} {passes}",
            self.operator
        )
    }

    /// An operator as it usually runs, with memory of the caller.
    pub fn new(
        operator: &'static str,
        signature: Signature,
        dtype: Dtype,
        passes: Passes,
        dims: Dims,
    ) -> Self {
        Self {
            operator,
            signature,
            is_interpreted: false,
            form: Form::Given,
            dtype,
            passes,
            dims,
        }
    }

    /// A call on a single multivector, with next to no work.
    pub(crate) fn tiny() -> Self {
        let (space, dims) = (Signature::of(3, 0, 0), square(1, 1));
        Self::new("reverse", space, Dtype::F32, Passes::Forward, dims)
    }

    /// Whether both cases have the same tensors: they differ in their passes at most.
    pub fn has_tensors_of(&self, other: &Self) -> bool {
        let passes = other.passes;
        *other
            == Self {
                passes,
                ..self.clone()
            }
    }

    /// The operator, bound to the algebra.
    ///
    /// # Errors
    /// A variable with an invalid value.
    pub fn bind(&self) -> Result<Operator, Error> {
        let algebra = match self.is_interpreted {
            true => Algebra::interpreted(self.signature)?,
            false => Algebra::new(self.signature)?,
        };
        Ok(ops::by_name(algebra, self.operator, &[])?)
    }

    /// The bytes that are held at once to measure the case: all tensors and buffers twice, and the floor.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn memory(&self) -> Result<u128, Error> {
        let operator = self.bind()?;
        let elements = |shape: Vec<usize>| shape.iter().map(|&axis| axis as u128).product::<u128>();
        let inputs = operator.inputs().iter();
        let inputs: u128 = inputs.map(|spec| elements(spec.shape(&self.dims))).sum();
        let output = elements(operator.output_shape(&self.dims));
        let tensors = 2 * inputs + 2 * output;
        let floor = 3 * inputs + 2 * output;
        if tensors > 1 << 56 {
            // The library counts buffers in usize.
            return Ok((2 * tensors + floor) * self.dtype.bytes() as u128);
        }
        let workspace = |pass| match self.dtype.arithmetic() {
            Dtype::F64 => operator.workspace_len::<f64>(&self.dims, pass),
            _ => operator.workspace_len::<f32>(&self.dims, pass),
        };
        let workspace = workspace(Pass::Forward).max(workspace(Pass::Backward));
        let buffers = operator.saved_len(&self.dims) as u128 + workspace as u128;
        Ok((2 * (tensors + buffers) + floor) * self.dtype.bytes() as u128)
    }
}
