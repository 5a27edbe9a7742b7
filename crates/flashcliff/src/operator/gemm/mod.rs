//! Products of matrices, and sums of them. Each runs on one thread; callers spread the work.
//!
//! * `tile` - what writes results, and copies right factors for it.

mod tile;

use std::cell::RefCell;
use std::thread::LocalKey;

use crate::Element;
use crate::kernel::vectors::{self, Vectors};
pub(crate) use tile::Product;
use tile::{Copied, Right, Shape, Sum};

/// Elements that have a matrix product.
pub(crate) trait Gemm: Vectors {
    /// Memory of a thread for right factors.
    #[doc(hidden)]
    fn scratch() -> &'static LocalKey<RefCell<Vec<Self>>>;
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

/// The memory of this thread for right factors, until it is [given back](give_back).
pub(crate) fn borrow<T: Element>() -> Vec<T> {
    T::scratch().take()
}

/// Gives memory back to the thread, unless it has more by now.
pub(crate) fn give_back<T: Element>(memory: Vec<T>) {
    T::scratch().with_borrow_mut(|scratch| {
        if scratch.len() < memory.len() {
            *scratch = memory;
        }
    });
}

/// Right factors that are copied once for many sums.
#[derive(Debug)]
pub(crate) struct Rights<T> {
    data: Vec<T>,
    /// The first element of each, and its rows.
    factors: Vec<(usize, usize)>,
}

impl<T: Element> Rights<T> {
    /// Copies of factors, each with its sizes `k x n` and a number that it is multiplied by. `data` is memory for them, which may be short.
    ///
    /// # Safety
    /// The matrices are valid for their sizes.
    pub(crate) unsafe fn new(factors: &[((usize, usize), Matrix<T>, T)], mut data: Vec<T>) -> Self {
        let shape = Shape::best::<T>();
        let line = LINE / size_of::<T>();
        let len = |sizes| packed_len(sizes, shape).next_multiple_of(line);
        let whole = factors.iter().map(|own| len(own.0)).sum::<usize>() + line;
        if data.len() < whole {
            data.resize(whole, T::default());
        }
        // An offset that cannot be found out is a large one.
        let mut at = data.as_ptr().align_offset(LINE).min(line);
        let mut rest = &mut data[at..];
        let mut places = Vec::with_capacity(factors.len());
        for group in factors.chunk_by(|a, b| a.0 == b.0) {
            let mut copies = Vec::with_capacity(group.len());
            for &(sizes, from, factor) in group {
                let (own, others) = rest.split_at_mut(len(sizes));
                rest = others;
                copies.push(Copied {
                    from,
                    factor,
                    to: own,
                });
                places.push((at, sizes.0));
                at += len(sizes);
            }
            // SAFETY: the caller promises it.
            unsafe { tile::pack(group[0].0, shape, &mut copies) };
        }
        Self {
            data,
            factors: places,
        }
    }

    /// The memory of the copies.
    pub(crate) fn into_memory(self) -> Vec<T> {
        self.data
    }

    /// The product of a left factor with one of them.
    pub(crate) fn product(&self, a: Matrix<T>, right: usize) -> Product<T> {
        let (at, k) = self.factors[right];
        Product {
            a,
            b: Right::Packed(self.data[at..].as_ptr()),
            k,
        }
    }
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
