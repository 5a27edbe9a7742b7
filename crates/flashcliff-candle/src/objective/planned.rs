//! A network with its error, gradients and memory, on any device.

use std::cell::OnceCell;

use candle_core::{DType, Device, Tensor};
use flashcliff::Dtype;
use flashcliff_network::{Axis, Keep, Network, Plan, Rows};

use super::cpu::{Lent, OnCpu};
use super::description::{Described, OfGraphs};
#[cfg(feature = "cuda")]
use super::gpu::{self, OnGpu};
use super::operations::{Operations, Reports};
use super::room::Room;
use super::{Features, ObjectiveOptions};
#[cfg(feature = "cuda")]
use crate::op::gpu::memory;
use crate::op::graphs::Graphs;
use crate::op::in_place;
use crate::optim::LossScale;
use crate::{Error, explain, timeline};

/// A plan with its memory.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) place: Place,
    /// The parameters, in the order of the network.
    pub(super) tensors: Vec<Tensor>,
    /// For each parameter the output of the plan that is its gradient.
    pub(super) gradients: Vec<Option<usize>>,
    /// The name and the shape of each tensor of a batch.
    pub(super) inputs: Vec<(String, Vec<usize>)>,
    /// The targets of a row.
    targets: usize,
    /// The graphs of a part of a batch, if the network has relations.
    graphs: Option<Graphs>,
    /// The memory that was taken.
    pub(super) room: Room,
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
    /// Whether error and gradients are added to the sums of the parts before.
    pub(super) adds: bool,
}

/// The size of a batch: its rows, and the parts that it is computed in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'n> {
    /// The name of the trained network in errors.
    pub(super) name: &'n str,
    pub(super) rows: usize,
    pub(super) parts: usize,
}

impl Planned {
    /// A network of parameters on one device and of one type.
    pub(super) fn new(
        described: Described,
        batch: Batch<'_>,
        (device, dtype): (&Device, DType),
        options: &ObjectiveOptions,
    ) -> Result<Self, Error> {
        let Described {
            mut network,
            ends: [prediction, target],
            tensors,
            graphs: of_graphs,
        } = described;
        let inputs = inputs(&network, batch.rows, of_graphs);
        let keep = match options.gradient_checkpointing {
            true => Keep::BetweenBlocks,
            false => Keep::All,
        };
        let [loss, seed] = network.squared_error(prediction, target)?;
        let pairs = network.gradients(prediction, seed, keep)?;
        let place = |parameter| pairs.iter().position(|(own, _)| *own == parameter);
        let gradients = network.parameters().iter();
        let gradients = gradients
            .map(|&parameter| place(parameter).map(|at| at + 1))
            .collect();
        let mut outputs = vec![loss];
        outputs.extend(pairs.iter().map(|&(_, gradient)| gradient));
        let types = types(options.features, dtype);
        let share = batch.rows / batch.parts;
        let graphs = of_graphs.map(|own| (own.graphs)(share, own.nodes));
        let graphs = graphs.transpose()?;
        let rows = graphs.as_ref().map_or(Rows::from(share), Graphs::rows);
        let (place, room) = match (device, dtype) {
            #[cfg(feature = "cuda")]
            (Device::Cuda(device), _) => {
                let network = (&network, &outputs[..]);
                let (gpu, room) = OnGpu::new(network, (batch, rows), device, types)?;
                (Place::Gpu(Box::new(gpu)), room)
            }
            _ => {
                let plan = network.plan(&outputs, rows, types)?;
                let room = Room::of(&plan, batch);
                room.check(batch.name, device)?;
                let place = match dtype {
                    DType::F64 => Place::F64(OnCpu::new(plan)?),
                    _ => Place::F32(OnCpu::new(plan)?),
                };
                (place, room)
            }
        };
        Ok(Self {
            place,
            tensors,
            gradients,
            inputs,
            targets: of_graphs.map_or(1, |own| own.targets),
            graphs,
            room,
            operations: OnceCell::new(),
            error: None,
        })
    }

    /// The plan.
    pub(super) fn plan(&self) -> &Plan {
        match &self.place {
            Place::F32(cpu) => &cpu.plan,
            Place::F64(cpu) => &cpu.plan,
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.plan(),
        }
    }

    /// Computes a batch of contiguous tensors, part by part.
    pub(super) fn run(
        &mut self,
        batch: &[Tensor],
        rows: usize,
        parts: usize,
        loss_scale: Option<&LossScale>,
    ) -> Result<(), Error> {
        #[cfg(feature = "cuda")]
        if let Place::Gpu(_) = &self.place {
            return self
                .run_on_gpu(batch, [rows, parts], loss_scale, None)
                .map(drop);
        }
        let factor = loss_scale.map_or(Ok(1.0), |scale| Ok::<_, Error>(scale.state()?.scale))?;
        self.observe()?;
        for index in 0..parts {
            let own = self.part(rows, index);
            match parts {
                // Nothing is allocated.
                1 => self.run_part(batch, own, factor)?,
                _ => self.run_part(&tensors_of_part(batch, [rows, parts], index)?, own, factor)?,
            }
        }
        Ok(())
    }

    fn run_part(&mut self, batch: &[Tensor], part: Part, factor: f64) -> Result<(), Error> {
        let lent = Lent {
            batch,
            parameters: &self.tensors,
            relations: self.graphs.as_ref().map_or(&[], Graphs::segments),
        };
        let reports = reports(&self.operations);
        match &mut self.place {
            Place::F32(cpu) => cpu.run(lent, part, factor, reports),
            Place::F64(cpu) => cpu.run(lent, part, factor, reports),
            #[cfg(feature = "cuda")]
            Place::Gpu(_) => Ok(()),
        }
    }

    /// A part of a batch of so many rows.
    fn part(&self, rows: usize, index: usize) -> Part {
        Part {
            scale: 1.0 / (rows * self.targets) as f64,
            adds: index > 0,
        }
    }

    /// Makes the operations that a timeline hears of, and the page of the plan, if someone wants them.
    fn observe(&self) -> Result<(), Error> {
        if timeline::is_recording() {
            self.operations.get_or_init(|| Operations::new(self.plan()));
        }
        explain::add("objective", |machine| match &self.place {
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.page(machine),
            _ => Ok(explain::of_plan(self.plan(), machine)),
        })
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
        batch: &[Tensor],
        [rows, parts]: [usize; 2],
        loss_scale: Option<&LossScale>,
        watch: Option<gpu::Watch<'_>>,
    ) -> Result<Tensor, Error> {
        self.observe()?;
        let parts: Result<Vec<_>, Error> = (0..parts)
            .map(|index| {
                let tensors = tensors_of_part(batch, [rows, parts], index)?;
                Ok((self.part(rows, index), tensors))
            })
            .collect();
        let Place::Gpu(gpu) = &mut self.place else {
            return Err(memory::misplaced("objective"));
        };
        gpu.run(
            (&self.tensors, self.graphs.as_ref()),
            &parts?,
            loss_scale,
            reports(&self.operations),
            watch,
        )?;
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

/// The types of the features and of the model.
fn types(features: Features, dtype: DType) -> [Dtype; 2] {
    let model = match dtype {
        DType::F64 => Dtype::F64,
        _ => Dtype::F32,
    };
    let features = match features {
        Features::Model => model,
        Features::Bf16 => Dtype::Bf16,
        Features::F16 => Dtype::F16,
    };
    [features, model]
}

/// The operations for the timeline of this thread, if there is one.
fn reports(operations: &OnceCell<Operations>) -> Reports<'_> {
    Reports(operations.get().filter(|_| timeline::is_recording()))
}

/// The name of each tensor of a batch, and its shape.
fn inputs(network: &Network, rows: usize, graphs: Option<OfGraphs>) -> Vec<(String, Vec<usize>)> {
    let own = network.inputs().iter().enumerate();
    let own = own.map(|(at, &input)| {
        let axes = network.shape(input).unwrap_or_default().iter();
        let shape = match (graphs, at) {
            (None, _) => axes.map(|axis| axis.size(rows)).collect(),
            (Some(own), 0) => vec![rows, own.nodes, own.numbers],
            // As predictions of one number have them.
            (Some(own), _) if own.targets == 1 => vec![rows],
            (Some(own), _) => vec![rows, own.targets],
        };
        (network.name(input).to_owned(), shape)
    });
    own.collect()
}

/// The tensors of a part of a batch of so many rows in so many parts.
fn tensors_of_part(
    batch: &[Tensor],
    [rows, parts]: [usize; 2],
    index: usize,
) -> Result<Vec<Tensor>, Error> {
    let share = rows / parts;
    let of = |tensor: &Tensor| match parts {
        1 => Ok(tensor.clone()),
        _ => Ok(tensor.narrow(0, index * share, share)?),
    };
    batch.iter().map(of).collect()
}

/// Checks that a batch can be cut into parts: the first axis of each input is that of rows.
///
/// # Errors
/// [`Error::Shape`].
pub(super) fn check_rows(described: &Described) -> Result<(), Error> {
    let network = &described.network;
    for &input in network.inputs() {
        let shape = network.shape(input).unwrap_or_default();
        if shape.first() != Some(&Axis::Rows) {
            return Err(Error::Shape {
                tensor: network.name(input).to_owned(),
                expected: "rows as the first axis".to_owned(),
                got: shape.iter().map(|axis| axis.size(0)).collect(),
            });
        }
    }
    Ok(())
}
