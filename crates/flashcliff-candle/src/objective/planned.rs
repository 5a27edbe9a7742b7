//! A plan with its buffers, on any device.

use std::cell::OnceCell;

use candle_core::{DType, Device, Tensor};
use flashcliff::Dtype;

use super::cpu::OnCpu;
#[cfg(feature = "cuda")]
use super::gpu::{self, OnGpu};
use super::operations::{Operations, Reports};
use super::plan::Plan;
use super::room::Room;
use super::{Features, ObjectiveOptions};
use crate::Error;
use crate::models::Model;
#[cfg(feature = "cuda")]
use crate::op::gpu::memory;
use crate::op::in_place;
use crate::optim::LossScale;
use crate::timeline;

/// A plan with its buffers.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) place: Place,
    /// The memory that was taken.
    pub(super) room: Room,
    /// The types of the features and of the model.
    pub(super) dtypes: [Dtype; 2],
    /// The operations that a timeline hears of, made when there is one.
    operations: OnceCell<Operations>,
    /// The error of batches that are evaluated in place, made by the first of them.
    error: Option<Tensor>,
}

#[derive(Debug)]
pub(super) enum Place {
    F32(OnCpu<f32>),
    F64(OnCpu<f64>),
    #[cfg(feature = "cuda")]
    Gpu(Box<OnGpu>),
}

/// A part of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The factor of the sum of squares.
    pub(super) scale: f64,
    /// Whether error and gradients are added to those of the parts before.
    pub(super) adds: bool,
}

impl Planned {
    /// The plan of a model, if it has one, with buffers for batches of so many rows.
    pub(super) fn new(
        model: &Model,
        rows: usize,
        parts: usize,
        options: &ObjectiveOptions,
    ) -> Result<Option<Self>, Error> {
        let Some(var) = model.parameters().first() else {
            return Ok(None);
        };
        let Some(plan) = model.plan(rows)? else {
            return Ok(None);
        };
        let plan = match options.gradient_checkpointing {
            true => plan.checkpointed(),
            false => plan,
        };
        let name = model.architecture().name();
        let model = match var.dtype() {
            DType::F64 => Dtype::F64,
            _ => Dtype::F32,
        };
        let features = match options.features {
            Features::Model => model,
            Features::Bf16 => Dtype::Bf16,
            Features::F16 => Dtype::F16,
        };
        let room = Room::of(&plan, [features, model], parts);
        let (place, room) = match (var.device(), var.dtype()) {
            (Device::Cpu, DType::F32) => {
                room.check(name, var.device())?;
                (Place::F32(OnCpu::new(&plan)), room)
            }
            (Device::Cpu, DType::F64) => {
                room.check(name, var.device())?;
                (Place::F64(OnCpu::new(&plan)), room)
            }
            #[cfg(feature = "cuda")]
            (Device::Cuda(device), DType::F32 | DType::F64) => {
                let dtypes = [options.features.dtype(var.dtype()), var.dtype()];
                let (gpu, room) = OnGpu::new(&plan, device, dtypes, parts, name)?;
                (Place::Gpu(Box::new(gpu)), room)
            }
            _ => return Ok(None),
        };
        Ok(Some(Self {
            plan,
            place,
            room,
            dtypes: [features, model],
            operations: OnceCell::new(),
            error: None,
        }))
    }

    /// Computes a batch of contiguous tensors, part by part.
    pub(super) fn run(
        &mut self,
        batch: &[Tensor; 2],
        rows: usize,
        parts: usize,
        loss_scale: Option<&LossScale>,
    ) -> Result<(), Error> {
        // A GPU reads it where it lies.
        let factor = match (&self.place, loss_scale) {
            (Place::F32(_) | Place::F64(_), Some(scale)) => scale.state()?.scale,
            _ => 1.0,
        };
        #[cfg(feature = "cuda")]
        if let Place::Gpu(_) = &self.place {
            return self
                .run_on_gpu(batch, [rows, parts], loss_scale, None)
                .map(drop);
        }
        let plan = (
            &self.plan,
            reports(&self.operations, &self.plan, self.dtypes),
        );
        for index in 0..parts {
            let (part, batch) = part(batch, [rows, parts], index)?;
            match &mut self.place {
                Place::F32(cpu) => cpu.run(plan, &batch, part, factor)?,
                Place::F64(cpu) => cpu.run(plan, &batch, part, factor)?,
                #[cfg(feature = "cuda")]
                Place::Gpu(_) => {}
            }
        }
        Ok(())
    }

    /// The error of the last batch, in one tensor for all batches.
    pub(super) fn error_in_place(&mut self) -> Result<Tensor, Error> {
        let error = match (self.error.take(), &self.place) {
            (Some(error), Place::F32(cpu)) => {
                in_place::change(&error, |x: &mut [f32]| x.fill(cpu.loss() as f32))?;
                error
            }
            (Some(error), Place::F64(cpu)) => {
                in_place::change(&error, |x: &mut [f64]| x.fill(cpu.loss()))?;
                error
            }
            _ => self.place.error()?,
        };
        Ok(self.error.insert(error).clone())
    }

    /// Launches the work on a batch of contiguous tensors, part by part. Buckets of gradients are complete in the last part.
    #[cfg(feature = "cuda")]
    pub(super) fn run_on_gpu(
        &mut self,
        batch: &[Tensor; 2],
        [rows, parts]: [usize; 2],
        loss_scale: Option<&LossScale>,
        watch: Option<gpu::Watch<'_>>,
    ) -> Result<Tensor, Error> {
        let Place::Gpu(gpu) = &mut self.place else {
            return Err(memory::misplaced("objective"));
        };
        let plan = (
            &self.plan,
            reports(&self.operations, &self.plan, self.dtypes),
        );
        let parts: Result<Vec<_>, Error> = (0..parts)
            .map(|index| part(batch, [rows, parts], index))
            .collect();
        gpu.run(plan, &parts?, loss_scale, watch)?;
        Ok(gpu.loss().clone())
    }
}

impl Place {
    /// The error of the last batch: a new tensor on the CPU, the memory of all batches on a GPU.
    pub(super) fn error(&self) -> Result<Tensor, Error> {
        Ok(match self {
            Self::F32(cpu) => Tensor::new(cpu.loss() as f32, &Device::Cpu)?,
            Self::F64(cpu) => Tensor::new(cpu.loss(), &Device::Cpu)?,
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.loss().clone(),
        })
    }
}

/// The operations of a plan for the timeline of this thread, if there is one.
fn reports<'a>(
    operations: &'a OnceCell<Operations>,
    plan: &Plan,
    dtypes: [Dtype; 2],
) -> Reports<'a> {
    let make = || Operations::new(plan, dtypes);
    Reports(timeline::is_recording().then(|| operations.get_or_init(make)))
}

/// A part of a batch of so many rows in so many parts.
fn part(
    batch: &[Tensor; 2],
    [rows, parts]: [usize; 2],
    index: usize,
) -> Result<(Part, [Tensor; 2]), Error> {
    let part = Part {
        scale: 1.0 / rows as f64,
        adds: index > 0,
    };
    let share = rows / parts;
    let of = |tensor: &Tensor| tensor.narrow(0, index * share, share);
    let [points, targets] = batch;
    let batch = match parts {
        1 => [points.clone(), targets.clone()],
        _ => [of(points)?, of(targets)?],
    };
    Ok((part, batch))
}
