//! The optimisers on a GPU: the state and the moments, in memory of candle's device.

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::{CpuStorage, CudaDevice, CudaStorage, DType, Tensor};
use flashcliff::cuda::cudarc::driver::CudaSlice;
use flashcliff::cuda::{
    self, AdamParameter, AdamRule, AdamSettings, AdamState, Scratch, TensorMut,
};

use super::adam::{Gradients, Refusals, Slot};
use super::cpu::{Moments, second_count};
use super::options::{AdamOptions, Rule};
use super::scale::LossScale;
use super::schedule::ScheduleShape;
use crate::Error;
use crate::objective::Gradient;
use crate::op::gpu::{library, memory};

/// The state of an optimiser on a GPU. Its memory stays where it is, since captured steps use it.
#[derive(Debug)]
pub(super) struct OnGpu {
    device: CudaDevice,
    rule: Rule,
    adam: cuda::Adam,
    state: CudaSlice<u8>,
    means: Vec<CudaStorage>,
    /// Empty ones for Lion.
    squares: Vec<CudaStorage>,
}

impl OnGpu {
    pub(super) fn new(
        device: &CudaDevice,
        slots: &[Slot],
        options: &AdamOptions,
    ) -> Result<Self, Error> {
        let counts: Vec<usize> = slots.iter().map(|slot| slot.var.elem_count()).collect();
        let adam = cuda::Adam::new(&library::device(device)?, &settings(options), &counts)?;
        let zeros = |count: fn(Rule, usize) -> usize| {
            let zeros = slots.iter().map(|slot| {
                let count = count(options.rule, slot.var.elem_count());
                // An allocation of no bytes is an error for some drivers.
                device.zeros_impl(&count.max(1).into(), slot.var.dtype())
            });
            zeros.collect::<candle_core::Result<Vec<_>>>()
        };
        let state = adam.state(&vec![0; slots.len()])?;
        Ok(Self {
            state: device.clone_htod(&state)?,
            means: zeros(|_, count| count)?,
            squares: zeros(second_count)?,
            device: device.clone(),
            rule: options.rule,
            adam,
        })
    }

    /// Launches a step. `gradients` are checked against the parameters.
    pub(super) fn step(
        &mut self,
        slots: &[Slot],
        gradients: &impl Gradients,
        loss: Option<&Tensor>,
        scale: Option<&LossScale>,
    ) -> Result<(), Error> {
        let mut tensors = Vec::with_capacity(2 * slots.len() + 2);
        let mut present = Vec::with_capacity(slots.len());
        for (index, slot) in slots.iter().enumerate() {
            let Some(gradient) = gradients.of(&slot.var) else {
                continue;
            };
            let at = tensors.len();
            tensors.push(slot.var.as_tensor().clone());
            let gradient = match gradient {
                Gradient::Tensor(tensor) => {
                    tensors.push(tensor.contiguous()?);
                    None
                }
                Gradient::Gpu(storage) => {
                    let view = memory::View::of(storage, 0..slot.var.elem_count());
                    Some(view.ok_or_else(|| memory::misplaced("Adam"))?)
                }
                Gradient::F32(_) | Gradient::F64(_) => return Err(memory::misplaced("Adam")),
            };
            present.push((index, at, gradient));
        }
        let loss_at = tensors.len();
        tensors.extend(loss.map(Tensor::contiguous).transpose()?);
        let scale_at = scale.map(|_| tensors.len());
        tensors.extend(scale.map(|scale| scale.tensor().clone()));
        let stream = self.device.cuda_stream();
        let ordinal = stream.context().ordinal();
        let (adam, state, rule) = (&self.adam, &mut self.state, self.rule);
        let (means, squares) = (&mut self.means, &mut self.squares);
        memory::with_views(&tensors, |views| {
            let mut own: Vec<(memory::ViewMut<'_>, memory::ViewMut<'_>)> = Vec::new();
            let moments = means.iter_mut().zip(squares.iter_mut()).enumerate();
            for (index, (mean, square)) in moments {
                if present.iter().any(|(present, ..)| *present == index) {
                    let len = slots[index].var.elem_count();
                    let square = memory::writable(square, second_count(rule, len))?;
                    own.push((memory::writable(mean, len)?, square));
                }
            }
            let mut parameters = Vec::with_capacity(present.len());
            for ((slot, at, gradient), (mean, square)) in present.iter().zip(&mut own) {
                let (slot, parameter) = (*slot, &views[*at]);
                let gradient = gradient.as_ref().unwrap_or(&views[at + 1]);
                let shape = [slots[slot].var.elem_count()];
                #[allow(
                    unsafe_code,
                    reason = "candle lends the memory of one variable at a time for writing"
                )]
                // SAFETY: the variable is alive and locked for reading, so its memory stays; it is freed in the order of the stream.
                // All work on it is launched on this stream, so the update comes after earlier work and before later work.
                let parameter = unsafe {
                    TensorMut::from_raw(
                        parameter.address(&stream),
                        parameter.dtype(),
                        &shape,
                        ordinal,
                    )?
                };
                parameters.push(AdamParameter {
                    slot,
                    parameter,
                    gradient: gradient.tensor(&shape)?,
                    mean: mean.tensor(&shape)?,
                    square: match rule {
                        Rule::Adam => Some(square.tensor(&shape)?),
                        Rule::Lion => None,
                    },
                });
            }
            let loss = loss.map(|_| views[loss_at].tensor(&[1])).transpose()?;
            let state = Scratch::new(state);
            let Some(at) = scale_at else {
                return Ok(adam.step(&stream, &mut parameters, loss, state)?);
            };
            let shape = [cuda::LossScaling::NUMBERS];
            #[allow(
                unsafe_code,
                reason = "candle lends the memory of a variable for reading only"
            )]
            // SAFETY: the variable is alive and locked for reading, so its memory stays. All work on it is launched on this stream, so the
            // update comes after earlier work and before later work.
            let scale = unsafe {
                let address = views[at].address(&stream);
                TensorMut::from_raw(address, views[at].dtype(), &shape, ordinal)?
            };
            Ok(adam.scaled_step(&stream, &mut parameters, loss, scale, state)?)
        })
    }

    pub(super) fn set_learning_rate(&mut self, learning_rate: f64) -> Result<(), Error> {
        let bytes = learning_rate.to_ne_bytes();
        let mut own = self.state.slice_mut(cuda::Adam::learning_rate_bytes());
        Ok(self.device.memcpy_htod(&bytes, &mut own)?)
    }

    /// The counters of the device. The call waits for them.
    fn state(&self) -> Result<AdamState, Error> {
        let bytes = self.device.clone_dtoh(&self.state)?;
        Ok(self.adam.read_state(&bytes)?)
    }

    pub(super) fn refusals(&self) -> Result<Refusals, Error> {
        let state = self.state()?;
        Ok(Refusals {
            calls: state.calls,
            count: state.refused,
            first: state.first_refused,
        })
    }

    pub(super) fn steps(&self) -> Result<Vec<u32>, Error> {
        Ok(self.state()?.steps)
    }

    pub(super) fn clip_records(&self) -> Result<Vec<f64>, Error> {
        Ok(self.state()?.clip_records)
    }

    /// Copies of the moments of a parameter.
    pub(super) fn moments(&self, slot: usize) -> Result<Moments, Error> {
        let copies = (
            self.means[slot].to_cpu_storage()?,
            self.squares[slot].to_cpu_storage()?,
        );
        let second = |count| second_count(self.rule, count);
        match copies {
            (CpuStorage::F32(m), CpuStorage::F32(mut v)) => {
                v.truncate(second(m.len()));
                Ok(Moments::F32(m, v))
            }
            (CpuStorage::F64(m), CpuStorage::F64(mut v)) => {
                v.truncate(second(m.len()));
                Ok(Moments::F64(m, v))
            }
            (other, _) => Err(wrong_type(other.dtype())),
        }
    }

    /// Sets steps, moments and the records of adaptive clipping. Nothing moves in memory.
    pub(super) fn restore(
        &mut self,
        clocks: &[(u32, Moments)],
        clip_records: &[f64],
    ) -> Result<(), Error> {
        let steps: Vec<u32> = clocks.iter().map(|(step, _)| *step).collect();
        let state = self.adam.resumed_state(&steps, clip_records)?;
        for ((_, moments), (mean, square)) in clocks
            .iter()
            .zip(self.means.iter_mut().zip(&mut self.squares))
        {
            match (moments, &mut mean.slice, &mut square.slice) {
                (
                    Moments::F32(m, v),
                    CudaStorageSlice::F32(mean),
                    CudaStorageSlice::F32(square),
                ) => {
                    self.device.memcpy_htod(m, mean)?;
                    self.device.memcpy_htod(v, square)?;
                }
                (
                    Moments::F64(m, v),
                    CudaStorageSlice::F64(mean),
                    CudaStorageSlice::F64(square),
                ) => {
                    self.device.memcpy_htod(m, mean)?;
                    self.device.memcpy_htod(v, square)?;
                }
                _ => return Err(wrong_type(mean.dtype())),
            }
        }
        Ok(self.device.memcpy_htod(&state, &mut self.state)?)
    }
}

fn wrong_type(got: DType) -> Error {
    Error::InputType {
        operator: "Adam".to_owned(),
        input: 0,
        expected: "F32 or F64",
        got,
    }
}

fn settings(options: &AdamOptions) -> AdamSettings {
    let schedule = &options.schedule;
    AdamSettings {
        rule: match options.rule {
            Rule::Adam => AdamRule::Adam,
            Rule::Lion => AdamRule::Lion,
        },
        learning_rate: options.learning_rate,
        beta1: options.beta1,
        beta2: options.beta2,
        eps: options.eps,
        weight_decay: options.weight_decay,
        decoupled: options.decoupled,
        clip_norm: options.clip_norm,
        adaptive_clipping: options.adaptive_clipping,
        loss_scaling: options.loss_scale.map(|scale| cuda::LossScaling {
            growth: scale.growth,
            backoff: scale.backoff,
            interval: scale.interval,
            least: scale.least,
            most: scale.most,
        }),
        halt: options.halt,
        shape: match schedule.shape() {
            ScheduleShape::Constant => cuda::ScheduleShape::Constant,
            ScheduleShape::Cosine => cuda::ScheduleShape::Cosine,
            ScheduleShape::HalfCosine => cuda::ScheduleShape::HalfCosine,
        },
        warmup: schedule.warmup(),
        steps: schedule.steps(),
        floor: schedule.floor(),
    }
}
