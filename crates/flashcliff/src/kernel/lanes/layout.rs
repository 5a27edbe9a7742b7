//! The parts of a workspace.

use super::{Call, Parameter};
use crate::Element;
use crate::kernel::rows::RowWriter;
use crate::kernel::tasks::{self, Chunks};
use flashcliff_kernels::program::{Plan, Slot, StageCall};
use flashcliff_program::ir::Width;

/// The length of the run that each component of the waiting outputs should have, in bytes. Many short runs of writes
/// past the caches take twice the time of a few long ones.
const RUN_BYTES: usize = 8 << 10;
/// The most bytes of a second-level cache that all waiting outputs may take.
const WAITING_BYTES: usize = 256 << 10;

/// The bytes of a line of the cache. The parts of a workspace start with a line, so that vectors lie in one line each.
pub(super) const LINE_BYTES: usize = 64;

/// The rows of the channels, or of the scalar channels, in scratch memory.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// The channels of a row.
    pub(super) channels: usize,
    /// Channels, rounded up to whole vectors.
    pub(super) padded: usize,
    /// Whether there are fewer channels than that: rows then go by way of scratch memory.
    pub(super) ragged: bool,
    /// The distance from one component of an input in scratch memory to the next. It is one vector more than a row
    /// needs, because rows of a power of two would all fall into the same sets of the first cache.
    pub(super) input_stride: usize,
    /// The distance from one component of the waiting outputs to the next, with the same extra vector.
    pub(super) output_stride: usize,
    /// The distance from one component of a cut or parameter to the next for interpreted stages, with the same extra
    /// vector; 0 for compiled stages, which want them packed.
    pub(super) planar_stride: usize,
}

impl Rows {
    fn new(channels: usize, lanes: usize, is_interpreted: bool) -> Self {
        let padded = channels.next_multiple_of(lanes);
        Self {
            channels,
            padded,
            ragged: padded != channels,
            input_stride: padded + lanes,
            output_stride: padded + lanes,
            planar_stride: if is_interpreted { padded + lanes } else { 0 },
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
}

/// How a call is cut, and the sizes of the parts of its workspace, in elements.
pub(super) struct Layout {
    rows: [Rows; 2],
    /// How many rows of the caller are one row.
    pub(super) beside: usize,
    /// How many rows of outputs wait in scratch memory until they are written.
    pub(super) waiting: usize,
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
    pub(super) fn of<T: Element>(call: &Call<'_, T>, beside: usize) -> Self {
        let size = size_of::<T>();
        let lanes = T::lanes(call.tier);
        let is_interpreted = call.plan.is_interpreted();
        let mut rows = call
            .channels
            .map(|channels| Rows::new(channels, lanes, is_interpreted));
        let of = |width: Width| rows[width.index()];
        let outputs = call.outputs.iter();
        let largest = outputs.clone().map(|o| o.components * of(o.width).channels);
        let writer = RowWriter::new(call.tier, call.batch * largest.max().unwrap_or(0) * size);
        let longest = rows[0].padded.max(rows[1].padded) * size;
        let waits: usize = outputs
            .map(|o| o.components * of(o.width).padded * size)
            .sum();
        let waiting = match writer.streams() && !rows.iter().any(|rows| rows.ragged) {
            true => (RUN_BYTES / longest.max(1))
                .min(WAITING_BYTES / waits.max(1))
                .max(1),
            false => 1,
        };
        for rows in &mut rows {
            rows.output_stride = rows.padded * waiting + lanes;
        }
        let of = |width: Width| &rows[width.index()];
        let whole_lines = |len: usize| len.next_multiple_of(LINE_BYTES / size);
        let private = |params: &[Parameter<T>]| -> usize {
            params
                .iter()
                .map(|p| of(p.width).private_len(p.count))
                .sum()
        };
        let cuts = call.plan.cuts.iter().enumerate();
        let cuts = cuts.map(|(cut, &count)| of(width_of_cut(call.plan, cut)).private_len(count));
        let copied = call.inputs.iter().filter(|input| of(input.width).ragged);
        let copied = copied.map(|input| input.components * of(input.width).input_stride);
        let written = call.outputs.iter();
        let written = written.map(|output| output.components * of(output.width).output_stride);
        let scratch = cuts.sum::<usize>() + copied.sum::<usize>() + written.sum::<usize>();
        Self {
            beside,
            waiting,
            params: whole_lines(private(call.params)),
            partial: whole_lines(private(call.sums)),
            scratch: whole_lines(scratch),
            slack: LINE_BYTES / size,
            chunks: Chunks::new(
                call.batch,
                call.flops * rows[0].channels.max(rows[1].channels),
            ),
            writer,
            rows,
        }
    }

    /// The rows of the channels of a width.
    pub(super) fn rows(&self, width: Width) -> &Rows {
        &self.rows[width.index()]
    }

    /// Whether outputs of a width wait in scratch memory.
    pub(super) fn stages(&self, width: Width) -> bool {
        self.rows(width).ragged || self.writer.streams()
    }

    /// Whether rows of a width lie in scratch memory, whose padding must be finite.
    pub(super) fn is_ragged(&self) -> bool {
        self.rows.iter().any(|rows| rows.ragged)
    }

    pub(super) fn len(&self) -> usize {
        let chunks = self.chunks.count();
        let parts = self.params + self.partial * chunks + self.scratch * tasks::task_count(chunks);
        parts + self.slack
    }
}

/// The lanes of a cut are the lanes of the stage that writes it.
pub(super) fn width_of_cut(plan: &Plan, cut: usize) -> Width {
    let writes = |stage: &&StageCall| {
        let mut outputs = stage.outputs.iter();
        outputs.any(|slot| matches!(slot, Slot::Cut(of) if *of == cut))
    };
    let writer = plan.stages.iter().find(writes);
    match writer.is_some_and(|stage| stage.is_of_scalars) {
        true => Width::Scalars,
        false => Width::Channels,
    }
}
