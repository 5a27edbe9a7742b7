//! The error of a model on a batch, with the gradients of all parameters, without a graph.
//!
//! candle's backward pass clears a tensor for each edge of the graph and adds to it, allocates each time, and frees. An
//! [`Objective`] knows the network before it runs: it takes all memory once, and each gradient is written where it is
//! read. On a GPU a captured step then has no nodes for memory, and on the CPU a step allocates nothing of ours.
//!
//! * `plan` - a network with its error as a list of operations.
//! * `blocks` - gradient checkpointing: memory that the blocks of a network share.
//! * `sizes` - the size of its buffers.
//! * `options` - the type of the features, and the scale of the loss.
//! * `buckets` - gradients in the order in which they are complete, for ranks that average them meanwhile.
//! * `branches` - what a captured step runs at the same time.
//! * `cpu`, `gpu` - the buffers of a plan, and both passes.
//! * `operations` - what a plan reports to a [timeline].
//! * `room` - whether the buffers of a plan fit, before they are taken.

mod blocks;
#[cfg(any(feature = "cuda", test))]
mod branches;
#[cfg(any(feature = "cuda", test))]
mod buckets;
mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
mod operations;
mod options;
pub(crate) mod plan;
mod room;
mod sizes;

use std::cell::OnceCell;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use flashcliff::{Dtype, Pass};

pub use options::{Features, ObjectiveOptions};

use crate::Error;
use crate::layers::transformer::Draws;
use crate::models::Model;
#[cfg(feature = "cuda")]
use crate::op::gpu::memory::{self, View};
use crate::op::in_place;
use crate::optim::LossScale;
use crate::timeline;
use cpu::OnCpu;
#[cfg(feature = "cuda")]
use gpu::OnGpu;
use operations::{Operations, Reports};
use plan::Plan;
use room::Room;

/// The mean squared error of a model's predictions on batches of a fixed number of rows, with the gradients of its
/// parameters: those of [`Losses::objective`](crate::models::Losses).
///
/// A batch is points `[rows, points, dim]` and targets `[rows]`, or `[rows, targets]` where there are several, both in the type and on the device of the model. Models
/// that have a plan ([`Objective::is_planned`]) are computed in buffers that are taken once; all others through candle's
/// graph. Both give the same numbers up to rounding.
///
/// A batch may be computed in *parts*, one after the other, in the memory of one part. The error and the gradients are
/// those of the whole batch up to rounding.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::models::{Architecture, Model};
/// use flashcliff_candle::objective::Objective;
/// use flashcliff_candle::optim::{Adam, AdamOptions};
///
/// let model = Model::new(Architecture::Hulls, 7, DType::F32)?;
/// let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default())?;
/// let mut objective = Objective::new(&model, 4, 1)?; // batches of 4 rows, in one part
/// let batch = [
///     Tensor::ones((4, 16, 5), DType::F32, &Device::Cpu)?,
///     Tensor::ones(4, DType::F32, &Device::Cpu)?,
/// ];
/// let loss = objective.evaluate(&batch)?;
/// adam.objective_step(&mut objective, &loss)?;
/// assert!(objective.is_planned() && objective.evaluate(&batch)?.to_scalar::<f32>()? < loss.to_scalar::<f32>()?);
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Debug)]
pub struct Objective {
    model: Model,
    rows: usize,
    parts: usize,
    loss_scale: Option<LossScale>,
    draws: Option<Draws>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Planned(Box<Planned>),
    /// candle's graph, with the gradients of the last batch.
    Graph(Option<GradStore>),
}

/// A plan with its buffers.
#[derive(Debug)]
struct Planned {
    plan: Plan,
    place: Place,
    /// The memory that was taken.
    room: Room,
    /// The types of the features and of the model.
    dtypes: [Dtype; 2],
    /// The operations that a timeline hears of, made when there is one.
    operations: OnceCell<Operations>,
    /// The error of batches that are evaluated in place, made by the first of them.
    error: Option<Tensor>,
}

#[derive(Debug)]
enum Place {
    F32(OnCpu<f32>),
    F64(OnCpu<f64>),
    #[cfg(feature = "cuda")]
    Gpu(Box<OnGpu>),
}

/// A part of a batch.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The factor of the sum of squares.
    scale: f64,
    /// Whether error and gradients are added to those of the parts before.
    adds: bool,
}

/// The gradient of a parameter.
#[derive(Debug)]
pub(crate) enum Gradient<'a> {
    Tensor(&'a Tensor),
    F32(&'a [f32]),
    F64(&'a [f64]),
    #[cfg(feature = "cuda")]
    Gpu(&'a candle_core::CudaStorage),
}

impl Objective {
    /// The error of a model for batches of so many rows, each computed in so many parts.
    ///
    /// # Errors
    /// No row, or parts of unequal size; [`flashcliff::Error::OutOfMemory`] with the largest batch if the buffers of a plan do not fit; the errors of
    /// the core and of candle.
    pub fn new(model: &Model, rows: usize, parts: usize) -> Result<Self, Error> {
        Self::with_options(model, rows, parts, &ObjectiveOptions::default())
    }

    /// Does the same as [`Objective::new`], with options.
    ///
    /// ```
    /// use candle_core::DType;
    /// use flashcliff_candle::models::{Architecture, Model};
    /// use flashcliff_candle::objective::{Features, Objective, ObjectiveOptions};
    /// use flashcliff_candle::optim::{Adam, AdamOptions, LossScaleOptions};
    ///
    /// let model = Model::new(Architecture::Hulls, 7, DType::F32)?; // or on_device(.., &device::cuda(0)?)
    /// let options = AdamOptions { loss_scale: Some(LossScaleOptions::default()), ..AdamOptions::default() };
    /// let adam = Adam::new(model.parameters().variables(), options)?;
    /// let scale = adam.loss_scale().cloned();
    /// let options = ObjectiveOptions { features: Features::F16, loss_scale: scale, ..ObjectiveOptions::default() };
    /// let refused = Objective::with_options(&model, 4, 1, &options).unwrap_err();
    /// assert!(refused.to_string().contains("expected a GPU, got the CPU"));
    /// # Ok::<(), flashcliff_candle::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Features`] for features that this model cannot have; the errors of [`Objective::new`].
    pub fn with_options(
        model: &Model,
        rows: usize,
        parts: usize,
        options: &ObjectiveOptions,
    ) -> Result<Self, Error> {
        options.check(model)?;
        if rows == 0 || parts == 0 || !rows.is_multiple_of(parts) {
            return Err(Error::Option {
                option: "parts of a batch",
                expected: "a number from 1 up that divides the rows",
                got: parts as f64,
            });
        }
        let work = match Planned::new(model, rows / parts, parts, options)? {
            Some(planned) => Work::Planned(Box::new(planned)),
            None => Work::Graph(None),
        };
        Ok(Self {
            model: match options.gradient_checkpointing {
                true => model.recomputing(),
                false => model.clone(),
            },
            rows,
            parts,
            loss_scale: options.loss_scale.clone(),
            draws: options.draws.clone(),
            work,
        })
    }

    /// Does the same as [`Objective::new`], always through candle's graph.
    ///
    /// # Errors
    /// The errors of [`Objective::new`].
    pub fn through_graph(model: &Model, rows: usize, parts: usize) -> Result<Self, Error> {
        Ok(Self {
            work: Work::Graph(None),
            ..Self::new(model, rows, parts)?
        })
    }

    /// The scale of the loss that gradients are multiplied by, if there is one.
    pub fn loss_scale(&self) -> Option<&LossScale> {
        self.loss_scale.as_ref()
    }

    /// Whether batches are computed in buffers that were taken once, without a graph.
    pub fn is_planned(&self) -> bool {
        matches!(self.work, Work::Planned(_))
    }

    /// The number of bytes of the buffers of values and of their gradients, which are taken once; `None` without a plan.
    pub fn buffer_bytes(&self) -> Option<usize> {
        match &self.work {
            Work::Planned(planned) => Some(planned.plan.bytes(planned.dtypes)),
            Work::Graph(_) => None,
        }
    }

    /// The number of bytes of all memory that is taken once: the buffers, sums that operators save, the gradients of parameters, and on a GPU
    /// packed weights and workspaces; `None` without a plan.
    pub fn taken_bytes(&self) -> Option<u128> {
        match &self.work {
            Work::Planned(planned) => Some(planned.room.taken()),
            Work::Graph(_) => None,
        }
    }

    /// Computes the error of a batch, and its gradients, multiplied by the scale of the loss, which stay until a step of an optimiser or the next batch. On a GPU the error is memory that
    /// the next batch overwrites, and nothing waits.
    ///
    /// # Errors
    /// Tensors of another number, shape, type or device; the errors of candle.
    pub fn evaluate(&mut self, batch: &[Tensor]) -> Result<Tensor, Error> {
        let batch = self.check(batch)?;
        match &mut self.work {
            Work::Planned(planned) => {
                let scale = self.loss_scale.as_ref();
                planned.run(&batch, self.rows, self.parts, scale)?;
                planned.place.error()
            }
            Work::Graph(gradients) => {
                // The memory of the batch before is free during this one.
                *gradients = None;
                let (scale, draws) = (self.loss_scale.as_ref(), self.draws.as_ref());
                let sizes = [self.rows, self.parts];
                let (loss, sum) = graph(&self.model, &batch, sizes, scale, draws)?;
                *gradients = Some(sum);
                Ok(loss)
            }
        }
    }

    /// Evaluates a batch as [`Objective::evaluate`] does, but on the CPU too the error is memory that the next call overwrites. With a plan, calls
    /// after the first allocate nothing of ours there.
    ///
    /// # Errors
    /// The errors of [`Objective::evaluate`].
    pub fn evaluate_in_place(&mut self, batch: &[Tensor]) -> Result<Tensor, Error> {
        let batch = self.check(batch)?;
        match &mut self.work {
            Work::Planned(planned) => {
                let scale = self.loss_scale.as_ref();
                planned.run(&batch, self.rows, self.parts, scale)?;
                planned.error_in_place()
            }
            Work::Graph(_) => self.evaluate(&batch),
        }
    }

    /// Does the same as [`Objective::evaluate`], in buffers of a plan on a GPU, and calls a function in the middle of it, with memory that it may
    /// change: the gradients of parameters in at most so many buckets, each as soon as the work that completes it is launched. The loss
    /// comes with the last bucket. Each memory has its number of elements beside it.
    #[cfg(feature = "cuda")]
    pub(crate) fn evaluate_in_buckets(
        &mut self,
        batch: &[Tensor],
        buckets: usize,
        ready: &mut gpu::Ready<'_>,
    ) -> Result<Tensor, Error> {
        let batch = self.check(batch)?;
        let Work::Planned(planned) = &mut self.work else {
            return Err(memory::misplaced("objective"));
        };
        let buckets = planned.plan.buckets(buckets);
        let watch = gpu::Watch {
            buckets: &buckets,
            ready,
        };
        let scale = self.loss_scale.as_ref();
        planned.run_on_gpu(&batch, [self.rows, self.parts], scale, Some(watch))
    }

    /// A copy of the gradient of a variable in the last batch; `None` if the error does not depend on it, or if a step of an optimiser
    /// has freed it.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn gradient_of(&self, var: &Var) -> Result<Option<Tensor>, Error> {
        let shape = var.shape();
        Ok(match self.gradient(var) {
            None => None,
            Some(Gradient::Tensor(tensor)) => Some(tensor.copy()?),
            Some(Gradient::F32(data)) => Some(Tensor::from_slice(data, shape, &Device::Cpu)?),
            Some(Gradient::F64(data)) => Some(Tensor::from_slice(data, shape, &Device::Cpu)?),
            #[cfg(feature = "cuda")]
            Some(Gradient::Gpu(storage)) => {
                use candle_core::backend::BackendStorage;

                let layout = candle_core::Layout::contiguous(shape);
                let copy = candle_core::Storage::Cuda(storage.try_clone(&layout)?);
                Some(crate::op::node::constant(copy, shape.dims()))
            }
        })
    }

    /// Calls a function with the memory of all gradients of the last batch, and of its loss, which it may change. Each has its number of
    /// elements beside it.
    #[cfg(feature = "cuda")]
    pub(crate) fn with_gradients<R>(
        &mut self,
        loss: &Tensor,
        f: impl FnOnce(&[(&View<'_>, usize)]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match &mut self.work {
            Work::Planned(planned) => {
                let Place::Gpu(gpu) = &planned.place else {
                    return Err(memory::misplaced("objective"));
                };
                let mut views = Vec::new();
                for (at, tensor) in planned.plan.parameters.iter().enumerate() {
                    let count = tensor.elem_count();
                    let view = gpu.gradient(at).and_then(|sum| View::of(sum, 0..count));
                    let view = view.ok_or_else(|| memory::misplaced("objective"))?;
                    views.push((view, count));
                }
                memory::with_views(std::slice::from_ref(loss), |loss| {
                    let gradients = views.iter().map(|(view, count)| (view, *count));
                    let all: Vec<_> = gradients.chain(loss.iter().map(|view| (view, 1))).collect();
                    f(&all)
                })
            }
            Work::Graph(gradients) => {
                let mut tensors = Vec::new();
                if let Some(gradients) = gradients {
                    for (_, var) in self.model.parameters().variables() {
                        // Gradients of candle's graph may share memory, with each other too, so each becomes memory of its own.
                        if let Some(shared) = gradients.remove(&var) {
                            let own = shared.detach().force_contiguous()?;
                            gradients.insert(&var, own.clone());
                            tensors.push(own);
                        }
                    }
                }
                tensors.push(loss.clone());
                memory::with_views(&tensors, |views| {
                    let counts = tensors.iter().map(Tensor::elem_count);
                    f(&views.iter().zip(counts).collect::<Vec<_>>())
                })
            }
        }
    }

    /// Frees the gradients of candle's graph: a captured step must keep no tensor that it made.
    pub(crate) fn release(&mut self) {
        if let Work::Graph(gradients) = &mut self.work {
            *gradients = None;
        }
    }

    /// The gradient of a variable in the last batch.
    pub(crate) fn gradient(&self, var: &Var) -> Option<Gradient<'_>> {
        match &self.work {
            Work::Graph(gradients) => gradients.as_ref()?.get(var).map(Gradient::Tensor),
            Work::Planned(planned) => {
                let mut parameters = planned.plan.parameters.iter();
                let at = parameters.position(|tensor| tensor.id() == var.id())?;
                Some(match &planned.place {
                    Place::F32(cpu) => Gradient::F32(cpu.gradient(at)),
                    Place::F64(cpu) => Gradient::F64(cpu.gradient(at)),
                    #[cfg(feature = "cuda")]
                    Place::Gpu(gpu) => Gradient::Gpu(gpu.gradient(at)?),
                })
            }
        }
    }

    /// The tensors of a batch, contiguous.
    fn check(&self, batch: &[Tensor]) -> Result<[Tensor; 2], Error> {
        let architecture = self.model.architecture();
        let expected = [self.rows, architecture.points(), architecture.dim()];
        let of_targets = [self.rows, architecture.targets()];
        let of_targets = match of_targets {
            [_, 1] => &of_targets[..1],
            _ => &of_targets[..],
        };
        let [points, targets] = batch else {
            return Err(Error::InputCount {
                operator: "objective".to_owned(),
                expected: 2,
                got: batch.len(),
            });
        };
        let var = self.model.parameters().first();
        for (input, (tensor, shape)) in [(points, &expected[..]), (targets, of_targets)]
            .into_iter()
            .enumerate()
        {
            if tensor.dims() != shape {
                return Err(Error::Shape {
                    tensor: ["points", "targets"][input].to_owned(),
                    expected: format!("{shape:?}"),
                    got: tensor.dims().to_vec(),
                });
            }
            let Some(var) = &var else { continue };
            if tensor.dtype() != var.dtype() {
                return Err(Error::InputType {
                    operator: "objective".to_owned(),
                    input,
                    expected: "the type of the model",
                    got: tensor.dtype(),
                });
            }
            if !tensor.device().same_device(var.device()) {
                return Err(Error::InputDevice {
                    operator: "objective".to_owned(),
                    input,
                    expected: "the device of the model",
                    got: tensor.device().location(),
                });
            }
        }
        Ok([points.contiguous()?, targets.contiguous()?])
    }
}

impl Planned {
    /// The plan of a model, if it has one, with buffers for batches of so many rows.
    fn new(
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
    fn run(
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
    fn error_in_place(&mut self) -> Result<Tensor, Error> {
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
    fn run_on_gpu(
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
    fn error(&self) -> Result<Tensor, Error> {
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

/// candle's backward pass from a loss, multiplied by its scale if there is one.
pub(crate) fn backward(loss: &Tensor, scale: Option<&LossScale>) -> Result<GradStore, Error> {
    timeline::within(
        || timeline::graph_pass(Pass::Backward),
        || match scale {
            None => Ok(loss.backward()?),
            Some(scale) => Ok(scale.multiply(loss)?.backward()?),
        },
    )
}

/// The error of a batch and its gradients, through candle's graph.
fn graph(
    model: &Model,
    [points, targets]: &[Tensor; 2],
    [rows, parts]: [usize; 2],
    loss_scale: Option<&LossScale>,
    draws: Option<&Draws>,
) -> Result<(Tensor, GradStore), Error> {
    let part_rows = rows / parts;
    let mut whole: Option<(Tensor, GradStore)> = None;
    for index in 0..parts {
        let of = |tensor: &Tensor| tensor.narrow(0, index * part_rows, part_rows);
        let losses = timeline::within(
            || timeline::graph_pass(Pass::Forward),
            || {
                let draw = draws.map(Draws::draw).transpose()?;
                model.losses(&of(points)?, &of(targets)?, draw.as_ref())
            },
        )?;
        let share = |loss: Tensor| match parts {
            1 => Ok(loss),
            _ => loss.affine(1.0 / parts as f64, 0.0),
        };
        let objective = share(losses.objective)?;
        let mut gradients = backward(&objective, loss_scale)?;
        let loss = share(losses.error)?.detach();
        whole = Some(match whole {
            None => (loss, gradients),
            Some((before, mut sums)) => {
                for (_, var) in model.parameters().variables() {
                    let Some(share) = gradients.remove(&var) else {
                        continue;
                    };
                    let sum = match sums.get(&var) {
                        None => share,
                        Some(sum) => (sum + share)?,
                    };
                    sums.insert(&var, sum);
                }
                ((before + loss)?, sums)
            }
        });
    }
    whole.ok_or_else(|| Error::Option {
        option: "parts of a batch",
        expected: "at least 1",
        got: 0.0,
    })
}

#[cfg(test)]
mod tests;
