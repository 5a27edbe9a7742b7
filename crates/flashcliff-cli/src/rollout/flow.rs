//! The network as a function of bodies.

use std::array::from_fn;
use std::slice::ChunksExact;

use crate::error::Error;
use crate::train::{Trained, predictions};
use candle_core::{DType, Device};
use flashcliff_candle::models::Model;

/// A place in a space of `D` dimensions.
pub(super) type Vector<const D: usize> = [f64; D];

/// A trained network that moves bodies by one step.
#[derive(Debug)]
pub(super) struct Flow {
    model: Model,
    dtype: DType,
    device: Device,
}

impl Flow {
    /// The network with its weights in `f32` or `f64`, on a device.
    ///
    /// # Errors
    /// Weights that do not fit.
    pub(super) fn new(trained: &Trained, dtype: DType, device: Device) -> Result<Self, Error> {
        Ok(Self {
            model: trained.model(dtype, &device)?,
            dtype,
            device,
        })
    }

    /// The positions after a step of bodies, row after row.
    pub(super) fn positions<const D: usize>(
        &self,
        numbers: &[f64],
    ) -> Result<Vec<Vector<D>>, Error> {
        let made = match self.dtype {
            DType::F64 => predictions(&self.model, numbers, None, &self.device)?,
            _ => {
                let rounded: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
                let made = predictions(&self.model, &rounded, None, &self.device)?;
                made.map(|made| made.into_iter().map(f64::from).collect())
            }
        };
        Ok(made.ok_or(Error::Stopped)?.as_chunks().0.to_vec())
    }
}

/// Bodies of samples, row after row: mass or charge, position, velocity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bodies<const D: usize>(pub(super) Vec<f64>);

impl<const D: usize> Bodies<D> {
    /// The numbers of a body.
    pub(super) const ROW: usize = 1 + 2 * D;

    /// The bodies, one after the other.
    pub(super) fn rows(&self) -> ChunksExact<'_, f64> {
        self.0.chunks_exact(Self::ROW)
    }

    /// Their positions.
    pub(super) fn positions(&self) -> Vec<Vector<D>> {
        self.rows().map(position).collect()
    }
}

/// The position of a body.
pub(super) fn position<const D: usize>(body: &[f64]) -> Vector<D> {
    from_fn(|axis| body[1 + axis])
}

/// The velocity of a body.
pub(super) fn velocity<const D: usize>(body: &[f64]) -> Vector<D> {
    from_fn(|axis| body[1 + D + axis])
}
