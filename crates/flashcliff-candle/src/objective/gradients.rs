//! The gradients of the last batch, where they lie.

use candle_core::{Device, Tensor, Var};

use super::planned::Place;
use super::{Objective, Work};
use crate::Error;
#[cfg(feature = "cuda")]
use crate::op::gpu::memory::{self, View};
use crate::op::once;

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
    /// A copy of the gradient of a variable in the last batch; `None` if the error does not depend on it, or if a step of an optimiser
    /// has freed it.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn gradient_of(&self, var: &Var) -> Result<Option<Tensor>, Error> {
        let shape = var.shape();
        let copy = match self.gradient(var) {
            None => return Ok(None),
            Some(Gradient::Tensor(tensor)) => tensor.clone(),
            Some(Gradient::F32(data)) => Tensor::from_slice(data, shape, &Device::Cpu)?,
            Some(Gradient::F64(data)) => Tensor::from_slice(data, shape, &Device::Cpu)?,
            #[cfg(feature = "cuda")]
            Some(Gradient::Gpu(storage)) => {
                use candle_core::backend::BackendStorage;

                let layout = candle_core::Layout::contiguous(shape);
                let copy = candle_core::Storage::Cuda(storage.try_clone(&layout)?);
                crate::op::node::constant(copy, shape.dims())
            }
        };
        let copy = once::Gradient::Found(copy).of(var, "Objective")?;
        Ok(Some(copy))
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
                let tensors = planned.tensors.iter().zip(&planned.gradients);
                for (tensor, output) in tensors {
                    let Some(output) = *output else { continue };
                    let count = tensor.elem_count();
                    let view = gpu.output(output).and_then(|sum| View::of(sum, 0..count));
                    let view = view.ok_or_else(|| memory::misplaced("objective"))?;
                    views.push((view, count));
                }
                memory::with_views(std::slice::from_ref(loss), |loss| {
                    let gradients = views.iter().map(|(view, count)| (view, *count));
                    let all: Vec<_> = gradients.chain(loss.iter().map(|view| (view, 1))).collect();
                    f(&all)
                })
            }
            Work::Graph(own) => {
                let mut tensors = Vec::new();
                if let Some(gradients) = &mut own.gradients {
                    for (_, var) in own.model.parameters().variables() {
                        // Gradients of candle's graph may share memory, with each other too, so each gets its own memory.
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
        if let Work::Graph(own) = &mut self.work {
            own.gradients = None;
        }
    }

    /// The gradient of a variable in the last batch.
    pub(crate) fn gradient(&self, var: &Var) -> Option<Gradient<'_>> {
        match &self.work {
            Work::Graph(own) => own.gradients.as_ref()?.get(var).map(Gradient::Tensor),
            Work::Planned(planned) => {
                let mut parameters = planned.tensors.iter();
                let at = parameters.position(|tensor| tensor.id() == var.id())?;
                let output = planned.gradients[at]?;
                Some(match &planned.place {
                    Place::F32(cpu) => Gradient::F32(cpu.output(output)),
                    Place::F64(cpu) => Gradient::F64(cpu.output(output)),
                    #[cfg(feature = "cuda")]
                    Place::Gpu(gpu) => Gradient::Gpu(gpu.output(output)?),
                })
            }
        }
    }
}
