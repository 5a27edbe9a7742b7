//! The maps of rotors as operators, and the layer of versors as a function.

use std::sync::Arc;

use candle_core::{DType, Tensor};
use flashcliff::rotor::{Action, ActionGradients, Parity};
use flashcliff::{Algebra, GradeSet, Operator, TensorMut};
use flashcliff_network::scratch::Buffer;

use super::Scalar;
use super::function::{Array, Function, Slots};
use super::node::{self, Argument};
use super::once::entering;
use crate::Error;

/// The fewest lanes of a row that vectors of a CPU are used for well.
const LONG_ROW: usize = 256;

/// Tensors of one type in `f64`, in which the operators of maps compute.
pub(crate) fn in_f64<const N: usize>(
    name: &str,
    inputs: [&Tensor; N],
) -> Result<[Tensor; N], Error> {
    let dtype = inputs[0].dtype();
    let mut wide = inputs.map(Tensor::clone);
    for (input, x) in wide.iter_mut().enumerate() {
        if x.dtype() != dtype || !dtype.is_float() {
            return Err(Error::InputType {
                operator: name.to_owned(),
                input,
                expected: "F32, F64, BF16 or F16, that of input 0",
                got: x.dtype(),
            });
        }
        if dtype != DType::F64 {
            *x = entering(x)?.to_dtype(DType::F64)?;
        }
    }
    Ok(wide)
}

/// Applies the operator of a map to items. It sees rows that are long, if the batch can be cut so.
pub(crate) fn apply(
    operator: Operator,
    inputs: &[&Tensor],
    [batch, channels]: [usize; 2],
) -> Result<Tensor, Error> {
    let most = batch * channels / LONG_ROW;
    let mut counts = (1..=most.min(batch)).rev();
    let rows = counts.find(|count| batch.is_multiple_of(*count));
    let rows = rows.unwrap_or(1);
    let columns = batch / rows * channels;
    let blades = |x: &Tensor| if x.rank() == 3 { x.dims()[0] } else { 1 };
    let shapes = inputs.iter().map(|x| [blades(x), rows, columns]);
    let shapes: Vec<[usize; 3]> = shapes.collect();
    let arguments = inputs.iter().zip(&shapes);
    let arguments: Vec<Argument> = arguments
        .map(|(x, shape)| Argument::shaped(x, shape))
        .collect();
    let found = node::apply(&Arc::new(operator), &arguments)?;
    Ok(found.reshape((found.dim(0)?, batch, channels))?)
}

/// A layer of versors.
///
/// Inputs: `x` `[blades of grades, batch, in]`, `versors` `[blades of the parity, out, in]`, `weight` `[out, in]`.
#[derive(Debug)]
pub(crate) struct Act {
    pub(crate) algebra: Algebra,
    pub(crate) action: Action,
    pub(crate) parity: Parity,
    /// The grades of multivectors.
    pub(crate) grades: GradeSet,
}

impl Act {
    pub(crate) fn new(
        algebra: Algebra,
        parity: Parity,
        grades: Option<GradeSet>,
    ) -> Result<Self, Error> {
        Ok(Self {
            algebra,
            action: Action::new(algebra, parity, grades)?,
            parity,
            grades: grades.unwrap_or(GradeSet::full(algebra.signature().dim())),
        })
    }
}

impl<T: Scalar> Function<T> for Act {
    type Saved = ();

    fn name(&self) -> &str {
        "action"
    }

    fn arity(&self) -> usize {
        3
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let [versor, blades] = self.action.blade_counts();
        let [batch, input] = items("action", "x", blades, inputs[0].shape)?;
        match *inputs[1].shape {
            [count, out, columns] if count == versor && columns == input => {
                if inputs[2].shape != [out, input] {
                    let expected = format!("[{out}, {input}]");
                    return Err(shape("action", "weight", expected, inputs[2].shape));
                }
                Ok(vec![blades, batch, out])
            }
            _ => {
                let expected = format!("[{versor}, out, in = {input}]");
                Err(shape("action", "versors", expected, inputs[1].shape))
            }
        }
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T], _: &[bool]) -> Result<(), Error> {
        let shape = self.output_shape(inputs)?;
        let mut workspace = self.workspace(inputs)?;
        self.action.forward(
            inputs[0].tensor()?,
            inputs[1].tensor()?,
            inputs[2].tensor()?,
            &mut workspace,
            TensorMut::new(output, &shape)?,
        )?;
        Ok(())
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        _: Array<T>,
        (): &(),
        grad_output: Array<T>,
        mut slots: Slots<T>,
    ) -> Result<(), Error> {
        let mut workspace = self.workspace(inputs)?;
        let [x, versors, weight] = [0, 1, 2].map(|at| slots[at].take());
        let outs = ActionGradients {
            x: made(x, inputs[0].shape)?,
            versors: made(versors, inputs[1].shape)?,
            weight: made(weight, inputs[2].shape)?,
        };
        self.action.backward(
            inputs[0].tensor()?,
            inputs[1].tensor()?,
            inputs[2].tensor()?,
            grad_output.tensor()?,
            &mut workspace,
            outs,
        )?;
        Ok(())
    }
}

impl Act {
    fn workspace<T: Scalar>(&self, inputs: &[Array<T>]) -> Result<Buffer<T>, Error> {
        let sizes = inputs[2].shape;
        Ok(Buffer::take(self.action.workspace_len(sizes[0], sizes[1])?))
    }
}

/// The batch and the channels of multivectors.
pub(crate) fn items(
    name: &str,
    input: &str,
    blades: usize,
    got: &[usize],
) -> Result<[usize; 2], Error> {
    match *got {
        [first, batch, channels] if first == blades => Ok([batch, channels]),
        _ => Err(shape(
            name,
            input,
            format!("[{blades}, batch, channels]"),
            got,
        )),
    }
}

pub(crate) fn shape(name: &str, input: &str, expected: String, got: &[usize]) -> Error {
    Error::Shape {
        tensor: format!("{name}: `{input}`"),
        expected,
        got: got.to_vec(),
    }
}

fn made<'a, T: Scalar>(
    data: Option<&'a mut [T]>,
    shape: &[usize],
) -> Result<Option<TensorMut<'a, T>>, Error> {
    Ok(match data {
        Some(data) => Some(TensorMut::new(data, shape)?),
        None => None,
    })
}
