//! The memory of a pass, and the largest batch that fits.

use super::{Dims, Operator, Pass};
use crate::{Dtype, Error, TensorSpec, memory};

/// The number of bytes from which on buffers are not counted: they could not be addressed, and the tensors alone have no room.
const ENDLESS: u128 = 1 << 56;

/// The bytes that a pass works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The tensors that the pass reads: inputs; in a backward pass the output, its gradient and the saved values too.
    pub given: u128,
    /// The tensors that the pass writes: the output and the saved values, or the gradients of all inputs.
    pub made: u128,
    /// The workspace on the CPU, with the threads that are in force.
    pub workspace: u128,
}

impl Footprint {
    /// The bytes that are held at once.
    pub fn peak(&self) -> u128 {
        self.given + self.made + self.workspace
    }
}

impl Operator {
    /// The bytes of a pass on the CPU, for sizes however large.
    pub fn footprint(&self, dims: &Dims, dtype: Dtype, pass: Pass) -> Footprint {
        let elements = |spec: &TensorSpec| {
            let sizes = spec.sizes(dims).map(|size| size as u128);
            sizes.fold(1_u128, u128::saturating_mul)
        };
        let bytes = dtype.bytes() as u128;
        let sum = |specs: &[TensorSpec]| {
            let sum = specs.iter().map(elements).fold(0, u128::saturating_add);
            sum.saturating_mul(bytes).min(u128::MAX >> 4)
        };
        let (inputs, output) = (sum(self.inputs()), sum(std::slice::from_ref(self.output())));
        let is_countable = inputs + output < ENDLESS;
        let saved = match is_countable {
            true => self.saved_len(dims) as u128 * bytes,
            false => 0,
        };
        let workspace = match (is_countable, dtype) {
            (false, _) => 0,
            (_, Dtype::F64) => self.workspace_len::<f64>(dims, pass) as u128 * bytes,
            _ => self.workspace_len::<f32>(dims, pass) as u128 * bytes,
        };
        match pass {
            Pass::Forward => Footprint {
                given: inputs,
                made: output + saved,
                workspace,
            },
            Pass::Backward => Footprint {
                given: inputs + 2 * output + saved,
                made: inputs,
                workspace,
            },
        }
    }

    /// The largest batch whose pass needs at most so many bytes; 0 if none does. All else is as in `dims`.
    pub fn largest_batch(
        &self,
        dims: &Dims,
        available: u128,
        bytes: impl Fn(&Dims) -> u128,
    ) -> usize {
        let fits = |batch: usize| bytes(&Dims { batch, ..*dims }) <= available;
        // The bytes grow with the batch, but for the padding of buffers, which is too small to matter.
        let (mut low, mut high) = (0, 1);
        while fits(high) {
            low = high;
            match high.checked_mul(2).filter(|&next| next < 1 << 40) {
                Some(next) => high = next,
                None => return low,
            }
        }
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match fits(middle) {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// Checks that there is room for the tensors and the workspace that a pass makes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the largest batch that fits.
    pub fn check_room(&self, dims: &Dims, dtype: Dtype, pass: Pass) -> Result<(), Error> {
        let new = |dims: &Dims| {
            let footprint = self.footprint(dims, dtype, pass);
            footprint.made + footprint.workspace
        };
        let what = || {
            let Dims {
                batch,
                in_channels,
                out_channels,
            } = dims;
            format!(
                "{}: the {pass} pass with a batch of {batch}, {in_channels} channels in and {out_channels} out in {dtype}",
                self.name()
            )
        };
        let wanted = new(dims);
        if wanted < memory::THRESHOLD {
            return Ok(());
        }
        memory::check(&what(), wanted, |available| {
            match available.map(|available| self.largest_batch(dims, available, new)) {
                None => "raise the limit, or make the batch smaller".to_owned(),
                Some(0) => "no batch fits with so many channels".to_owned(),
                Some(batch) => format!("the largest batch that fits is {batch}"),
            }
        })
    }
}
