//! Matrix products by the crates below `gemm`. Each runs on one thread; callers spread the work.
//!
//! `gemm` itself would bring complex numbers and 16 bits along, a fifth of what the library compiles.

use crate::Element;
use gemm_common::Parallelism;

/// A matrix product of `m x k` and `k x n`: `m`, `n`, `k`; `out` with the steps to the next column and row, and whether
/// it is read; the same of both factors; what scales `out` and the product; three flags that only complex numbers have.
type Kernel<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// Elements that have a matrix product.
pub(crate) trait Gemm: Sized {
    /// The function for this CPU, chosen once a process.
    fn kernel() -> Kernel<Self>;
}

impl Gemm for f32 {
    fn kernel() -> Kernel<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Gemm for f64 {
    fn kernel() -> Kernel<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

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
    // The functions want rows that follow each other in memory: the transposed product has them.
    let ((m, n), out, (a, b)) = if out.column < out.row {
        let factors = (b.transposed(), a.transposed());
        ((n, m), out.transposed(), factors)
    } else {
        ((m, n), out, (a, b))
    };
    let one = T::from_f64(1.0);
    // Strides are below `isize::MAX`: the tensors exist.
    let stride = |stride: usize| stride as isize;
    // SAFETY: the caller promises it.
    unsafe {
        T::kernel()(
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
            Parallelism::None,
        );
    }
}
