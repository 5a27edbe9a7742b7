//! Adam, AdamW and Lion.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var, WithDType};

use super::clip::Records;
use super::cpu::{self, Moments};
#[cfg(feature = "cuda")]
use super::gpu::OnGpu;
use super::options::{AdamOptions, Rule};
use super::scale::{self, LossScale};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::objective::{self, Gradient, Objective};
use crate::timeline::{self, Operation};

/// The name of the records of adaptive clipping in a checkpoint.
const RECORDS: &str = "clip_records";
/// The name of the scale of the loss in a checkpoint.
const LOSS_SCALE: &str = "loss_scale";
/// The operations of an element in a step of Adam, by the formulas below.
const OPERATIONS: usize = 14;
/// The operations of an element in a step of Lion.
const LION_OPERATIONS: usize = 12;

/// Adam, with the arithmetic of `torch.optim.Adam`; with [`decoupled`](AdamOptions::decoupled) decay that of `torch.optim.AdamW`.
///
/// For each parameter `p` with gradient `g`, at its step `t = 1, 2, ...`:
/// ```text
/// g <- clip g + weight_decay p            (decoupled: clip g)
/// m <- m + (1 - beta1) (g - m)
/// v <- beta2 v + (1 - beta2) g g
/// p <- keep p - rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// ```
/// With [`Rule::Lion`] it is Lion, whose `sign` of 0 is 0 and of what is not a number is that:
/// ```text
/// g <- clip g + weight_decay p            (decoupled: clip g)
/// p <- keep p - rate sign(beta1 m + (1 - beta1) g)
/// m <- beta2 m + (1 - beta2) g
/// ```
/// `rate` is the learning rate times the factor of the [`Schedule`](super::Schedule) at the largest number of steps that a parameter has
/// done. `clip` is `clip_norm / norm` if the norm of all gradients together exceeds `clip_norm`, else 1. `keep` is
/// `1 - rate weight_decay` if the decay is decoupled, else 1.
///
/// *Adaptive clipping* takes for `clip_norm` 1.5 times the mean and 2 times the standard deviation of the last 50 records. A record is
/// the norm of a step, or its `clip_norm` if that is less; before the first step there is one of 1e5. The records are a part of the state.
///
/// With [`loss_scale`](AdamOptions::loss_scale), gradients come multiplied by the scale of the loss, and are divided
/// by it. If the norm is not finite though the loss is, the step is *skipped*: it changes nothing but the scale,
/// which falls. After some steps without overflow it rises. Scale and counts are a part of the state.
///
/// A step is *refused* if the norm is not finite (and the step is not skipped), or the loss that it was given: it
/// then changes nothing, and [`Adam::refusals`] counts it. Coefficients and the norm are computed in `f64`;
/// coefficients are rounded to the type of the parameter; the rest is computed in that type. Parameters change in
/// place. A parameter without a gradient is left unchanged.
///
/// All parameters are on one device. On the CPU a step is one pass over each parameter on the calling thread, after a pass over the
/// gradients for their norm; it allocates nothing, and results do not depend on the number of threads. On a GPU a step is three launches
/// for up to 64 parameters; it neither waits nor copies, and can be captured into a CUDA graph. A GPU adds the norm in another order, and
/// its cosine may differ in the last bit; without clipping and schedules the results are the same as on the CPU, bit for bit.
///
/// Source: D. P. Kingma and J. Ba, *Adam: a method for stochastic optimization*, ICLR 2015, algorithm 1; I. Loshchilov and F. Hutter,
/// *Decoupled weight decay regularization*, ICLR 2019, algorithm 2; X. Chen et al., *Symbolic discovery of optimization algorithms*,
/// NeurIPS 2023, algorithm 2.
#[derive(Debug)]
pub struct Adam {
    options: AdamOptions,
    slots: Vec<Slot>,
    scale: Option<LossScale>,
    place: Place,
}

/// A parameter.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) var: Var,
}

/// The values that a step changes besides the parameters.
#[derive(Debug)]
enum Place {
    Cpu(OnCpu),
    #[cfg(feature = "cuda")]
    Gpu(Box<OnGpu>),
}

/// The state on the CPU.
#[derive(Debug)]
struct OnCpu {
    /// The steps and moments of each parameter.
    clocks: Vec<(u32, Moments)>,
    records: Records,
    refusals: Refusals,
}

/// The refused steps since the optimiser was made, or its state imported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusals {
    /// The steps that were asked for.
    pub calls: u64,
    /// The number of them that were refused.
    pub count: u64,
    /// The first of these, counted from 0.
    pub first: Option<u64>,
}

impl Adam {
    /// An optimiser at step 0 for these variables.
    ///
    /// # Errors
    /// An option outside its range; a variable that is neither `f32` nor `f64`, or not on the device of the first one; a
    /// variable that is there twice ([`Error::Repeated`]).
    pub fn new(variables: Vec<(String, Var)>, options: AdamOptions) -> Result<Self, Error> {
        options.check()?;
        let device = match variables.first() {
            Some((_, var)) => var.device().clone(),
            None => Device::Cpu,
        };
        check_variables(&variables)?;
        let mut slots = Vec::with_capacity(variables.len());
        for (input, (name, var)) in variables.into_iter().enumerate() {
            if !matches!(var.dtype(), DType::F32 | DType::F64) {
                return Err(Error::InputType {
                    operator: format!("Adam: {name}"),
                    input,
                    expected: "F32 or F64",
                    got: var.dtype(),
                });
            }
            if !var.device().same_device(&device) {
                return Err(Error::InputDevice {
                    operator: format!("Adam: {name}"),
                    input,
                    expected: "the device of input 0",
                    got: var.device().location(),
                });
            }
            slots.push(Slot { name, var });
        }
        let place = Place::new(&device, &slots, &options)?;
        let scale = options.loss_scale;
        let scale = scale.map(|scale| LossScale::new(scale, &device));
        Ok(Self {
            options,
            slots,
            scale: scale.transpose()?,
            place,
        })
    }

    /// The options in force.
    pub fn options(&self) -> &AdamOptions {
        &self.options
    }

    /// The scale of the loss, if there is one. An objective takes it by
    /// [`ObjectiveOptions::loss_scale`](crate::objective::ObjectiveOptions::loss_scale).
    pub fn loss_scale(&self) -> Option<&LossScale> {
        self.scale.as_ref()
    }

    /// Changes the learning rate, before the schedule. On a GPU captured steps take it too.
    ///
    /// # Errors
    /// A learning rate that is negative or not finite.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<(), Error> {
        let options = AdamOptions {
            learning_rate,
            ..self.options
        };
        options.check()?;
        match &mut self.place {
            Place::Cpu(_) => {}
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.set_learning_rate(learning_rate)?,
        }
        self.options = options;
        Ok(())
    }

    /// One step with the gradients of a backward pass. If there is a scale of the loss, they are the gradients of the result of
    /// [`LossScale::multiply`].
    ///
    /// # Errors
    /// A gradient whose shape differs from that of its parameter; no gradient of any parameter. Nothing is then changed.
    pub fn step(&mut self, gradients: &GradStore) -> Result<(), Error> {
        self.run(gradients, None)
    }

    /// One step with the gradients of the last batch of an objective, which is refused if the error is not finite. Gradients that came
    /// through candle's graph are freed.
    ///
    /// # Errors
    /// An objective with another scale of the loss; the errors of [`Adam::step`].
    pub fn objective_step(
        &mut self,
        objective: &mut Objective,
        loss: &Tensor,
    ) -> Result<(), Error> {
        check_loss(loss)?;
        self.check_scale(objective.loss_scale())?;
        self.run(objective, Some(loss))?;
        objective.release();
        Ok(())
    }

    /// Computes the gradients of a loss, multiplied by its scale if there is one, and makes a step that is refused if
    /// the loss is not finite.
    ///
    /// # Errors
    /// A loss that is not one number; the errors of the backward pass and of [`Adam::step`].
    pub fn backward_step(&mut self, loss: &Tensor) -> Result<(), Error> {
        check_loss(loss)?;
        let gradients = objective::backward(loss, self.scale.as_ref())?;
        self.run(&gradients, Some(loss))
    }

    /// Checks that an objective has the scale of this optimiser.
    fn check_scale(&self, got: Option<&LossScale>) -> Result<(), Error> {
        let (expected, got) = match (&self.scale, got) {
            (None, None) => return Ok(()),
            (Some(own), Some(other)) if own.is(other) => return Ok(()),
            (None, Some(_)) => ("no scale", "a scale"),
            (Some(_), None) => ("its scale", "no scale"),
            (Some(_), Some(_)) => ("its scale", "another scale"),
        };
        Err(Error::LossScale { expected, got })
    }

    fn run(&mut self, gradients: &impl Gradients, loss: Option<&Tensor>) -> Result<(), Error> {
        let mut found = self.slots.is_empty();
        for slot in &self.slots {
            let gradient = gradients.of(&slot.var);
            found |= gradient.is_some();
            let Some(Gradient::Tensor(gradient)) = gradient else {
                // An objective has gradients in the shape and type of the parameters.
                continue;
            };
            if gradient.dims() != slot.var.dims() {
                return Err(Error::Shape {
                    tensor: format!("gradient of {}", slot.name),
                    expected: format!("{:?}", slot.var.dims()),
                    got: gradient.dims().to_vec(),
                });
            }
            if gradient.dtype() != slot.var.dtype() {
                return Err(Error::StoredType {
                    tensor: format!("gradient of {}", slot.name),
                    expected: slot.var.dtype(),
                    got: gradient.dtype(),
                });
            }
        }
        if !found {
            let parameters = self.slots.len();
            return Err(Error::NoGradients { parameters });
        }
        let (slots, scale) = (&self.slots, self.scale.as_ref());
        let work = || match &mut self.place {
            Place::Cpu(cpu) => cpu.step(&self.options, slots, gradients, loss, scale),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.step(slots, gradients, loss, scale),
        };
        let rule = self.options.rule;
        timeline::within(|| operation(slots, rule), work)
    }

    /// The refused steps so far. On a GPU the call waits for the steps to end.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn refusals(&self) -> Result<Refusals, Error> {
        match &self.place {
            Place::Cpu(cpu) => Ok(cpu.refusals),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.refusals(),
        }
    }

    /// Adds the state to a checkpoint: `{prefix}{name}.exp_avg`, but for Lion `{prefix}{name}.exp_avg_sq` (the
    /// moments, under PyTorch's names) and `{prefix}step`, the step of each parameter in the order
    /// given to [`Adam::new`]. With adaptive clipping also `{prefix}clip_records`, the oldest first; with a scale of the loss also
    /// `{prefix}loss_scale`: the scale, the steps since it changed, and the steps that were skipped.
    ///
    /// # Errors
    /// [`Error::Repeated`] for a name of two variables, whose states would have one name; the errors of candle when it makes the tensors.
    pub fn export(&self, prefix: &str, checkpoint: &mut Checkpoint) -> Result<(), Error> {
        self.check_names()?;
        let steps: Vec<u32> = match &self.place {
            Place::Cpu(cpu) => cpu.clocks.iter().map(|(step, _)| *step).collect(),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.steps()?,
        };
        let count = steps.len();
        let steps = Tensor::from_vec(steps, count, &Device::Cpu)?;
        checkpoint.insert(format!("{prefix}step"), &steps);
        if self.options.adaptive_clipping {
            let records = match &self.place {
                Place::Cpu(cpu) => cpu.records.to_vec(),
                #[cfg(feature = "cuda")]
                Place::Gpu(gpu) => gpu.clip_records()?,
            };
            let count = records.len();
            let records = Tensor::from_vec(records, count, &Device::Cpu)?;
            checkpoint.insert(format!("{prefix}{RECORDS}"), &records);
        }
        if let Some(scale) = &self.scale {
            checkpoint.insert(format!("{prefix}{LOSS_SCALE}"), &scale.export()?);
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let moments = match &self.place {
                Place::Cpu(cpu) => cpu.clocks[index].1.clone(),
                #[cfg(feature = "cuda")]
                Place::Gpu(gpu) => gpu.moments(index)?,
            };
            let pair = match moments {
                Moments::F32(m, v) => {
                    [Tensor::new(m, &Device::Cpu)?, Tensor::new(v, &Device::Cpu)?]
                }
                Moments::F64(m, v) => {
                    [Tensor::new(m, &Device::Cpu)?, Tensor::new(v, &Device::Cpu)?]
                }
            };
            for (moment, kind) in pair.iter().zip(kinds(self.options.rule)) {
                let moment = moment.reshape(slot.var.shape())?;
                checkpoint.insert(format!("{prefix}{}.{kind}", slot.name), &moment);
            }
        }
        Ok(())
    }

    /// Checks that each name is that of one variable.
    fn check_names(&self) -> Result<(), Error> {
        let mut known = HashSet::new();
        let again = self.slots.iter().find(|slot| !known.insert(&slot.name));
        again.map_or(Ok(()), |slot| {
            Err(Error::Repeated {
                owner: "Adam",
                expected: "a name for the state of each variable",
                got: format!("two named `{}`", slot.name),
            })
        })
    }

    /// Takes the state out of a checkpoint that [`Adam::export`] filled. The count of refused steps begins anew.
    ///
    /// # Errors
    /// A missing tensor, a wrong shape or a wrong type. Nothing is then changed.
    pub fn import(&mut self, prefix: &str, checkpoint: &Checkpoint) -> Result<(), Error> {
        let steps = checkpoint.get(&format!("{prefix}step"), &[self.slots.len()], DType::U32)?;
        let steps: Vec<u32> = steps.to_vec1()?;
        let mut clocks = Vec::with_capacity(self.slots.len());
        for (slot, step) in self.slots.iter().zip(steps) {
            let get = |kind: &str| {
                let name = format!("{prefix}{}.{kind}", slot.name);
                checkpoint.get(&name, slot.var.dims(), slot.var.dtype())
            };
            let stored = kinds(self.options.rule).iter().map(|kind| get(kind));
            let stored = stored.collect::<Result<Vec<_>, Error>>()?;
            let moments = match slot.var.dtype() {
                DType::F64 => Moments::F64(numbers(stored.first())?, numbers(stored.get(1))?),
                _ => Moments::F32(numbers(stored.first())?, numbers(stored.get(1))?),
            };
            clocks.push((step, moments));
        }
        let records = match checkpoint.tensors().get(&format!("{prefix}{RECORDS}")) {
            Some(records) if self.options.adaptive_clipping => {
                let name = format!("{prefix}{RECORDS}");
                let records = checkpoint.get(&name, &[records.elem_count()], DType::F64)?;
                records.to_vec1()?
            }
            _ => Vec::new(),
        };
        if let Some(own) = &self.scale {
            let (dtype, count) = scale::STORED;
            let stored = checkpoint.get(&format!("{prefix}{LOSS_SCALE}"), &[count], dtype)?;
            own.set(own.read(&stored)?)?;
        }
        match &mut self.place {
            Place::Cpu(cpu) => {
                *cpu = OnCpu {
                    clocks,
                    records: Records::of(&records),
                    refusals: Refusals::default(),
                };
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.restore(&clocks, &records),
        }
    }
}

/// Gradients of variables.
pub(super) trait Gradients {
    /// The gradient of a variable, if there is one.
    fn of(&self, var: &Var) -> Option<Gradient<'_>>;
}

impl Gradients for GradStore {
    fn of(&self, var: &Var) -> Option<Gradient<'_>> {
        self.get(var).map(Gradient::Tensor)
    }
}

impl Gradients for Objective {
    fn of(&self, var: &Var) -> Option<Gradient<'_>> {
        self.gradient(var)
    }
}

/// The names of the moments in a checkpoint.
fn kinds(rule: Rule) -> &'static [&'static str] {
    match rule {
        Rule::Adam => &["exp_avg", "exp_avg_sq"],
        Rule::Lion => &["exp_avg"],
    }
}

/// The numbers of a moment in a checkpoint, none if there is none.
fn numbers<T: WithDType>(stored: Option<&Tensor>) -> Result<Vec<T>, Error> {
    match stored {
        None => Ok(Vec::new()),
        Some(stored) => Ok(stored.flatten_all()?.to_vec1()?),
    }
}

/// The step of an optimiser for a timeline.
fn operation(slots: &[Slot], rule: Rule) -> Arc<Operation> {
    let bytes = |slot: &Slot| slot.var.elem_count() * slot.var.dtype().size_in_bytes();
    let elements: usize = slots.iter().map(|slot| slot.var.elem_count()).sum();
    // The gradient is read; the parameter and its moments are read and written.
    let (passes, operations) = match rule {
        Rule::Adam => (7, OPERATIONS),
        Rule::Lion => (5, LION_OPERATIONS),
    };
    let bytes = passes * slots.iter().map(bytes).sum::<usize>();
    Arc::new(Operation {
        bytes,
        tensor_bytes: bytes,
        parameter_bytes: bytes,
        flops: Some(operations * elements),
        ..Operation::other("adam", None)
    })
}

/// Checks that each variable is there once: it would be changed twice in a step.
fn check_variables(variables: &[(String, Var)]) -> Result<(), Error> {
    let mut known = HashMap::new();
    for (name, var) in variables {
        if let Some(first) = known.insert(var.id(), name) {
            return Err(Error::Repeated {
                owner: "Adam",
                expected: "each variable once",
                got: format!("one as `{first}` and as `{name}`"),
            });
        }
    }
    Ok(())
}

fn check_loss(loss: &Tensor) -> Result<(), Error> {
    match loss.elem_count() {
        1 => Ok(()),
        _ => Err(Error::Shape {
            tensor: "loss".to_owned(),
            expected: "one element".to_owned(),
            got: loss.dims().to_vec(),
        }),
    }
}

impl Place {
    fn new(device: &Device, slots: &[Slot], options: &AdamOptions) -> Result<Self, Error> {
        match device {
            Device::Cpu => Ok(Self::Cpu(OnCpu::new(slots, options.rule))),
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Ok(Self::Gpu(Box::new(OnGpu::new(device, slots, options)?))),
            other => Err(Error::InputDevice {
                operator: "Adam".to_owned(),
                input: 0,
                expected: "the CPU or a CUDA device",
                got: other.location(),
            }),
        }
    }
}

impl OnCpu {
    fn new(slots: &[Slot], rule: Rule) -> Self {
        let zeros = |slot: &Slot| Moments::zeros(rule, slot.var.dtype(), slot.var.elem_count());
        let clocks = slots.iter().map(|slot| (0, zeros(slot)));
        Self {
            clocks: clocks.collect(),
            records: Records::default(),
            refusals: Refusals::default(),
        }
    }

    fn step(
        &mut self,
        options: &AdamOptions,
        slots: &[Slot],
        gradients: &impl Gradients,
        loss: Option<&Tensor>,
        scale: Option<&LossScale>,
    ) -> Result<(), Error> {
        let loss = match loss {
            None => 0.0,
            Some(loss) => cpu::number(loss)?,
        };
        let mut squares = 0.0;
        for slot in slots {
            if let Some(gradient) = gradients.of(&slot.var) {
                squares += cpu::squares(&gradient)?;
            }
        }
        let state = scale.map(LossScale::state).transpose()?;
        let power = state.map_or(1.0, |state| state.scale);
        let norm = squares.sqrt() / power;
        let refusals = &mut self.refusals;
        let halted = options.halt && refusals.count > 0;
        let call = refusals.calls;
        refusals.calls += 1;
        if let (Some(scale), Some(state)) = (scale, state)
            && !halted
            && loss.is_finite()
            && let Some(next) = scale.options().next(state, !norm.is_finite())
        {
            scale.set(next)?;
            if !norm.is_finite() {
                return Ok(());
            }
        }
        if halted || !loss.is_finite() || !norm.is_finite() {
            refusals.count += 1;
            refusals.first.get_or_insert(call);
            return Ok(());
        }
        let bound = match options.adaptive_clipping {
            false => options.clip_norm,
            true => {
                let bound = self.records.bound();
                self.records.note(norm, bound);
                Some(bound)
            }
        };
        let clip = match bound {
            // A GPU takes a bound of 0 for none.
            Some(0.0) => 1.0,
            Some(most) if norm > most => most / norm,
            _ => 1.0,
        };
        let done = self.clocks.iter().map(|(step, _)| *step).max().unwrap_or(0);
        let rate = options.learning_rate * options.schedule.factor(done.into());
        for (slot, (step, moments)) in slots.iter().zip(&mut self.clocks) {
            if let Some(gradient) = gradients.of(&slot.var) {
                *step += 1;
                let factors = cpu::Factors {
                    rate,
                    clip,
                    scale: power,
                };
                cpu::update(options, factors, *step, &slot.var, &gradient, moments)?;
            }
        }
        Ok(())
    }
}
