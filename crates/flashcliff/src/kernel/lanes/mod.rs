//! The skeleton of lane programs: runs the stages of a pass over the rows of a tensor.
//!
//! For each row: bring ragged inputs to whole vectors (else read them where they are), then run the
//! stages. Cuts and parameters are kept in scratch memory that stays in the caches: packed
//! for compiled stages, component after component for interpreted ones. Large outputs
//! wait there until some rows can be written at once.
//!
//! Rows are cut into chunks that threads take in turn. Parameter gradients are summed per chunk
//! and the chunks added in order, so the result does not depend on the number of threads.

mod bound;
mod layout;
mod params;
mod place;
mod task;

use self::layout::Layout;
use self::task::Task;
use super::tasks;
use crate::Gate;
use crate::{Element, Tier};
use flashcliff_kernels::program::Plan;
use flashcliff_program::plan::Limits;

/// The largest number of lane tensors that a pass reads, or that it writes.
pub(crate) const MAX_TENSORS: usize = Limits::CPU.tensors;
/// The largest number of cuts of a pass.
const MAX_CUTS: usize = Limits::CPU.cuts;
/// The largest number of parameters of a pass.
pub(crate) const MAX_PARAMS: usize = Limits::CPU.params;

/// A lane tensor in memory: component `k` of row `b` starts at `ptr + k component + b row`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<T> {
    pub(crate) ptr: *mut T,
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
        Self {
            ptr,
            components,
            component_stride: batch * channels,
            row_stride: channels,
        }
    }

    /// The operand of an output that nobody wants; its pointer is null.
    pub(crate) fn unwanted(components: usize) -> Self {
        Self::contiguous(std::ptr::null_mut(), components, 0, 0)
    }

    pub(crate) fn is_unwanted(&self) -> bool {
        self.ptr.is_null()
    }
}

/// A per-channel parameter `[channels, count]` or its gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter<T> {
    pub(crate) ptr: *mut T,
    pub(crate) count: usize,
}

/// The tensors and options of a pass.
pub(crate) struct Call<'a, T> {
    pub(crate) plan: &'a Plan,
    pub(crate) inputs: &'a [Operand<T>],
    pub(crate) outputs: &'a [Operand<T>],
    pub(crate) params: &'a [Parameter<T>],
    /// As many entries as `params` in a backward pass, none in a forward pass. A pointer is null if its gradient is not
    /// wanted.
    pub(crate) param_grads: &'a [Parameter<T>],
    /// The row sums, `[row sums, saved_stride]`: read if the plan has saved row sums, else written. The pointer may be
    /// null if the plan has no row sums or nobody wants them.
    pub(crate) saved: *mut T,
    pub(crate) saved_stride: usize,
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    /// Operations per lane. They decide the size of the chunks.
    pub(crate) flops: usize,
    pub(crate) tier: Tier,
    pub(crate) gate: Gate,
    pub(crate) eps: f64,
}

// SAFETY: the pointers are borrowed tensors for the length of a call, whose chunks are disjoint.
unsafe impl<T: Send> Sync for Call<'_, T> {}

/// The elements of workspace that [`run`] needs in the current thread pool.
pub(crate) fn workspace_len<T: Element>(call: &Call<'_, T>) -> usize {
    Layout::of(call).len()
}

/// Runs a pass.
///
/// # Safety
/// The operands, parameters and saved sums are valid for the shape of the call, and what is
/// written overlaps nothing else. `workspace` has [`workspace_len`] elements.
pub(crate) unsafe fn run<T: Element>(call: &Call<'_, T>, workspace: &mut [T]) {
    if call.channels == 0 {
        return;
    }
    let layout = Layout::of(call);
    let chunks = layout.chunks.count();
    let first = workspace
        .as_ptr()
        .align_offset(layout::LINE_BYTES)
        .min(layout.slack);
    let (_, workspace) = workspace.split_at_mut(first);
    let (params, rest) = workspace.split_at_mut(layout.params);
    let (partials, scratch) = rest.split_at_mut(layout.partial * chunks);
    // SAFETY: the caller promises it.
    unsafe { params::pack(call, &layout, params) };
    let params = SyncPtr(params.as_mut_ptr());
    let partials_ptr = SyncPtr(partials.as_mut_ptr());
    tasks::run(chunks, scratch, layout.scratch, |scratch, chunk| {
        // SAFETY: the partial sums of a chunk are its own.
        let partial = unsafe {
            let start = partials_ptr.get().add(chunk * layout.partial);
            std::slice::from_raw_parts_mut(start, layout.partial)
        };
        let mut task = Task::new(call, &layout, scratch, params.get(), partial);
        let rows = layout.chunks.range(chunk);
        for first in rows.clone().step_by(layout.waiting) {
            // SAFETY: the caller promises valid operands, and the rows of tasks are disjoint.
            unsafe { task.rows(first..(first + layout.waiting).min(rows.end)) };
        }
        layout.writer.finish::<T>();
    });
    // SAFETY: the caller promises it.
    unsafe { params::sum_partials(call, &layout, partials) };
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
