//! Matrix products by the `gemm` crate. Each runs on one thread; callers spread the work.

use crate::Element;

/// A matrix: entry (i, j) at `ptr + i row + j column`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub(crate) ptr: *mut T,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

// SAFETY: this is a plain address; its users say what they may access.
unsafe impl<T: Send> Sync for Matrix<T> {}
// SAFETY: the same holds as above.
unsafe impl<T: Send> Send for Matrix<T> {}

impl<T> Matrix<T> {
    /// Rows of `columns` entries, one after the other.
    pub(crate) fn rows(ptr: *mut T, columns: usize) -> Self {
        Self {
            ptr,
            row: columns,
            column: 1,
        }
    }

    pub(crate) fn transposed(self) -> Self {
        Self {
            ptr: self.ptr,
            row: self.column,
            column: self.row,
        }
    }

    /// The matrix from an entry on.
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        Self {
            ptr: self.ptr.wrapping_add(row * self.row + column * self.column),
            ..self
        }
    }
}

/// `out = a b`, or `out += a b` if `accumulate`; `a` is `m x k`, `b` is `k x n`.
///
/// # Safety
/// The matrices are valid for their sizes, and `out` overlaps neither of the others.
pub(crate) unsafe fn matmul<T: Element>(
    (m, k, n): (usize, usize, usize),
    out: Matrix<T>,
    a: Matrix<T>,
    b: Matrix<T>,
    accumulate: bool,
) {
    // SAFETY: the caller promises it.
    unsafe { matmul_scaled((m, k, n), out, a, b, accumulate, T::from_f64(1.0)) }
}

/// `out = factor a b`, or `out += factor a b` if `accumulate`; `a` is `m x k`, `b` is `k x n`.
///
/// # Safety
/// The contract of [`matmul`] holds.
pub(crate) unsafe fn matmul_scaled<T: Element>(
    (m, k, n): (usize, usize, usize),
    out: Matrix<T>,
    a: Matrix<T>,
    b: Matrix<T>,
    accumulate: bool,
    factor: T,
) {
    if m == 0 || n == 0 {
        return;
    }
    let one = T::from_f64(1.0);
    // Strides are below `isize::MAX`: the tensors exist.
    let stride = |stride: usize| stride as isize;
    // SAFETY: the caller promises it.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.ptr,
            stride(out.column),
            stride(out.row),
            accumulate,
            a.ptr,
            stride(a.column),
            stride(a.row),
            b.ptr,
            stride(b.column),
            stride(b.row),
            one,
            factor,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
