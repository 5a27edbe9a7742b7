//! The error of a model on a batch, with the gradients of all parameters, without a graph.
//!
//! candle's backward pass clears a tensor for each edge of the graph and adds to it, allocates each time, and frees. An
//! [`Objective`] knows the network before it runs: it takes all memory once, and each gradient is written where it is
//! read. On a GPU a captured step then has no nodes for memory, and on the CPU a step allocates nothing of ours.
//!
//! * `plan` - a network with its error as a list of operations.
//! * `blocks` - gradient checkpointing: memory that the blocks of a network share.
//! * `sizes` - the sizes of the buffers of a plan.
//! * `options` - the type of the features, the scale of the loss, the random numbers of dropout.
//! * `buckets` - gradients in the order in which they are complete, for ranks that average them meanwhile.
//! * `branches` - what a captured step runs at the same time.
//! * `planned` - a plan with its buffers on any device; `cpu`, `gpu` - these buffers, and both passes.
//! * `graph` - candle's graph, for networks without a plan.
//! * `gradients` - the gradients of the last batch, for optimisers.
//! * `operations` - what a plan reports to a [timeline](crate::timeline).
//! * `room` - whether the buffers of a plan fit, before they are taken.

mod blocks;
#[cfg(any(feature = "cuda", test))]
mod branches;
#[cfg(any(feature = "cuda", test))]
mod buckets;
mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
mod gradients;
mod graph;
mod operations;
mod options;
pub(crate) mod plan;
mod planned;
mod room;
mod sizes;

use candle_core::Tensor;
use candle_core::backprop::GradStore;

pub(crate) use gradients::Gradient;
pub(crate) use graph::backward;
pub use options::{Features, ObjectiveOptions};

use crate::Error;
use crate::layers::transformer::Draws;
use crate::models::Model;
#[cfg(feature = "cuda")]
use crate::op::gpu::memory;
use crate::optim::LossScale;
use graph::graph;
use planned::Planned;

/// The mean squared error of a model's predictions on batches of a fixed number of rows, with the gradients of its
/// parameters: those of [`Losses::objective`](crate::models::Losses).
///
/// A batch is points `[rows, points, dim]` and targets `[rows]`, or `[rows, targets]` where there are several, both in the type and on the device of
/// the model. Models that have a plan ([`Objective::is_planned`]) are computed in buffers that are taken once; all others through candle's graph.
/// Both give the same numbers up to rounding.
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

    /// Computes the error of a batch, and its gradients multiplied by the scale of the loss. Gradients stay until a step of an optimiser or the
    /// next batch. On a GPU the error is memory that the next batch overwrites, and nothing waits.
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

#[cfg(test)]
mod tests;
