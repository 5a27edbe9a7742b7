//! Sums of matrix products in tiles of the result, which stay in registers from the first product to the last.
//!
//! The left factor of each product is read where it lies. The right one is read by rows of vectors: where it lies, or
//! [packed](pack) in panels of as many columns as a tile has. So a product of many rows with a small matrix moves nothing that it
//! does not need, and one whose right factor is transposed or strided copies that factor once.
//!
//! Each element is one sum in order, so its bits depend on the tier and not on where tiles begin.

use flashcliff_kernels::simd::{Math, Vector};

use super::Matrix;
use crate::kernel::vectors::{self, VectorLoop, Vectors};

/// A product of a sum: `a` is `rows x k`, `b` is `k x columns`.
#[derive(Clone, Copy)]
pub(crate) struct Product<T> {
    pub(super) a: Matrix<T>,
    pub(super) b: Right<T>,
    pub(super) k: usize,
}

/// The right factor of a product.
#[derive(Clone, Copy)]
pub(crate) enum Right<T> {
    /// A matrix whose columns are neighbours. Whole vectors of each row may be read.
    Rows { ptr: *const T, row: usize },
    /// A copy that [`pack`] has written.
    Packed(*const T),
}

/// The sum of products, and where it goes.
pub(crate) struct Sum<'a, T> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) products: &'a [Product<T>],
    pub(super) factor: T,
    pub(super) out: Matrix<T>,
    /// Whether the sum is added to what is there.
    pub(super) accumulate: bool,
}

/// The panels of a number of columns: the first column, and the vectors. The widest that fit come first.
fn panels(columns: usize, lanes: usize, widest: usize) -> impl Iterator<Item = (usize, usize)> {
    let (mut first, mut left) = (0, columns.div_ceil(lanes));
    std::iter::from_fn(move || {
        let vectors = match left {
            0 => return None,
            _ if left >= widest => widest,
            1 => 1,
            _ => 2,
        };
        let own = (first, vectors);
        first += vectors * lanes;
        left -= vectors;
        Some(own)
    })
}

/// A copy of a right factor, times a number.
pub(super) struct Copied<'a, T> {
    pub(super) from: Matrix<T>,
    pub(super) factor: T,
    pub(super) to: &'a mut [T],
}

/// Makes copies of factors of `k x columns`, each panel by panel, and in a panel row by row. After the last column there are zeros
/// up to a whole vector. Factors that lie between each other are read together: a line of a cache has elements of several.
///
/// # Safety
/// The matrices are valid for their sizes.
pub(super) unsafe fn pack<T: Copy + Default + std::ops::Mul<Output = T>>(
    (k, columns): (usize, usize),
    shape: Shape,
    copies: &mut [Copied<'_, T>],
) {
    // Sizes of matrices without elements may be any numbers.
    if k == 0 {
        return;
    }
    for (first, vectors) in panels(columns, shape.lanes, shape.widest) {
        let width = vectors * shape.lanes;
        let own = width.min(columns - first);
        if own < width {
            for copy in &mut *copies {
                copy.to[first * k..][..k * width].fill(T::default());
            }
        }
        for row in 0..k {
            for copy in &mut *copies {
                let to = &mut copy.to[first * k + row * width..][..own];
                let from = copy.from.from(row, first);
                let entry = |column: usize| {
                    // SAFETY: the caller promises it.
                    unsafe { *from.ptr.add(column * from.column) * copy.factor }
                };
                let (fours, others) = to.as_chunks_mut::<4>();
                let done = 4 * fours.len();
                for (at, to) in fours.iter_mut().enumerate() {
                    *to = [0, 1, 2, 3].map(|column| entry(4 * at + column));
                }
                for (at, to) in others.iter_mut().enumerate() {
                    *to = entry(done + at);
                }
            }
        }
    }
}

/// The sizes of tiles.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// The elements of a vector.
    pub(super) lanes: usize,
    /// The most vectors of a tile's row.
    pub(super) widest: usize,
}

impl Shape {
    /// The sizes for this CPU.
    pub(super) fn best<T: Vectors>() -> Self {
        struct Best;
        impl<T> VectorLoop<T> for Best {
            type Output = Shape;

            #[inline(always)]
            unsafe fn run<V: Math<Elem = T>>(self, registers: usize) -> Shape {
                Shape {
                    lanes: V::LANES,
                    widest: if registers >= MANY_REGISTERS { 4 } else { 2 },
                }
            }
        }
        // SAFETY: it asks for nothing.
        unsafe { vectors::run::<T, _>(Best) }
    }
}

/// From so many registers on, tiles have up to 24 vectors.
const MANY_REGISTERS: usize = 32;

impl<T> VectorLoop<T> for &Sum<'_, T> {
    type Output = ();

    /// Writes a sum. A tile, a row of the right factor and an element of the left one fill the registers.
    ///
    /// # Safety
    /// Matrices are valid for their sizes, and the result overlaps no other.
    #[inline(always)]
    unsafe fn run<V: Math<Elem = T>>(self, registers: usize) {
        let is_many = registers >= MANY_REGISTERS;
        for (first, vectors) in panels(self.columns, V::LANES, if is_many { 4 } else { 2 }) {
            // SAFETY: the caller promises it.
            unsafe {
                match (vectors, is_many) {
                    (1, true) => panel::<V, 1, 16>(self, first),
                    (1, false) => panel::<V, 1, 8>(self, first),
                    (2, true) => panel::<V, 2, 12>(self, first),
                    (2, false) => panel::<V, 2, 6>(self, first),
                    _ => panel::<V, 4, 6>(self, first),
                }
            }
        }
    }
}

/// Writes a panel, whose tiles have so many vectors and rows.
///
/// # Safety
/// The contract of [`Sum`]'s run holds.
#[inline(always)]
unsafe fn panel<V: Vector, const VECTORS: usize, const ROWS: usize>(
    sum: &Sum<'_, V::Elem>,
    first: usize,
) {
    const FEW: usize = 4;
    // SAFETY: the caller promises it.
    unsafe {
        if sum.rows >= ROWS {
            rows::<V, VECTORS, ROWS>(sum, first);
        } else if sum.rows >= FEW {
            rows::<V, VECTORS, FEW>(sum, first);
        } else {
            rows::<V, VECTORS, 1>(sum, first);
        }
    }
}

/// Writes a panel in tiles of so many rows, of which there are at least as many. The last tile repeats rows of the one before.
///
/// # Safety
/// The contract of [`Sum`]'s run holds.
#[inline(always)]
unsafe fn rows<V: Vector, const VECTORS: usize, const ROWS: usize>(
    sum: &Sum<'_, V::Elem>,
    first: usize,
) {
    let mut done = 0;
    while done < sum.rows {
        let row = done.min(sum.rows - ROWS);
        // SAFETY: the caller promises it.
        unsafe { tile::<V, VECTORS, ROWS>(sum, first, row, done - row) };
        done = row + ROWS;
    }
}

/// Writes a tile, from a row and a column on, without its first rows.
///
/// # Safety
/// The contract of [`Sum`]'s run holds.
#[inline(always)]
unsafe fn tile<V: Vector, const VECTORS: usize, const ROWS: usize>(
    sum: &Sum<'_, V::Elem>,
    first: usize,
    row: usize,
    without: usize,
) {
    // SAFETY: the caller promises it.
    unsafe {
        let mut tile = [[V::zero(); VECTORS]; ROWS];
        for product in sum.products {
            let Matrix {
                row: step, column, ..
            } = product.a;
            let mut a = product.a.from(row, 0).ptr.cast_const();
            let (mut b, width) = match product.b {
                Right::Rows { ptr, row } => (ptr.add(first), row),
                Right::Packed(ptr) => (ptr.add(first * product.k), VECTORS * V::LANES),
            };
            for _ in 0..product.k {
                let mut right = [V::zero(); VECTORS];
                for (at, right) in right.iter_mut().enumerate() {
                    *right = V::load(b.add(at * V::LANES));
                }
                for (at, sums) in tile.iter_mut().enumerate() {
                    let left = V::splat(*a.add(at * step));
                    for (sum, &right) in sums.iter_mut().zip(&right) {
                        *sum = left.mul_add(right, *sum);
                    }
                }
                a = a.wrapping_add(column);
                b = b.wrapping_add(width);
            }
        }
        let factor = V::splat(sum.factor);
        let is_whole = sum.columns - first >= VECTORS * V::LANES && sum.out.column == 1;
        if is_whole && without == 0 {
            whole(&tile, factor, sum.out.from(row, first), sum.accumulate);
            return;
        }
        // A tile whose rows were counted while the program runs would have to lie in memory from the beginning.
        let tile = tile;
        for (at, sums) in tile.iter().enumerate().skip(without) {
            for (vector, &own) in sums.iter().enumerate() {
                let column = first + vector * V::LANES;
                let to = sum.out.from(row + at, column);
                let count = (sum.columns - column).min(V::LANES);
                part(own, factor, to, count, sum.accumulate);
            }
        }
    }
}

/// Writes a tile times a factor, or adds it, where its columns are neighbours.
///
/// # Safety
/// The contract of [`Sum`]'s run holds, and the result has all columns of the tile.
#[inline(always)]
unsafe fn whole<V: Vector, const VECTORS: usize, const ROWS: usize>(
    tile: &[[V; VECTORS]; ROWS],
    factor: V,
    to: Matrix<V::Elem>,
    accumulate: bool,
) {
    let mut to_row = to.ptr;
    for sums in tile {
        for (vector, own) in sums.iter().enumerate() {
            // SAFETY: the caller promises it.
            unsafe {
                let to = to_row.add(vector * V::LANES);
                let before = match accumulate {
                    true => V::load(to),
                    false => V::zero(),
                };
                own.mul_add(factor, before).store(to);
            }
        }
        to_row = to_row.wrapping_add(to.row);
    }
}

/// Writes the first elements of a vector times a factor, or adds them.
///
/// # Safety
/// The contract of [`Sum`]'s run holds.
#[inline(always)]
unsafe fn part<V: Vector>(own: V, factor: V, to: Matrix<V::Elem>, count: usize, accumulate: bool) {
    // SAFETY: the caller promises it, and a vector has room for its elements.
    unsafe {
        let mut all = V::zero();
        let elements = (&raw mut all).cast::<V::Elem>();
        if accumulate {
            for at in 0..count {
                *elements.add(at) = *to.ptr.add(at * to.column);
            }
        }
        own.mul_add(factor, V::load(elements)).store(elements);
        for at in 0..count {
            *to.ptr.add(at * to.column) = *elements.add(at);
        }
    }
}
