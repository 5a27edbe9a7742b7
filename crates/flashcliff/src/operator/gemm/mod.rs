//! Products of matrices, and sums of them. Each runs on one thread; callers spread the work.
//!
//! * `tile` - what writes results, and copies right factors for it.
//! * `rights` - right factors that are copied once for many sums.

mod rights;
mod tile;

use std::cell::RefCell;
use std::sync::Mutex;
use std::thread::LocalKey;

use crate::Element;
use crate::kernel::vectors::{self, Vectors};
pub(crate) use rights::{Rights, release};
pub(crate) use tile::Product;
use tile::{Copied, Right, Shape, Sum};

/// Elements that have a matrix product.
pub(crate) trait Gemm: Vectors {
    /// Memory of a thread for the right factor of one product.
    #[doc(hidden)]
    fn scratch() -> &'static LocalKey<RefCell<Vec<Self>>>;

    /// Memory for right factors that nobody has.
    #[doc(hidden)]
    fn spare() -> &'static Mutex<Vec<Vec<Self>>>;
}

macro_rules! gemm {
    ($($elem:ty),*) => {$(
        impl Gemm for $elem {
            fn scratch() -> &'static LocalKey<RefCell<Vec<Self>>> {
                thread_local! {
                    static SCRATCH: RefCell<Vec<$elem>> = const { RefCell::new(Vec::new()) };
                }
                &SCRATCH
            }

            fn spare() -> &'static Mutex<Vec<Vec<Self>>> {
                static SPARE: Mutex<Vec<Vec<$elem>>> = Mutex::new(Vec::new());
                &SPARE
            }
        }
    )*};
}
gemm!(f32, f64);

/// The most rows of right factors that are summed at once, so that a panel of them stays in a cache.
const DEPTH: usize = 256;
/// From so many rows on a right factor is copied if its own rows are far apart: neighbours in a panel then lie in one set of a cache.
const MANY: usize = 128;
/// The distance in bytes of rows that are far apart.
const FAR: usize = 1024;
/// The bytes of a line of caches.
const LINE: usize = 64;
/// The fewest elements of a thread's memory: as many as most products need, so that it is taken once.
const LEAST: usize = 1 << 15;

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
    let shape = Shape::best::<T>();
    let is_copied = |b: &Matrix<T>, rows: usize, columns: usize| {
        let is_far = rows >= MANY && b.row * size_of::<T>() >= FAR;
        b.column != 1 || !columns.is_multiple_of(shape.lanes) || is_far
    };
    // The transposed product copies the smaller factor.
    let ((m, n), out, (a, b)) = if is_copied(&b, m, n) && m < n && m <= shape.lanes {
        ((n, m), out.transposed(), (b.transposed(), a.transposed()))
    } else {
        ((m, n), out, (a, b))
    };
    let is_copied = is_copied(&b, m, n);
    let scratch = if is_copied {
        packed_len((k.min(DEPTH), n), shape)
    } else {
        0
    };
    with_scratch(scratch, |scratch| {
        let mut done = 0;
        // A product without columns of `a` is 0.
        while done < k || done == 0 {
            let own = DEPTH.min(k - done);
            let (a, b) = (a.from(0, done), b.from(done, 0));
            // SAFETY: the caller promises it, and scratch memory has room.
            unsafe {
                let b = match is_copied {
                    true => {
                        let copy = Copied {
                            from: b,
                            factor: T::from_f64(1.0),
                            to: &mut *scratch,
                        };
                        tile::pack((own, n), shape, &mut [copy]);
                        Right::Packed(scratch.as_ptr())
                    }
                    false => Right::Rows {
                        ptr: b.ptr,
                        row: b.row,
                    },
                };
                vectors::run(&Sum {
                    rows: m,
                    columns: n,
                    products: &[Product { a, b, k: own }],
                    factor,
                    out,
                    accumulate: accumulate || done > 0,
                });
            }
            done += own.max(1);
        }
    });
}

/// `out = factor Σ a b` over products, or `out += factor Σ a b` if `accumulate`; each `a` is `m x k` and each `b` is `k x n`,
/// with another `k` in each product.
///
/// # Safety
/// The contract of [`matmul`] holds for each product.
pub(crate) unsafe fn matmul_sum<T: Element>(
    (m, n): (usize, usize),
    out: Matrix<T>,
    products: impl Iterator<Item = (usize, Matrix<T>, Matrix<T>)>,
    accumulate: bool,
    factor: T,
) {
    let lanes = Shape::best::<T>().lanes;
    let (mut adds, mut together) = (accumulate, Vec::new());
    for (k, a, b) in products {
        let is_whole = b.column == 1 && n.is_multiple_of(lanes) && n > 0;
        if is_whole && k < DEPTH {
            let b = Right::Rows {
                ptr: b.ptr.cast_const(),
                row: b.row,
            };
            together.push(Product { a, b, k });
            continue;
        }
        // SAFETY: the caller promises it.
        unsafe { matmul_scaled((m, k, n), out, a, b, adds, factor) };
        adds = true;
    }
    if together.is_empty() {
        return;
    }
    // SAFETY: the caller promises it.
    unsafe {
        vectors::run(&Sum {
            rows: m,
            columns: n,
            products: &together,
            factor,
            out,
            accumulate: adds,
        });
    }
}

/// The elements of a copy of a factor of `k x n`.
fn packed_len((k, n): (usize, usize), shape: Shape) -> usize {
    // Sizes of matrices without elements may be any numbers.
    if k == 0 || n == 0 {
        return 0;
    }
    k * n.next_multiple_of(shape.lanes)
}

/// Calls a function with so many elements of a thread's own, from the beginning of a line of caches on.
fn with_scratch<T: Element, R>(len: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
    if len == 0 {
        return work(&mut []);
    }
    T::scratch().with_borrow_mut(|scratch| {
        let whole = len.max(LEAST) + LINE / size_of::<T>();
        if scratch.len() < whole {
            scratch.resize(whole, T::default());
        }
        // An offset that cannot be found out is a large one.
        let start = scratch.as_ptr().align_offset(LINE).min(whole - len);
        work(&mut scratch[start..][..len])
    })
}

/// `out = Σ a b` over products, `m x n`; zeros without products.
///
/// # Safety
/// The matrices are valid for their sizes, and `out` overlaps no other. The products are of [`Rights`] with `n` columns, which live.
pub(crate) unsafe fn sum_of_products<T: Element>(
    (m, n): (usize, usize),
    out: Matrix<T>,
    products: &[Product<T>],
) {
    if m == 0 || n == 0 {
        return;
    }
    // SAFETY: the caller promises it.
    unsafe {
        vectors::run(&Sum {
            rows: m,
            columns: n,
            products,
            factor: T::from_f64(1.0),
            out,
            accumulate: false,
        });
    }
}

#[cfg(test)]
mod tests;
