//! The skeleton of lane programs: runs the stages of a pass over the rows of a tensor.
//!
//! For each row: bring ragged inputs to whole vectors (else read them where they are), run the
//! stages with cuts in scratch memory that stays in the caches, write the outputs.
//!
//! Rows are cut into chunks that threads take in turn. Parameter gradients are summed per chunk
//! and the chunks added in order, so the result does not depend on the number of threads.

use super::program::{Plan, Slot};
use super::rows::RowWriter;
use super::stage::{Lanes, StageArgs};
use super::tasks::{self, Chunks};
use crate::Gate;
use crate::element::Element;
use crate::simd::Tier;

/// The most lane tensors, cuts or parameters of a pass.
const MAX_TENSORS: usize = 8;
/// How far ahead, at least, a row is asked for.
const PREFETCH_BYTES: usize = 2048;
/// The most row sums of a pass: forward and backward, for each of the 9 grades of 8 dimensions.
const MAX_ROW_SUMS: usize = 18;

/// A lane tensor in memory: component `k` of row `b` starts at `ptr + k component + b row`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<T> {
    pub(crate) ptr: *mut T,
    pub(crate) components: usize,
    pub(crate) component_stride: usize,
    pub(crate) row_stride: usize,
}

impl<T> Operand<T> {
    /// Of a contiguous `[components, batch, channels]` tensor.
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

    /// An output that nobody wants.
    pub(crate) fn unwanted(components: usize) -> Self {
        Self::contiguous(std::ptr::null_mut(), components, 0, 0)
    }

    fn is_unwanted(&self) -> bool {
        self.ptr.is_null()
    }

    /// # Safety
    /// The row is one of the tensor's.
    unsafe fn row(&self, row: usize) -> Lanes<T> {
        Lanes {
            // SAFETY: the caller's.
            ptr: unsafe { self.ptr.add(row * self.row_stride) },
            stride: self.component_stride,
            ahead: self.row_stride
                * PREFETCH_BYTES.div_ceil((self.row_stride * size_of::<T>()).max(1)),
        }
    }
}

/// A per-channel parameter `[channels, count]` or its gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter<T> {
    pub(crate) ptr: *mut T,
    pub(crate) count: usize,
}

/// Where a pass finds its tensors.
pub(crate) struct Call<'a, T> {
    pub(crate) plan: &'a Plan,
    pub(crate) inputs: &'a [Operand<T>],
    pub(crate) outputs: &'a [Operand<T>],
    pub(crate) params: &'a [Parameter<T>],
    /// As many as `params` in a backward pass, none in a forward one; null if not wanted.
    pub(crate) param_grads: &'a [Parameter<T>],
    /// `[row sums, saved_stride]`: read if the plan has saved row sums, else written. May be null
    /// if the plan has no row sums or nobody wants them.
    pub(crate) saved: *mut T,
    pub(crate) saved_stride: usize,
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    /// Operations per lane, for the size of the chunks.
    pub(crate) flops: usize,
    pub(crate) tier: Tier,
    pub(crate) gate: Gate,
    pub(crate) eps: f64,
}

// SAFETY: the pointers are borrowed tensors for the length of a call, whose chunks are disjoint.
unsafe impl<T: Send> Sync for Call<'_, T> {}

/// The sizes of the parts of a workspace, in elements.
struct Layout {
    /// Channels, rounded up to whole vectors.
    padded: usize,
    /// From one row of scratch memory to the next. One vector more than a row needs: rows of a
    /// power of two would all fall into the same sets of the first cache.
    stride: usize,
    /// All parameters, transposed to `[count, stride]`.
    params: usize,
    /// The parameter gradients of one chunk.
    partial: usize,
    /// The scratch rows of one task.
    scratch: usize,
    chunks: Chunks,
}

impl Layout {
    fn of<T: Element>(call: &Call<'_, T>) -> Self {
        let lanes = T::lanes(call.tier);
        let padded = call.channels.next_multiple_of(lanes);
        let count = |params: &[Parameter<T>]| params.iter().map(|p| p.count).sum::<usize>();
        let rows = |operands: &[Operand<T>]| operands.iter().map(|o| o.components).sum::<usize>();
        let cuts: usize = call.plan.cuts.iter().sum();
        let stride = padded + lanes;
        Self {
            padded,
            stride,
            params: count(call.params) * stride,
            partial: count(call.param_grads) * stride,
            scratch: (rows(call.inputs) + rows(call.outputs) + cuts) * stride,
            chunks: Chunks::new(call.batch, call.flops * call.channels),
        }
    }

    fn len(&self) -> usize {
        let chunks = self.chunks.count();
        self.params + self.partial * chunks + self.scratch * tasks::task_count(chunks)
    }
}

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
    let layout = Layout::of(call);
    let chunks = layout.chunks.count();
    if call.channels == 0 {
        return;
    }
    let (params, rest) = workspace.split_at_mut(layout.params);
    let (partials, scratch) = rest.split_at_mut(layout.partial * chunks);
    // SAFETY: the caller's.
    unsafe { transpose_params(call, layout.stride, params) };
    partials.fill(T::default());
    let params = SyncPtr(params.as_mut_ptr());
    let partials_ptr = SyncPtr(partials.as_mut_ptr());
    let outputs_bytes = call.batch * call.channels * size_of::<T>();
    let largest = call.outputs.iter().map(|o| o.components).max().unwrap_or(0);
    let writer = RowWriter::new(call.tier, outputs_bytes * largest);
    tasks::run(chunks, scratch, layout.scratch, |scratch, chunk| {
        // SAFETY: the partial sums of a chunk are its own.
        let partial = unsafe { partials_ptr.get().add(chunk * layout.partial) };
        let mut task = Task::new(call, &layout, scratch, params.get(), partial, writer);
        for row in layout.chunks.range(chunk) {
            // SAFETY: the caller's; rows are disjoint.
            unsafe { task.row(row) };
        }
        writer.finish::<T>();
    });
    // SAFETY: the caller's.
    unsafe { sum_partials(call, &layout, partials) };
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

/// # Safety
/// The parameters are valid for the shape of the call.
unsafe fn transpose_params<T: Element>(call: &Call<'_, T>, stride: usize, to: &mut [T]) {
    let mut rows = to.chunks_exact_mut(stride.max(1));
    for param in call.params {
        for k in 0..param.count {
            let Some(row) = rows.next() else { return };
            for (c, value) in row[..call.channels].iter_mut().enumerate() {
                // SAFETY: the caller's.
                *value = unsafe { *param.ptr.add(c * param.count + k) };
            }
            row[call.channels..].fill(T::default());
        }
    }
}

/// Adds the chunks in order and writes the gradients as `[channels, count]`.
///
/// # Safety
/// The parameter gradients are valid for the shape of the call.
unsafe fn sum_partials<T: Element>(call: &Call<'_, T>, layout: &Layout, partials: &mut [T]) {
    if layout.partial == 0 {
        return;
    }
    let (first, rest) = partials.split_at_mut(layout.partial.min(partials.len()));
    for partial in rest.chunks_exact(layout.partial) {
        for (total, &value) in first.iter_mut().zip(partial) {
            *total += value;
        }
    }
    let mut start = 0;
    for grad in call.param_grads {
        for k in 0..grad.count {
            for c in 0..call.channels {
                // No chunk at all: an empty batch, whose sums are zero.
                let value = first.get(start + c).copied().unwrap_or_default();
                if !grad.ptr.is_null() {
                    // SAFETY: the caller's.
                    unsafe { *grad.ptr.add(c * grad.count + k) = value };
                }
            }
            start += layout.stride;
        }
    }
}

/// One task at work on the rows of a chunk.
struct Task<'a, T> {
    call: &'a Call<'a, T>,
    /// Inputs are copied to whole vectors.
    ragged: bool,
    writer: RowWriter,
    input_rows: [Lanes<T>; MAX_TENSORS],
    output_rows: [Lanes<T>; MAX_TENSORS],
    cuts: [Lanes<T>; MAX_TENSORS],
    params: [Lanes<T>; MAX_TENSORS],
    param_grads: [Lanes<T>; MAX_TENSORS],
    groups: usize,
    eps: T,
    inv_channels: T,
}

impl<'a, T: Element> Task<'a, T> {
    fn new(
        call: &'a Call<'a, T>,
        layout: &Layout,
        scratch: &mut [T],
        params: *mut T,
        partial: *mut T,
        writer: RowWriter,
    ) -> Self {
        let stride = layout.stride;
        // The padding of inputs must be finite, and stays as it is.
        scratch.fill(T::default());
        let mut next = scratch.as_mut_ptr();
        let mut split = |components: usize| {
            let lanes = Lanes {
                ptr: next,
                stride,
                ahead: 0,
            };
            next = next.wrapping_add(components * stride);
            lanes
        };
        let mut task = Self {
            call,
            ragged: layout.padded != call.channels,
            writer,
            input_rows: [Lanes::NONE; MAX_TENSORS],
            output_rows: [Lanes::NONE; MAX_TENSORS],
            cuts: [Lanes::NONE; MAX_TENSORS],
            params: [Lanes::NONE; MAX_TENSORS],
            param_grads: [Lanes::NONE; MAX_TENSORS],
            groups: layout.padded / T::lanes(call.tier),
            eps: T::from_f64(call.eps),
            inv_channels: T::from_f64(1.0 / call.channels as f64),
        };
        for (row, input) in task.input_rows.iter_mut().zip(call.inputs) {
            *row = split(input.components);
        }
        for (row, output) in task.output_rows.iter_mut().zip(call.outputs) {
            *row = split(output.components);
        }
        for (cut, &components) in task.cuts.iter_mut().zip(call.plan.cuts) {
            *cut = split(components);
        }
        let rows_of = |ptr: *mut T, params: &[Parameter<T>], rows: &mut [Lanes<T>]| {
            let mut next = ptr;
            for (row, param) in rows.iter_mut().zip(params) {
                *row = Lanes {
                    ptr: next,
                    stride,
                    ahead: 0,
                };
                next = next.wrapping_add(param.count * stride);
            }
        };
        rows_of(params, call.params, &mut task.params);
        rows_of(partial, call.param_grads, &mut task.param_grads);
        task
    }

    /// # Safety
    /// As [`run`]; nothing else works on the row.
    unsafe fn row(&mut self, row: usize) {
        let call = self.call;
        let mut inputs = self.input_rows;
        for (lanes, operand) in inputs.iter_mut().zip(call.inputs) {
            // SAFETY: the caller's.
            let direct = unsafe { operand.row(row) };
            if self.ragged {
                for k in 0..operand.components {
                    // SAFETY: the row of the operand and the scratch row hold the channels.
                    unsafe {
                        let to = lanes.at(k, 0);
                        direct.at(k, 0).copy_to_nonoverlapping(to, call.channels);
                    }
                }
            } else {
                *lanes = direct;
            }
        }
        // Ragged rows and streamed ones go by way of the scratch memory.
        let staged = self.ragged || self.writer.streams();
        let mut outputs = self.output_rows;
        for (lanes, operand) in outputs.iter_mut().zip(call.outputs) {
            if !staged && !operand.is_unwanted() {
                // SAFETY: the caller's.
                *lanes = unsafe { operand.row(row) };
            }
        }
        // SAFETY: the caller's; the lanes hold whole vectors.
        unsafe { self.stages(row, &inputs, &outputs) };
        let wanted = outputs.iter().zip(call.outputs);
        for (lanes, operand) in wanted.filter(|(_, operand)| staged && !operand.is_unwanted()) {
            // SAFETY: the caller's.
            let direct = unsafe { operand.row(row) };
            for k in 0..operand.components {
                // SAFETY: the row of the operand and the scratch row hold the channels.
                unsafe {
                    let (from, to) = (lanes.at(k, 0), direct.at(k, 0));
                    self.writer.copy(from, to, call.channels);
                }
            }
        }
    }

    /// # Safety
    /// As [`run`].
    unsafe fn stages(
        &mut self,
        row: usize,
        inputs: &[Lanes<T>; MAX_TENSORS],
        outputs: &[Lanes<T>; MAX_TENSORS],
    ) {
        let call = self.call;
        let plan = call.plan;
        let mut sums = [T::default(); MAX_ROW_SUMS];
        let saved = |index: usize| call.saved.wrapping_add(index * call.saved_stride + row);
        for (index, sum) in sums[..plan.saved_row_sums].iter_mut().enumerate() {
            // SAFETY: the caller's.
            *sum = unsafe { *saved(index) };
        }
        for stage in plan.stages {
            let lanes = |slots: &[Slot], external: &[Lanes<T>; MAX_TENSORS]| {
                let mut lanes = [Lanes::NONE; MAX_TENSORS];
                for (lanes, slot) in lanes.iter_mut().zip(slots) {
                    *lanes = match *slot {
                        Slot::External(index) => external[index],
                        Slot::Cut(index) => self.cuts[index],
                    };
                }
                lanes
            };
            let select = |slots: &[usize], all: &[Lanes<T>; MAX_TENSORS]| {
                let mut lanes = [Lanes::NONE; MAX_TENSORS];
                for (lanes, &slot) in lanes.iter_mut().zip(slots) {
                    *lanes = all[slot];
                }
                lanes
            };
            let mut rows = [T::default(); MAX_ROW_SUMS];
            for (value, &slot) in rows.iter_mut().zip(stage.rows) {
                *value = sums[slot];
            }
            let mut new_sums = [T::default(); MAX_ROW_SUMS];
            let mut args = StageArgs {
                inputs: &lanes(stage.inputs, inputs),
                outputs: &lanes(stage.outputs, outputs),
                params: &select(stage.params, &self.params),
                param_grads: &select(stage.param_grads, &self.param_grads),
                rows: &rows,
                sums: &mut new_sums,
                groups: self.groups,
                channels: call.channels,
                gate: call.gate,
                eps: self.eps,
                inv_channels: self.inv_channels,
            };
            // SAFETY: every slot holds whole vectors for its components; the tier was checked
            // when the operator was made.
            unsafe { T::tiers(stage.stage).get(call.tier)(&mut args) };
            for (&slot, &value) in stage.row_sums.iter().zip(&new_sums) {
                sums[slot] = value;
            }
        }
        if plan.saved_row_sums == 0 && !call.saved.is_null() {
            for (index, &sum) in sums[..plan.row_sums].iter().enumerate() {
                // SAFETY: the caller's.
                unsafe { *saved(index) = sum };
            }
        }
    }
}
