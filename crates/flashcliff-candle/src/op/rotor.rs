//! The maps of rotors as functions.

use flashcliff::rotor::{
    Action, ActionGradients, InterpolationGradients, Parity, RotorMap, Rotors,
};
use flashcliff::{Algebra, GradeSet, TensorMut};
use flashcliff_network::scratch::Buffer;

use super::Scalar;
use super::function::{Array, Function, Slots};
use crate::Error;

/// A map of one multivector.
#[derive(Debug)]
pub(crate) struct MapOne {
    pub(crate) algebra: Algebra,
    pub(crate) rotors: Rotors,
    pub(crate) map: RotorMap,
}

impl MapOne {
    pub(crate) fn new(algebra: Algebra, map: RotorMap) -> Result<Self, Error> {
        let rotors = Rotors::new(algebra)?;
        Ok(Self {
            algebra,
            rotors,
            map,
        })
    }
}

impl<T: Scalar> Function<T> for MapOne {
    type Saved = ();

    fn name(&self) -> &str {
        self.map.name()
    }

    fn arity(&self) -> usize {
        1
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let [reads, writes] = self.rotors.blade_counts(self.map);
        let [batch, channels] = items(self.map.name(), "x", reads, inputs[0].shape)?;
        Ok(vec![writes, batch, channels])
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T], _: &[bool]) -> Result<(), Error> {
        let shape = self.output_shape(inputs)?;
        let out = TensorMut::new(output, &shape)?;
        Ok(self.rotors.map(self.map, inputs[0].tensor()?, out)?)
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        _: Array<T>,
        (): &(),
        grad_output: Array<T>,
        mut slots: Slots<T>,
    ) -> Result<(), Error> {
        let Some(out) = made(slots[0].take(), inputs[0].shape)? else {
            return Ok(());
        };
        let (x, grad) = (inputs[0].tensor()?, grad_output.tensor()?);
        Ok(self.rotors.gradient(self.map, x, grad, out)?)
    }
}

/// The versor between two.
///
/// Inputs: `a` and `b` `[blades of the parity, batch, channels]`, `t` `[batch, channels]`.
#[derive(Debug)]
pub(crate) struct Interpolate {
    pub(crate) algebra: Algebra,
    pub(crate) rotors: Rotors,
    pub(crate) parity: Parity,
}

impl Interpolate {
    pub(crate) fn new(algebra: Algebra, parity: Parity) -> Result<Self, Error> {
        let rotors = Rotors::new(algebra)?;
        Ok(Self {
            algebra,
            rotors,
            parity,
        })
    }
}

impl<T: Scalar> Function<T> for Interpolate {
    type Saved = ();

    fn name(&self) -> &str {
        "interpolate"
    }

    fn arity(&self) -> usize {
        3
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let blades = self.rotors.versor_blades(self.parity);
        let rest = items("interpolate", "a", blades, inputs[0].shape)?;
        if inputs[1].shape != inputs[0].shape {
            let expected = format!("{:?}", inputs[0].shape);
            return Err(shape("interpolate", "b", expected, inputs[1].shape));
        }
        if inputs[2].shape != rest {
            let expected = format!("{rest:?}");
            return Err(shape("interpolate", "t", expected, inputs[2].shape));
        }
        Ok(inputs[0].shape.to_vec())
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T], _: &[bool]) -> Result<(), Error> {
        let out = TensorMut::new(output, inputs[0].shape)?;
        let ends = [inputs[0].tensor()?, inputs[1].tensor()?];
        let t = inputs[2].tensor()?;
        Ok(self.rotors.interpolate(self.parity, ends, t, out)?)
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        _: Array<T>,
        (): &(),
        grad_output: Array<T>,
        mut slots: Slots<T>,
    ) -> Result<(), Error> {
        let [a, b, t] = [0, 1, 2].map(|at| slots[at].take());
        let outs = InterpolationGradients {
            a: made(a, inputs[0].shape)?,
            b: made(b, inputs[1].shape)?,
            t: made(t, inputs[2].shape)?,
        };
        let ends = [inputs[0].tensor()?, inputs[1].tensor()?];
        let (t, grad) = (inputs[2].tensor()?, grad_output.tensor()?);
        let rotors = &self.rotors;
        Ok(rotors.interpolate_gradient(self.parity, ends, t, grad, outs)?)
    }
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
fn items(name: &str, input: &str, blades: usize, got: &[usize]) -> Result<[usize; 2], Error> {
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

fn shape(name: &str, input: &str, expected: String, got: &[usize]) -> Error {
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
