//! The maps of rotors, composed of candle's operations.
//!
//! * `maps` - the maps of multivectors.
//! * `ring` - functions of a scalar and a 4-vector.
//! * `parts` - products, blade by blade.
//! * `action` - the layer of versors, by the core's sandwich and a matrix product.

mod action;
mod maps;
mod parts;
mod ring;

use std::sync::Arc;

use candle_core::{DType, Tensor};
use flashcliff::rotor::RotorMap;

use super::OnGpu;
use crate::Error;
use crate::op::function::{Array, Function};
use crate::op::node::Argument;
use crate::op::rotor::{Act, Interpolate, MapOne};

impl OnGpu for MapOne {
    fn apply_on_gpu(self: &Arc<Self>, arguments: &[Argument]) -> Result<Tensor, Error> {
        output_shape(&**self, arguments)?;
        let x = arguments[0].seen()?;
        let cayley = self.algebra.cayley();
        let from = wide(&x)?;
        let computed = match self.map {
            RotorMap::Exp => maps::exp(cayley, &from)?,
            RotorMap::Log => maps::log(cayley, &from)?,
            RotorMap::Inverse => maps::inverse(cayley, 0, &from)?,
            RotorMap::InverseOdd => maps::inverse(cayley, 1, &from)?,
            RotorMap::Normalized => maps::normalized(cayley, 0, &from)?,
            RotorMap::NormalizedOdd => maps::normalized(cayley, 1, &from)?,
            other => {
                let name = other.name();
                let message = format!("{name}: expected a map that is composed on GPUs");
                return Err(candle_core::Error::Msg(message).into());
            }
        };
        Ok(computed.to_dtype(x.dtype())?)
    }
}

impl OnGpu for Interpolate {
    fn apply_on_gpu(self: &Arc<Self>, arguments: &[Argument]) -> Result<Tensor, Error> {
        output_shape(&**self, arguments)?;
        let [a, b, t] = [0, 1, 2].map(|at| arguments[at].seen());
        let (a, b, t) = (a?, b?, t?);
        let cayley = self.algebra.cayley();
        let parity = self.parity as usize;
        let computed = maps::interpolate(cayley, parity, &wide(&a)?, &wide(&b)?, &wide(&t)?)?;
        Ok(computed.to_dtype(a.dtype())?)
    }
}

impl OnGpu for Act {
    fn apply_on_gpu(self: &Arc<Self>, arguments: &[Argument]) -> Result<Tensor, Error> {
        output_shape(&**self, arguments)?;
        let [x, versors, weight] = [0, 1, 2].map(|at| arguments[at].seen());
        action::action(self, &x?, &versors?, &weight?)
    }
}

/// The shape of the result, after the function's own check of the inputs' shapes.
fn output_shape(
    function: &impl Function<f32>,
    arguments: &[Argument],
) -> Result<Vec<usize>, Error> {
    let shapes = arguments.iter().map(Argument::shape);
    let arrays: Vec<Array<f32>> = shapes.map(|shape| Array { data: &[], shape }).collect();
    function.output_shape(&arrays)
}

/// Half precision is computed in single precision.
fn wide(x: &Tensor) -> candle_core::Result<Tensor> {
    match x.dtype() {
        DType::F64 => Ok(x.clone()),
        _ => x.to_dtype(DType::F32),
    }
}

#[cfg(test)]
mod tests;
