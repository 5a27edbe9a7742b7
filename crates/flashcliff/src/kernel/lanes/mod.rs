//! The skeleton of lane programs: runs the stages of a program over the rows of a tensor.
//!
//! For each row: bring ragged inputs to whole vectors (else read them where they are), then run the
//! stages. Cuts and parameters are kept in scratch memory that stays in the caches: packed
//! for compiled stages, component after component for interpreted ones. Large outputs
//! wait there until some rows can be written at once.
//!
//! Rows are cut into chunks that threads take in turn. Sums over the batch are formed per chunk
//! and the chunks added in order, so the result does not depend on the number of threads.

mod ahead;
mod beside;
mod bound;
mod layout;
mod params;
mod place;
mod task;

use self::beside::Beside;
use self::layout::Layout;
use self::task::Task;
use super::tasks;
use crate::Gate;
use crate::{Element, Tier};
use flashcliff_kernels::program::{Plan, Slot, StageCall};
use flashcliff_program::ir::Width;
use flashcliff_program::plan::Limits;

/// The largest number of lane tensors that a program reads, or that it writes.
pub(crate) const MAX_TENSORS: usize = Limits::CPU.tensors;
/// The largest number of parameters of a program, or of its sums over the batch.
pub(crate) const MAX_PARAMS: usize = Limits::CPU.params;
/// The number of slots of a stage for which tasks have room at no cost: that of operators and their adjoints.
const FEW_SLOTS: usize = 12;
/// The number of slots for which tasks have room at all, for higher derivatives.
const MANY_SLOTS: usize = Limits::CPU.slots;

const _: () = assert!(
    Limits::CPU.tensors <= MANY_SLOTS
        && Limits::CPU.params <= MANY_SLOTS
        && Limits::CPU.cuts <= MANY_SLOTS
);

/// A lane tensor in memory: component `k` of row `b` starts at `ptr + k component + b row`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<T> {
    pub(crate) ptr: *mut T,
    pub(crate) width: Width,
    pub(crate) components: usize,
    pub(crate) component_stride: usize,
    pub(crate) row_stride: usize,
}

impl<T> Operand<T> {
    /// The operand of a contiguous `[components, batch, channels]` tensor.
    pub(crate) fn contiguous(
        ptr: *mut T,
        components: usize,
        batch: usize,
        channels: usize,
    ) -> Self {
        Self::of_width(Width::Channels, ptr, [components, batch, channels])
    }

    /// The operand of a contiguous `[components, batch, channels]` tensor, with the channels of a width.
    pub(crate) fn of_width(
        width: Width,
        ptr: *mut T,
        [components, batch, channels]: [usize; 3],
    ) -> Self {
        Self {
            ptr,
            width,
            components,
            component_stride: batch * channels,
            row_stride: channels,
        }
    }

    /// Whether nobody wants the output.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.ptr.is_null()
    }
}

/// A per-channel parameter or a sum over the batch, `[channels, count]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter<T> {
    pub(crate) ptr: *mut T,
    pub(crate) width: Width,
    pub(crate) count: usize,
}

/// One number for each row, given or returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowTensor<T> {
    /// Null for totals that nobody wants.
    pub(crate) ptr: *mut T,
}

/// The tensors and options of a run of a program.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, T> {
    pub(crate) plan: &'a Plan,
    pub(crate) inputs: &'a [Operand<T>],
    pub(crate) outputs: &'a [Operand<T>],
    pub(crate) params: &'a [Parameter<T>],
    /// The sums over the batch. A pointer is null if a sum is not wanted.
    pub(crate) sums: &'a [Parameter<T>],
    pub(crate) row_values: &'a [RowTensor<T>],
    pub(crate) totals: &'a [RowTensor<T>],
    /// The row sums, `[row sums, saved_stride]`: read if the plan has saved row sums, else written. The pointer may be
    /// null if the plan has no row sums or nobody wants them.
    pub(crate) saved: *mut T,
    pub(crate) saved_stride: usize,
    pub(crate) batch: usize,
    /// The number of channels, and of scalar channels.
    pub(crate) channels: [usize; 2],
    /// Operations per lane. They decide the size of the chunks.
    pub(crate) flops: usize,
    pub(crate) tier: Tier,
    pub(crate) gate: Gate,
    pub(crate) eps: f64,
}

impl<T> Call<'_, T> {
    /// Whether somebody wants a result of a stage, or another stage reads one.
    fn wants(&self, stage: &StageCall) -> bool {
        let of_lanes = |slot: &Slot| match *slot {
            Slot::External(at) => !self.outputs[at].ptr.is_null(),
            Slot::Cut(_) => true,
        };
        let first_total = self.plan.row_sums + self.row_values.len();
        let of_rows = |&number: &usize| {
            let part = number.checked_sub(first_total);
            part.is_none_or(|part| !self.totals[part / 2].ptr.is_null())
        };
        let of_batch = |&at: &usize| !self.sums[at].ptr.is_null();
        stage.outputs.iter().any(of_lanes)
            || stage.row_sums.iter().any(of_rows)
            || stage.sums.iter().any(of_batch)
    }
}

// SAFETY: the pointers are borrowed tensors for the length of a call, whose chunks are disjoint.
unsafe impl<T: Send> Sync for Call<'_, T> {}

/// The elements of workspace that [`run`] needs in the current thread pool.
pub(crate) fn workspace_len<T: Element>(call: &Call<'_, T>) -> usize {
    // Also for some of the rows, which may be too few to be side by side.
    let alone = Layout::of(call, 1).len();
    let beside = Beside::of(call);
    let beside = beside.map(|own| Layout::of(&own.rows(call), own.count).len());
    alone.max(beside.unwrap_or(0))
}

/// Runs a program.
///
/// # Safety
/// The operands, parameters and saved sums are valid for the shape of the call, and what is
/// written overlaps nothing else. `workspace` has [`workspace_len`] elements.
pub(crate) unsafe fn run<T: Element>(call: &Call<'_, T>, workspace: &mut [T]) {
    if call.channels == [0, 0] {
        for total in call.totals.iter().filter(|total| !total.ptr.is_null()) {
            // SAFETY: the caller promises it. The total of no lanes is zero.
            unsafe { total.ptr.write_bytes(0, call.batch) };
        }
        return;
    }
    let Some(beside) = Beside::of(call) else {
        // SAFETY: the caller promises it.
        unsafe { run_part(call, &Layout::of(call, 1), workspace, Totals::Written) };
        return;
    };
    let rows = beside.rows(call);
    let layout = Layout::of(&rows, beside.count);
    // SAFETY: the rows of a contiguous tensor, some at a time, and then the others.
    unsafe { run_part(&rows, &layout, workspace, Totals::Written) };
    if let Some(rest) = beside.rest(call) {
        let rows = rest.call(call);
        // SAFETY: the same.
        unsafe { run_part(&rows, &Layout::of(&rows, 1), workspace, Totals::Added) };
    }
}

/// Runs a program as a layout says.
///
/// # Safety
/// The contract of [`run`] holds.
unsafe fn run_part<T: Element>(
    call: &Call<'_, T>,
    layout: &Layout,
    workspace: &mut [T],
    totals: Totals,
) {
    let chunks = layout.chunks.count();
    let first = workspace
        .as_ptr()
        .align_offset(layout::LINE_BYTES)
        .min(layout.slack);
    let (_, workspace) = workspace.split_at_mut(first);
    let (params, rest) = workspace.split_at_mut(layout.params);
    let (partials, scratch) = rest.split_at_mut(layout.partial * chunks);
    // SAFETY: the caller promises it.
    unsafe { params::pack(call, layout, params) };
    let params = SyncPtr(params.as_mut_ptr());
    let parts = Parts {
        params,
        partials: SyncPtr(partials.as_mut_ptr()),
        scratch,
    };
    // SAFETY: the caller promises it.
    unsafe {
        match most_slots(call) <= FEW_SLOTS {
            true => run_tasks::<T, FEW_SLOTS>(call, layout, parts),
            false => run_tasks::<T, MANY_SLOTS>(call, layout, parts),
        }
    }
    // SAFETY: the caller promises it.
    unsafe { params::sum_partials(call, layout, partials, totals) };
}

/// What becomes of sums over the batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Totals {
    Written,
    /// They are added to the totals of other rows.
    Added,
}

/// The parts of a workspace that tasks use.
struct Parts<'a, T> {
    params: SyncPtr<T>,
    partials: SyncPtr<T>,
    scratch: &'a mut [T],
}

/// # Safety
/// The contract of [`run`] holds; the program has at most `N` of anything.
unsafe fn run_tasks<T: Element, const N: usize>(
    call: &Call<'_, T>,
    layout: &Layout,
    parts: Parts<'_, T>,
) {
    let Parts {
        params,
        partials,
        scratch,
    } = parts;
    tasks::run(
        layout.chunks.count(),
        scratch,
        layout.scratch,
        |scratch, chunk| {
            // SAFETY: the partial sums of a chunk are its own.
            let partial = unsafe {
                let start = partials.get().add(chunk * layout.partial);
                std::slice::from_raw_parts_mut(start, layout.partial)
            };
            let mut task = Task::<T, N>::new(call, layout, scratch, params.get(), partial);
            let rows = layout.chunks.range(chunk);
            for first in rows.clone().step_by(layout.waiting) {
                // SAFETY: the caller promises valid operands, and the rows of tasks are disjoint.
                unsafe { task.rows(first..(first + layout.waiting).min(rows.end)) };
            }
            layout.writer.finish::<T>();
        },
    );
}

/// The largest number of tensors of one kind, or of slots of one stage.
fn most_slots<T>(call: &Call<'_, T>) -> usize {
    let stages = call.plan.stages.iter().map(|stage| {
        stage.inputs.len() + stage.outputs.len() + stage.params.len() + stage.sums.len()
    });
    let lists = [
        call.inputs.len(),
        call.outputs.len(),
        call.params.len(),
        call.sums.len(),
        call.plan.cuts.len(),
    ];
    stages.chain(lists).max().unwrap_or(0)
}

/// A pointer that tasks share; each uses its own part.
#[derive(Clone, Copy)]
struct SyncPtr<T>(*mut T);

// SAFETY: tasks access disjoint parts, or only read.
unsafe impl<T: Send> Sync for SyncPtr<T> {}

impl<T> SyncPtr<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}
