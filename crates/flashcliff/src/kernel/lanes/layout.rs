//! The parts of a workspace.

use super::{Call, Operand, Parameter};
use crate::Element;
use crate::kernel::rows::RowWriter;
use crate::kernel::tasks::{self, Chunks};

/// What each component of the outputs that wait should have: many short runs of writes past the caches
/// cost twice the time of few long ones.
const RUN_BYTES: usize = 8 << 10;
/// What all outputs that wait may take of a second-level cache.
const WAITING_BYTES: usize = 256 << 10;

/// How a call is cut, and the sizes of the parts of its workspace, in elements.
pub(super) struct Layout {
    /// Channels, rounded up to whole vectors.
    pub(super) padded: usize,
    /// Whether that is more than there are: rows go by way of scratch memory.
    pub(super) ragged: bool,
    /// From one component of an input in scratch memory to the next. One vector more than a row
    /// needs: rows of a power of two would all fall into the same sets of the first cache.
    pub(super) input_stride: usize,
    /// From one component of the outputs that wait to the next, likewise.
    pub(super) output_stride: usize,
    /// How many rows of outputs wait in scratch memory until they are written.
    pub(super) waiting: usize,
    /// All parameters, packed.
    pub(super) params: usize,
    /// The parameter gradients of one chunk, packed.
    pub(super) partial: usize,
    /// The scratch memory of one task.
    pub(super) scratch: usize,
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
        let cuts: usize = call.plan.cuts.iter().sum();
        Self {
            padded,
            ragged,
            input_stride,
            output_stride,
            waiting,
            params: count(call.params) * padded,
            partial: count(call.param_grads) * padded,
            scratch: cuts * padded + copied * input_stride + outputs * output_stride,
            chunks: Chunks::new(call.batch, call.flops * call.channels),
            writer,
        }
    }

    pub(super) fn len(&self) -> usize {
        let chunks = self.chunks.count();
        self.params + self.partial * chunks + self.scratch * tasks::task_count(chunks)
    }
}

fn components<T>(operands: &[Operand<T>]) -> usize {
    operands.iter().map(|operand| operand.components).sum()
}

fn count<T>(params: &[Parameter<T>]) -> usize {
    params.iter().map(|param| param.count).sum()
}
