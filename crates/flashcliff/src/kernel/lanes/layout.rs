//! The parts of a workspace.

use super::{Call, Operand, Parameter};
use crate::Element;
use crate::kernel::rows::RowWriter;
use crate::kernel::tasks::{self, Chunks};

/// The length of the run that each component of the waiting outputs should have, in bytes. Many short runs of writes
/// past the caches take twice the time of a few long ones.
const RUN_BYTES: usize = 8 << 10;
/// The most bytes of a second-level cache that all waiting outputs may take.
const WAITING_BYTES: usize = 256 << 10;

/// The bytes of a line of the cache. The parts of a workspace start with a line, so that vectors lie in one line each.
pub(super) const LINE_BYTES: usize = 64;

/// How a call is cut, and the sizes of the parts of its workspace, in elements.
pub(super) struct Layout {
    /// Channels, rounded up to whole vectors.
    pub(super) padded: usize,
    /// Whether there are fewer channels than that: rows then go by way of scratch memory.
    pub(super) ragged: bool,
    /// The distance from one component of an input in scratch memory to the next. It is one vector more than a row
    /// needs, because rows of a power of two would all fall into the same sets of the first cache.
    pub(super) input_stride: usize,
    /// The distance from one component of the waiting outputs to the next, with the same extra vector.
    pub(super) output_stride: usize,
    /// How many rows of outputs wait in scratch memory until they are written.
    pub(super) waiting: usize,
    /// The distance from one component of a cut or parameter to the next for interpreted stages, with the same extra
    /// vector; 0 for compiled stages, which want them packed.
    pub(super) planar_stride: usize,
    /// The length of all parameters.
    pub(super) params: usize,
    /// The length of the sums over the batch of one chunk.
    pub(super) partial: usize,
    /// The length of the scratch memory of one task.
    pub(super) scratch: usize,
    /// The extra length of a workspace, whose first element may lie anywhere in a line of the cache.
    pub(super) slack: usize,
    pub(super) chunks: Chunks,
    pub(super) writer: RowWriter,
}

impl Layout {
    pub(super) fn of<T: Element>(call: &Call<'_, T>) -> Self {
        let size = size_of::<T>();
        let lanes = T::lanes(call.tier);
        let padded = call.channels.next_multiple_of(lanes);
        let ragged = padded != call.channels;
        let largest = call.outputs.iter().map(|o| o.components).max().unwrap_or(0);
        let writer = RowWriter::new(call.tier, call.batch * call.channels * largest * size);

        let (inputs, outputs) = (components(call.inputs), components(call.outputs));
        let row_bytes = padded * size;
        let fit = WAITING_BYTES / (outputs * row_bytes).max(1);
        let waiting = match writer.streams() && !ragged {
            true => (RUN_BYTES / row_bytes.max(1)).min(fit).max(1),
            false => 1,
        };
        let (input_stride, output_stride) = (padded + lanes, padded * waiting + lanes);
        let copied = if ragged { inputs } else { 0 };
        let planar_stride = match call.plan.is_interpreted() {
            true => input_stride,
            false => 0,
        };
        let whole_lines = |len: usize| len.next_multiple_of(LINE_BYTES / size);
        let component = planar_stride.max(padded);
        let cuts: usize = call.plan.cuts.iter().sum();
        Self {
            padded,
            ragged,
            input_stride,
            output_stride,
            waiting,
            planar_stride,
            params: whole_lines(count(call.params) * component),
            partial: whole_lines(count(call.sums) * component),
            scratch: whole_lines(
                cuts * component + copied * input_stride + outputs * output_stride,
            ),
            slack: LINE_BYTES / size,
            chunks: Chunks::new(call.batch, call.flops * call.channels),
            writer,
        }
    }

    /// The length of a cut or parameter with so many components.
    pub(super) fn private_len(&self, components: usize) -> usize {
        components * self.planar_stride.max(self.padded)
    }

    /// The offset of value `k` of a channel in a parameter with `count` values a channel. The channel is a lane of the
    /// group-th vector.
    pub(super) fn parameter(
        &self,
        count: usize,
        k: usize,
        [group, lane, lanes]: [usize; 3],
    ) -> usize {
        match self.planar_stride {
            0 => (group * count + k) * lanes + lane,
            stride => k * stride + group * lanes + lane,
        }
    }

    pub(super) fn len(&self) -> usize {
        let chunks = self.chunks.count();
        let parts = self.params + self.partial * chunks + self.scratch * tasks::task_count(chunks);
        parts + self.slack
    }
}

fn components<T>(operands: &[Operand<T>]) -> usize {
    operands.iter().map(|operand| operand.components).sum()
}

fn count<T>(params: &[Parameter<T>]) -> usize {
    params.iter().map(|param| param.count).sum()
}
