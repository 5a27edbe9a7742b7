//! The network as a function of bodies.

use candle_core::{DType, Device};
use flashcliff_candle::models::Model;
use flashcliff_tasks::Body;

use crate::error::Error;
use crate::train::{Trained, predictions};

/// A place in space.
pub(super) type Vector = [f64; 3];

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

    /// The positions of bodies after a step.
    ///
    /// # Errors
    /// The errors of candle.
    pub(super) fn positions(&self, bodies: &[Body]) -> Result<Vec<Vector>, Error> {
        let numbers = bodies.as_flattened();
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

/// The position of a body.
pub(super) fn position(body: &Body) -> Vector {
    [body[1], body[2], body[3]]
}
