//! A plan on the CPU.

use std::marker::PhantomData;
use std::ops::{Deref, Range};

use candle_core::{Storage, Tensor};
use flashcliff::threads;
use flashcliff_network::{Cpu, Plan, Scales, Segments, Sources};
use parking_lot::RwLockReadGuard;

use super::operations::Reports;
use super::planned::Part;
use crate::Error;
use crate::op::Scalar;

/// The memory of a plan. It is taken once.
#[derive(Debug)]
pub(super) struct OnCpu<T> {
    pub(super) plan: Plan,
    memory: Cpu<T>,
    /// The error, and the gradients of parameters.
    sums: Vec<Vec<T>>,
    /// The error and the gradients of one part of a batch; empty until there are several parts.
    shares: Vec<Vec<T>>,
    loss: f64,
}

impl<T: Scalar> OnCpu<T> {
    pub(super) fn new(plan: Plan) -> Result<Self, Error> {
        let zeros = |&value: &_| {
            let len = plan
                .tensor(value)
                .map_or(0, |(shape, _)| shape.iter().product());
            vec![T::zero(); len]
        };
        Ok(Self {
            sums: plan.outputs().iter().map(zeros).collect(),
            memory: Cpu::new(&plan)?,
            plan,
            shares: Vec::new(),
            loss: 0.0,
        })
    }

    /// Computes the error of a part of a batch, and its gradients, multiplied by the scale of the loss.
    pub(super) fn run(
        &mut self,
        tensors: Lent<'_>,
        part: Part,
        loss_scale: f64,
        reports: Reports<'_>,
    ) -> Result<(), Error> {
        if part.adds && self.shares.is_empty() {
            let of = |sum: &Vec<T>| vec![T::zero(); sum.len()];
            self.shares = self.sums.iter().map(of).collect();
        }
        let outputs = match part.adds {
            true => &mut self.shares,
            false => &mut self.sums,
        };
        let scales = Scales {
            error: part.scale,
            gradient: loss_scale,
            relations: tensors.relations,
            ..Scales::default()
        };
        let (memory, plan) = (&mut self.memory, &self.plan);
        match reports.is_heard() {
            // A timeline belongs to the calling thread.
            true => {
                let mut watch = |call| reports.call(call);
                memory.run(plan, &tensors, outputs, scales, &mut watch)?;
            }
            false => threads::together(|| {
                memory.run(plan, &tensors, &mut *outputs, scales, &mut |_| {})
            })?,
        }
        let error = flashcliff::Element::to_f64(outputs[0][0]);
        self.loss = if part.adds { self.loss + error } else { error };
        if part.adds {
            for (sum, share) in self.sums.iter_mut().zip(&self.shares) {
                for (sum, &share) in sum.iter_mut().zip(share) {
                    *sum += share;
                }
            }
        }
        Ok(())
    }

    /// The bytes of all memory that is taken when the plan is made.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let outputs: usize = self.sums.iter().map(Vec::len).sum();
        size_of::<T>() * (self.memory.len()[0] + outputs)
    }

    /// The sum of the errors of the parts so far.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// An output: the gradient of a parameter.
    pub(super) fn output(&self, output: usize) -> &[T] {
        &self.sums[output]
    }
}

/// The tensors of a batch, the tensors of parameters, and the segments of relations.
#[derive(Clone, Copy)]
pub(super) struct Lent<'t> {
    pub(super) batch: &'t [Tensor],
    pub(super) parameters: &'t [Tensor],
    pub(super) relations: &'t [Segments],
}

impl<'t, T: Scalar> Sources<T> for Lent<'t> {
    type Guard<'a>
        = Elements<'t, T>
    where
        Self: 'a;
    type Error = Error;

    fn input(&self, input: usize) -> Result<Elements<'t, T>, Error> {
        Elements::of(self.batch.get(input))
    }

    fn parameter(&self, parameter: usize) -> Result<Elements<'t, T>, Error> {
        Elements::of(self.parameters.get(parameter))
    }
}

/// The elements of a contiguous tensor, which is locked while this lives. The locks of all tensors of a plan would need a list that is
/// allocated in each step.
pub(super) struct Elements<'t, T> {
    storage: RwLockReadGuard<'t, Storage>,
    range: Range<usize>,
    element: PhantomData<T>,
}

impl<'t, T: Scalar> Elements<'t, T> {
    fn of(tensor: Option<&'t Tensor>) -> Result<Self, Error> {
        let op = "objective";
        let refused = || candle_core::Error::RequiresContiguous { op };
        let (storage, layout) = tensor.ok_or_else(refused)?.storage_and_layout();
        let (start, end) = layout.contiguous_offsets().ok_or_else(refused)?;
        let elements = Self {
            storage,
            range: start..end,
            element: PhantomData,
        };
        elements.all().ok_or_else(refused)?;
        Ok(elements)
    }

    fn all(&self) -> Option<&[T]> {
        let Storage::Cpu(storage) = &*self.storage else {
            return None;
        };
        let all = T::cpu_storage_as_slice(storage).ok()?;
        all.get(self.range.clone())
    }
}

impl<T: Scalar> Deref for Elements<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // The elements were found when this was made.
        self.all().unwrap_or_default()
    }
}
