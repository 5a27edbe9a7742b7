//! Whether a device has room for the memory of a plan. The question comes before the memory is taken, once, so no step waits for the answer.

use candle_core::Device;
use flashcliff::{Dtype, memory};

use super::plan::{Plan, Work};
use crate::Error;

/// The bytes of the memory of a plan. What grows with the rows is apart from what does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    rows: usize,
    parts: usize,
    values: u128,
    /// The bytes that operators save beside the values.
    saved: u128,
    /// The gradients of values.
    gradients: u128,
    /// The gradients of parameters.
    sums: u128,
    /// Packed weights, and the parts of their gradients, on a GPU.
    packed: u128,
    /// Workspaces of operators, on a GPU. Those of matrix products grow with the rows up to a limit.
    workspaces: u128,
}

impl Room {
    /// The room of a plan for each of so many parts of a batch. The types are those of the features and of the model.
    pub(super) fn of(plan: &Plan, dtypes: [Dtype; 2], parts: usize) -> Self {
        let wide = |len: usize| (len * dtypes[1].bytes()) as u128;
        let saved = plan.nodes.iter().map(|node| match &node.work {
            Work::Operator(operator, dims) => wide(operator.saved_len(dims)),
            _ => 0,
        });
        let parameters = plan.parameters.iter();
        let sums: u128 = parameters.map(|p| wide(p.elem_count())).sum();
        Self {
            rows: plan.rows,
            parts,
            values: plan.value_bytes(dtypes) as u128,
            saved: saved.sum(),
            gradients: plan.gradient_bytes(dtypes) as u128,
            sums: if parts > 1 { 2 * sums } else { sums },
            packed: 0,
            workspaces: 0,
        }
    }

    /// The room on a GPU, whose operators save, pack and work in so many bytes.
    #[cfg(feature = "cuda")]
    pub(super) fn on_gpu(self, saved: usize, packed: usize, workspaces: usize) -> Self {
        Self {
            saved: saved as u128,
            packed: packed as u128,
            workspaces: workspaces as u128,
            ..self
        }
    }

    /// All bytes.
    pub(super) fn taken(&self) -> u128 {
        self.of_rows() + self.sums + self.packed
    }

    fn of_rows(&self) -> u128 {
        self.values + self.saved + self.gradients + self.workspaces
    }

    /// The largest batch that fits into so many bytes, with as many parts; 0 if none does.
    fn largest_batch(&self, available: u128) -> u128 {
        let of_rows = self.of_rows().max(1);
        let fixed = self.sums + self.packed;
        available.saturating_sub(fixed) * self.rows as u128 / of_rows * self.parts as u128
    }

    fn in_words(&self, model: &str) -> String {
        let mebibytes = |bytes: u128| bytes.div_ceil(1 << 20);
        format!(
            "training {model}: the buffers of a batch of {} in {} part(s) ({} MiB of values, {} of their gradients, {} of those of parameters, {} of packed weights and workspaces)",
            self.rows as u128 * self.parts as u128,
            self.parts,
            mebibytes(self.values + self.saved),
            mebibytes(self.gradients),
            mebibytes(self.sums),
            mebibytes(self.packed + self.workspaces)
        )
    }

    fn remedy(&self, available: Option<u128>) -> String {
        match available.map(|bytes| self.largest_batch(bytes)) {
            None => "raise the limit, or make the batch smaller".to_owned(),
            Some(0) => "no batch fits in so many parts".to_owned(),
            Some(batch) => format!(
                "the largest batch that fits is {batch}; more parts of a batch need less, for the same results"
            ),
        }
    }

    /// Checks that a device has room.
    ///
    /// # Errors
    /// [`flashcliff::Error::OutOfMemory`] with the largest batch that fits.
    pub(super) fn check(&self, model: &str, device: &Device) -> Result<(), Error> {
        let wanted = self.taken();
        match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => {
                let gpu = crate::op::gpu::library::device(device)?;
                let available = u128::from(gpu.available_memory()?);
                if wanted <= available {
                    return Ok(());
                }
                let remedy = self.remedy(Some(available));
                let what = self.in_words(model);
                Err(memory::no_room(what, wanted, Some(available), remedy).into())
            }
            _ => Ok(memory::check(&self.in_words(model), wanted, |available| {
                self.remedy(available)
            })?),
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::models::{Architecture, Model};

    fn room(model: &Model, rows: usize, parts: usize) -> Room {
        let plan = model.plan(rows / parts).unwrap().unwrap();
        Room::of(&plan, [Dtype::F32; 2], parts)
    }

    #[test]
    fn a_plan_takes_what_was_counted() {
        for architecture in [
            Architecture::Hulls,
            Architecture::Regression { width: 20 },
            Architecture::Volumes,
        ] {
            for rows in [1, 5, 32] {
                let model = Model::new(architecture, 3, DType::F32).unwrap();
                let plan = model.plan(rows).unwrap().unwrap();
                let taken = super::super::cpu::OnCpu::<f32>::new(&plan).bytes();
                let counted = room(&model, rows, 1).taken();
                assert_eq!(counted, taken as u128, "{architecture:?} {rows}");
            }
        }
    }

    #[test]
    fn the_largest_batch_fits_and_the_next_does_not() {
        let model = Model::new(Architecture::Hulls, 3, DType::F32).unwrap();
        let available = 1 << 30;
        for parts in [1, 4] {
            let largest = room(&model, 64, parts).largest_batch(available);
            let largest = usize::try_from(largest).unwrap();
            assert!(room(&model, largest, parts).taken() <= available);
            assert!(room(&model, largest + parts, parts).taken() > available);
        }
        assert_eq!(room(&model, 64, 1).largest_batch(1000), 0);
    }
}
