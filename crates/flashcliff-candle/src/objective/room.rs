//! Whether a device has room for the memory of a plan. The question comes before the memory is taken, once, so no
//! step waits for the answer.

use candle_core::Device;
use flashcliff::memory;
use flashcliff_network::{Plan, Value};

use super::planned::Batch;
use crate::Error;

/// The bytes of the memory of a plan. What grows with the rows is apart from what does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    rows: usize,
    parts: usize,
    /// Values, their gradients, and what operators save: the arena.
    values: u128,
    /// The gradients of parameters, and the error.
    sums: u128,
    /// Packed weights, and the parts of their gradients, on a GPU.
    packed: u128,
    /// Workspaces of operators, on a GPU. Workspaces of matrix products grow with the rows up to a limit.
    workspaces: u128,
}

impl Room {
    /// The room of a plan for each part of a batch.
    pub(super) fn of(plan: &Plan, batch: Batch<'_>) -> Self {
        let bytes = |value: &Value| {
            let tensor = plan.tensor(*value);
            let bytes =
                tensor.map(|(shape, dtype)| shape.iter().product::<usize>() * dtype.bytes());
            bytes.unwrap_or(0) as u128
        };
        let (error, gradients) = plan.outputs().split_at(1.min(plan.outputs().len()));
        let gradients: u128 = gradients.iter().map(bytes).sum();
        // Each part has its own gradients, which are added to the sums.
        let copies = if batch.parts > 1 { 2 } else { 1 };
        let sums = copies * gradients + error.iter().map(bytes).sum::<u128>();
        Self {
            // The rows of networks on graphs are samples here, not nodes.
            rows: batch.rows / batch.parts,
            parts: batch.parts,
            values: plan.arena_bytes() as u128,
            sums,
            packed: 0,
            workspaces: 0,
        }
    }

    /// The room on a GPU, whose operators pack and work in so many bytes.
    #[cfg(feature = "cuda")]
    pub(super) fn on_gpu(self, packed: usize, workspaces: usize) -> Self {
        Self {
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
        self.values + self.workspaces
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
            "training {model}: the memory of a batch of {} in {} part(s) ({} MiB of values and their gradients, {} of those of parameters, {} of packed weights and workspaces)",
            self.rows as u128 * self.parts as u128,
            self.parts,
            mebibytes(self.values),
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

    use super::super::planned::{Place, Planned};
    use super::super::{Objective, Work};
    use crate::models::{Architecture, Model};

    fn planned(architecture: Architecture, rows: usize, parts: usize) -> Planned {
        let model = Model::new(architecture, 3, DType::F32).unwrap();
        match Objective::new(&model, rows, parts).unwrap().work {
            Work::Planned(planned) => *planned,
            Work::Graph(_) => panic!("no plan"),
        }
    }

    #[test]
    fn a_plan_takes_what_was_counted() {
        for architecture in [
            Architecture::Hulls,
            Architecture::Regression { width: 20 },
            Architecture::Volumes,
        ] {
            for rows in [1, 5, 32] {
                let planned = planned(architecture, rows, 1);
                let Place::F32(cpu) = &planned.place else {
                    panic!("another type");
                };
                let taken = cpu.bytes() as u128;
                assert_eq!(planned.room.taken(), taken, "{architecture:?} {rows}");
            }
        }
    }

    #[test]
    fn the_largest_batch_fits_and_the_next_does_not() {
        let available = 1 << 30;
        for parts in [1, 4] {
            let largest = planned(Architecture::Hulls, 64, parts)
                .room
                .largest_batch(available);
            let largest = usize::try_from(largest).unwrap();
            let taken = |rows| planned(Architecture::Hulls, rows, parts).room.taken();
            let largest = largest / parts * parts;
            assert!(taken(largest) <= available);
            // Places are multiples of 256 bytes, so a few rows more may fit.
            assert!(taken(largest + largest / 100 / parts * parts) > available);
        }
        assert_eq!(
            planned(Architecture::Hulls, 64, 1).room.largest_batch(1000),
            0
        );
    }
}
