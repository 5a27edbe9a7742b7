//! The places of the tensors of a task in memory.

use super::Operand;
use flashcliff_kernels::stage::Lanes;

/// The least distance from a row to the one that is prefetched, in bytes.
const PREFETCH_BYTES: usize = 2048;

/// A row of the batch, with its number among the rows whose outputs wait.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) index: usize,
    pub(super) waiting: usize,
}

/// The memory of a tensor: a pointer and the distances between its components and rows.
#[derive(Clone, Copy)]
pub(super) struct Place<T> {
    ptr: *mut T,
    component_stride: usize,
    /// The distance from one row of the batch to the next; 0 in scratch memory.
    row_stride: usize,
    /// The distance from one waiting row to the next; 0 for all but outputs.
    waiting_stride: usize,
    /// The distance from a row to the one to prefetch; 0 in scratch memory.
    ahead: usize,
}

impl<T> Place<T> {
    pub(super) const NONE: Self = Self {
        ptr: std::ptr::null_mut(),
        component_stride: 0,
        row_stride: 0,
        waiting_stride: 0,
        ahead: 0,
    };

    /// A tensor of the caller.
    pub(super) fn memory(operand: &Operand<T>) -> Self {
        let row_bytes = operand.row_stride * size_of::<T>();
        Self {
            ptr: operand.ptr,
            component_stride: operand.component_stride,
            row_stride: operand.row_stride,
            ahead: operand.row_stride * PREFETCH_BYTES.div_ceil(row_bytes.max(1)),
            ..Self::NONE
        }
    }

    /// The place for a stage that asks for no later row.
    pub(super) fn here(self) -> Self {
        Self { ahead: 0, ..self }
    }

    /// Scratch memory that every row uses anew.
    pub(super) fn scratch(ptr: *mut T, component_stride: usize) -> Self {
        Self {
            ptr,
            component_stride,
            ..Self::NONE
        }
    }

    /// Scratch memory for rows that wait.
    pub(super) fn waiting(ptr: *mut T, component_stride: usize, waiting_stride: usize) -> Self {
        Self {
            waiting_stride,
            ..Self::scratch(ptr, component_stride)
        }
    }

    #[inline]
    pub(super) fn lanes(&self, row: Row) -> Lanes<T> {
        let offset = row.index * self.row_stride + row.waiting * self.waiting_stride;
        Lanes {
            ptr: self.ptr.wrapping_add(offset),
            stride: self.component_stride,
            ahead: self.ahead,
        }
    }
}
