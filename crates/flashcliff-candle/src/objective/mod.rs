//! The error of a model on a batch, with the gradients of all parameters, without a graph.
//!
//! candle's backward pass clears a tensor for each edge of the graph and adds to it, allocates each time, and frees. An
//! [`Objective`] knows the network before it runs: it takes all memory once, and each gradient is written where it is
//! read. On a GPU a captured step then has no nodes for memory, and on the CPU a step allocates nothing of ours.
//!
//! [`flashcliff_network`] differentiates, plans and runs the network. This module lends it memory of candle.
//!
//! * `description` - networks whose parameters are tensors of candle.
//! * `options` - the type of the features, the scale of the loss, the random numbers of dropout.
//! * `buckets` - gradients in the order in which they are complete, for ranks that average them meanwhile.
//! * `planned` - a network with its error, gradients and memory on any device; `cpu`, `gpu` - what each device lends.
//! * `graph` - candle's graph, for networks without a plan.
//! * `gradients` - the gradients of the last batch, for optimisers.
//! * `operations` - what a plan reports to a [timeline](crate::timeline).
//! * `room` - whether the buffers of a plan fit, before they are taken.

#[cfg(any(feature = "cuda", test))]
mod buckets;
mod cpu;
pub(crate) mod description;
#[cfg(feature = "cuda")]
mod gpu;
mod gradients;
mod graph;
pub(crate) mod operations;
mod options;
mod planned;
mod room;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use flashcliff_network::{Network, Value};

pub(crate) use gradients::Gradient;
pub(crate) use graph::backward;
pub use options::{Features, ObjectiveOptions};

use crate::Error;
use crate::layers::transformer::Draws;
use crate::models::Model;
#[cfg(feature = "cuda")]
use crate::op::gpu::memory;
use crate::optim::LossScale;
use description::Described;
use graph::graph;
use planned::{Batch, Planned, check_rows};

/// The mean squared error of a model's predictions on batches of a fixed number of rows, with the gradients of
/// [`Losses::objective`](crate::models::Losses) by the model's parameters.
///
/// A batch is points `[rows, points, dim]` and targets `[rows]`, or `[rows, targets]` where there are several, both
/// in the type and on the device of the model. Models that have a plan ([`Objective::is_planned`]) are computed in
/// buffers that are taken once; all others through candle's graph. Both give the same numbers up to rounding.
///
/// A batch may be computed in *parts*, one after the other, in the memory of one part. The error and the gradients are
/// the same as for the whole batch up to rounding.
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
    rows: usize,
    parts: usize,
    /// The device and the type of the parameters; `None` if there are none.
    place: Option<(Device, DType)>,
    loss_scale: Option<LossScale>,
    draws: Option<Draws>,
    work: Work,
    /// The tensors of the batch that is evaluated. The list is kept, so that steps allocate nothing.
    batch: Vec<Tensor>,
}

#[derive(Debug)]
enum Work {
    Planned(Box<Planned>),
    Graph(Box<Graph>),
}

/// candle's graph of a model, with the gradients of the last batch.
#[derive(Debug)]
struct Graph {
    model: Model,
    gradients: Option<GradStore>,
}

impl Objective {
    /// The error of a model for batches of so many rows, each computed in so many parts.
    ///
    /// # Errors
    /// No row, or parts of unequal size; [`flashcliff::Error::OutOfMemory`] with the largest batch if the buffers of
    /// a plan do not fit; the errors of the core and of candle.
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
        check_parts(rows, parts)?;
        let place = place(model.parameters().first().as_ref());
        let batch = Batch {
            name: model.architecture().name(),
            rows,
            parts,
        };
        let work = match (model.network()?, &place) {
            (Some(described), Some((device, dtype))) => {
                let planned = Planned::new(described, batch, (device, *dtype), options)?;
                Work::Planned(Box::new(planned))
            }
            _ => Work::of_graph(match options.gradient_checkpointing {
                true => model.recomputing(),
                false => model.clone(),
            }),
        };
        Ok(Self::of(work, [rows, parts], place, options))
    }

    fn of(
        work: Work,
        [rows, parts]: [usize; 2],
        place: Option<(Device, DType)>,
        options: &ObjectiveOptions,
    ) -> Self {
        Self {
            rows,
            parts,
            place,
            loss_scale: options.loss_scale.clone(),
            draws: options.draws.clone(),
            work,
            batch: Vec::new(),
        }
    }

    /// The mean squared error of a custom network: the sum of the squares of `prediction - target`, divided by the
    /// rows. `parameters` are the variables of the network's parameters, in their order, with as many elements each. A
    /// batch has a tensor for each input of the network, in their order, the target among them; the first axis of each
    /// is that of rows.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor, Var};
    /// use flashcliff::ops::{self, LinearOptions};
    /// use flashcliff::{Algebra, Bias, GradeSet, Signature};
    /// use flashcliff_candle::objective::{Objective, ObjectiveOptions};
    /// use flashcliff_network::{Axis, Network};
    ///
    /// // The norms of three points of the plane, times weights.
    /// let plane = Algebra::new(Signature::new(2, 0, 0)?)?;
    /// let options = LinearOptions::default().with_per_grade(false).with_bias(Bias::None);
    /// let options = options.with_grades(GradeSet::single(0));
    /// let mut network = Network::new();
    /// let points = network.input("points", &[Axis::Rows, Axis::Fixed(3), Axis::Fixed(2)]);
    /// let target = network.input("target", &[Axis::Rows]);
    /// let weight = network.parameter("weight", &[1, 3]);
    /// let multivectors = network.points(points)?;
    /// let norms = network.blade_norm(multivectors)?;
    /// let prediction = network.operator(&ops::mv_linear(plane, &options)?, &[norms, weight])?;
    ///
    /// let weight = Var::ones((1, 3), DType::F32, &Device::Cpu)?;
    /// let (ends, variables) = ([prediction, target], [weight.clone()]);
    /// let mut objective = Objective::of_network(&network, ends, &variables, 1, 1, &ObjectiveOptions::default())?;
    /// let points = Tensor::new(&[[[3.0_f32, 4.0], [0.0, 1.0], [0.0, 0.0]]], &Device::Cpu)?;
    /// let error = objective.evaluate(&[points, Tensor::new(&[5.0_f32], &Device::Cpu)?])?;
    /// assert_eq!(error.to_scalar::<f32>()?, 1.0);
    /// let gradient = objective.gradient_of(&weight)?.unwrap();
    /// assert_eq!(gradient.to_vec2::<f32>()?, [[10.0, 2.0, 0.0]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InputCount`] and [`Error::Shape`] for variables that do not fit the parameters, and for inputs without
    /// rows as their first axis; [`Error::Repeated`] for one variable of two parameters; [`Error::InputDevice`] and
    /// [`Error::InputType`] for variables of several devices or types; [`Error::Features`]; the errors of
    /// [`Objective::new`] and of networks.
    pub fn of_network(
        network: &Network,
        ends: [Value; 2],
        parameters: &[Var],
        rows: usize,
        parts: usize,
        options: &ObjectiveOptions,
    ) -> Result<Self, Error> {
        check_parts(rows, parts)?;
        let described = Described::of(network, ends, parameters)?;
        check_rows(&described)?;
        let place = place(parameters.first()).ok_or_else(|| Error::InputCount {
            operator: "objective".to_owned(),
            expected: 1,
            got: 0,
        })?;
        options.features.check_place(&place.0, place.1)?;
        let batch = Batch {
            name: "a network",
            rows,
            parts,
        };
        let planned = Planned::new(described, batch, (&place.0, place.1), options)?;
        let work = Work::Planned(Box::new(planned));
        Ok(Self::of(work, [rows, parts], Some(place), options))
    }

    /// Does the same as [`Objective::new`], always through candle's graph.
    ///
    /// # Errors
    /// The errors of [`Objective::new`].
    pub fn through_graph(model: &Model, rows: usize, parts: usize) -> Result<Self, Error> {
        Ok(Self {
            work: Work::of_graph(model.clone()),
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

    /// The number of bytes of the memory of values, of their gradients and of sums that operators save, which is
    /// taken once; `None` without a plan.
    pub fn buffer_bytes(&self) -> Option<usize> {
        match &self.work {
            Work::Planned(planned) => Some(planned.plan().arena_bytes()),
            Work::Graph(_) => None,
        }
    }

    /// The number of bytes of all memory that is taken once: that of [`Self::buffer_bytes`], the gradients of parameters, and on a GPU
    /// packed weights and workspaces; `None` without a plan.
    pub fn taken_bytes(&self) -> Option<u128> {
        match &self.work {
            Work::Planned(planned) => Some(planned.room.taken()),
            Work::Graph(_) => None,
        }
    }

    /// Computes the error of a batch, and its gradients multiplied by the scale of the loss. Gradients stay until a
    /// step of an optimiser or the next batch. On a GPU the error is memory that the next batch overwrites, and
    /// nothing waits.
    ///
    /// # Errors
    /// Tensors of another number, shape, type or device; the errors of candle.
    pub fn evaluate(&mut self, batch: &[Tensor]) -> Result<Tensor, Error> {
        self.compute(batch, |planned| planned.place.error())
    }

    /// Evaluates a batch as [`Objective::evaluate`] does, but on the CPU too the error is memory that the next call
    /// overwrites. With a plan, calls after the first allocate nothing of ours there.
    ///
    /// # Errors
    /// The errors of [`Objective::evaluate`].
    pub fn evaluate_in_place(&mut self, batch: &[Tensor]) -> Result<Tensor, Error> {
        self.compute(batch, Planned::error_in_place)
    }

    fn compute(
        &mut self,
        batch: &[Tensor],
        error: impl FnOnce(&mut Planned) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        let batch = self.take(batch)?;
        let sizes = [self.rows, self.parts];
        let scale = self.loss_scale.as_ref();
        let done = match &mut self.work {
            Work::Planned(planned) => {
                let ran = planned.run(&batch, self.rows, self.parts, scale);
                ran.and_then(|()| error(planned))
            }
            Work::Graph(own) => own.run(&batch, sizes, scale, self.draws.as_ref()),
        };
        self.batch = batch;
        self.batch.clear();
        done
    }

    /// Does the same as [`Objective::evaluate`], in buffers of a plan on a GPU, and calls a function in the middle of
    /// it, with memory that it may change: the gradients of parameters in at most so many buckets, each as soon as
    /// the work that completes it is launched. The loss comes with the last bucket. Each memory has its number of
    /// elements beside it.
    #[cfg(feature = "cuda")]
    pub(crate) fn evaluate_in_buckets(
        &mut self,
        batch: &[Tensor],
        buckets: usize,
        ready: &mut gpu::Ready<'_>,
    ) -> Result<Tensor, Error> {
        let batch = self.take(batch)?;
        let Work::Planned(planned) = &mut self.work else {
            return Err(memory::misplaced("objective"));
        };
        let buckets = buckets::buckets(planned.plan(), buckets);
        let watch = gpu::Watch {
            buckets: &buckets,
            ready,
        };
        let scale = self.loss_scale.as_ref();
        planned.run_on_gpu(&batch, [self.rows, self.parts], scale, Some(watch))
    }

    /// The tensors of a batch, contiguous, in the list that is kept.
    fn take(&mut self, batch: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let mut taken = std::mem::take(&mut self.batch);
        taken.clear();
        self.check_count(batch.len())?;
        for (input, tensor) in batch.iter().enumerate() {
            self.check(input, tensor)?;
            taken.push(tensor.contiguous()?);
        }
        Ok(taken)
    }

    fn check_count(&self, got: usize) -> Result<(), Error> {
        let expected = match &self.work {
            Work::Planned(planned) => planned.inputs.len(),
            Work::Graph(_) => 2,
        };
        match got == expected {
            true => Ok(()),
            false => Err(Error::InputCount {
                operator: "objective".to_owned(),
                expected,
                got,
            }),
        }
    }

    fn check(&self, input: usize, tensor: &Tensor) -> Result<(), Error> {
        let fits = |name: &str, shape: &[usize]| match tensor.dims() == shape {
            true => Ok(()),
            false => Err(Error::Shape {
                tensor: name.to_owned(),
                expected: format!("{shape:?}"),
                got: tensor.dims().to_vec(),
            }),
        };
        match &self.work {
            Work::Planned(planned) => {
                let (name, shape) = &planned.inputs[input];
                fits(name, shape)?;
            }
            Work::Graph(own) => {
                let shapes = own.model.architecture().shapes(self.rows);
                fits(["points", "targets"][input], &shapes[input])?;
            }
        }
        match &self.place {
            Some((device, dtype)) => check_place(input, tensor, device, *dtype),
            None => Ok(()),
        }
    }
}

impl Work {
    fn of_graph(model: Model) -> Self {
        Self::Graph(Box::new(Graph {
            model,
            gradients: None,
        }))
    }
}

impl Graph {
    fn run(
        &mut self,
        batch: &[Tensor],
        sizes: [usize; 2],
        scale: Option<&LossScale>,
        draws: Option<&Draws>,
    ) -> Result<Tensor, Error> {
        // The memory of the batch before is free during this one.
        self.gradients = None;
        let (loss, sum) = graph(&self.model, batch, sizes, scale, draws)?;
        self.gradients = Some(sum);
        Ok(loss)
    }
}

fn check_parts(rows: usize, parts: usize) -> Result<(), Error> {
    if rows == 0 || parts == 0 || !rows.is_multiple_of(parts) {
        return Err(Error::Option {
            option: "parts of a batch",
            expected: "a number from 1 up that divides the rows",
            got: parts as f64,
        });
    }
    Ok(())
}

fn place(var: Option<&Var>) -> Option<(Device, DType)> {
    var.map(|var| (var.device().clone(), var.dtype()))
}

/// Checks the type and the device of an input.
fn check_place(input: usize, tensor: &Tensor, device: &Device, dtype: DType) -> Result<(), Error> {
    if tensor.dtype() != dtype {
        return Err(Error::InputType {
            operator: "objective".to_owned(),
            input,
            expected: "the type of the model",
            got: tensor.dtype(),
        });
    }
    if !tensor.device().same_device(device) {
        return Err(Error::InputDevice {
            operator: "objective".to_owned(),
            input,
            expected: "the device of the model",
            got: tensor.device().location(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
