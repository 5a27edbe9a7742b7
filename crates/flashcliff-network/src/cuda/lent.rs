//! What a host lends to a run.

use flashcliff::cuda::Tensor;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::segments::Addresses;

use crate::network::Set;
use crate::{Error, Rows};

/// What a host lends to the run of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    /// The inputs, in their order, with the shapes of the plan. Inputs after the last one that the stage reads may be left out.
    pub inputs: &'a [Tensor<'a>],
    /// The parameters, in their order, with the shapes of the plan.
    pub parameters: &'a [Tensor<'a>],
    /// The addresses of the outputs, in their order: first the outputs of earlier stages, then the stage's outputs.
    pub outputs: &'a [CUdeviceptr],
    /// The address of what is kept between stages; 0 for a plan of one.
    pub kept: CUdeviceptr,
    /// The factor of the sums of squared errors.
    pub error_scale: f64,
    /// Whether squared errors are added to what is in their outputs.
    pub adds_error: bool,
    /// The numbers of a scale of the loss, as [`squared_error`](flashcliff::cuda::network::squared_error) takes them.
    pub loss_scale: Option<Tensor<'a>>,
    /// The sequences of a ragged batch, in a plan of one sample, and the sequences of their contexts, which have no
    /// bounds without a context. Items attend within their sequence. Without sequences each sample of the plan is one
    /// sequence.
    pub sequences: Option<[Sequences<'a>; 2]>,
    /// The segments of each [relation](crate::Network::relation), in their order: the addresses of
    /// [`DeviceSegments`](super::DeviceSegments), or of other segments with numbers in range.
    pub relations: &'a [Addresses],
    /// The random numbers of dropout. Without them nothing is dropped.
    pub draw: Option<Draw>,
}

/// The sequences of a ragged batch, or the sequences of their contexts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequences<'a> {
    /// Where the sequences begin among the rows, and the number of rows.
    pub bounds: &'a [usize],
    /// The address of the same numbers as `i32`.
    pub address: CUdeviceptr,
}

/// The random numbers of dropout in a run.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// The key.
    pub key: u64,
    /// The address of the number of the pass, an `u32`. It is read when the work runs, so a captured step drops
    /// others each time it is counted on.
    pub step: CUdeviceptr,
}

impl Sequences<'_> {
    /// The number of sequences.
    pub(super) fn count(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// The items of the longest sequence.
    pub(super) fn longest(&self) -> usize {
        let lengths = self.bounds.windows(2).map(|pair| pair[1] - pair[0]);
        lengths.max().unwrap_or(0)
    }

    /// Checks the bounds for the rows of a set, of as many sequences as there are of items.
    fn check(&self, batch: Rows, set: Set, count: usize) -> Result<(), Error> {
        let (bounds, rows) = (self.bounds, batch.of(set));
        let ascends = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
        let fits = bounds.first() == Some(&0) && bounds.last() == Some(&rows);
        let is_without = set == Set::Context && bounds.is_empty() && rows == 0;
        let is_right = batch.samples == 1 && fits && ascends && self.count() == count;
        match is_without || is_right {
            true => Ok(()),
            false => Err(Error::Sequences {
                rows,
                count,
                got: format!("{bounds:?}"),
            }),
        }
    }
}

/// Checks the sequences of items and of their contexts for a plan.
pub(super) fn check([items, context]: &[Sequences<'_>; 2], batch: Rows) -> Result<(), Error> {
    items.check(batch, Set::Items, items.count())?;
    context.check(batch, Set::Context, items.count())
}
