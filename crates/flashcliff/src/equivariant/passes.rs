//! The passes of a layer as matrix products, shared among threads.

use std::ops::Range;

use super::terms::Term;
use super::{EquivariantLinear, Matrices, MatricesMut, Side, SideMut, Sizes};
use crate::Element;
use crate::kernel::tasks::{self, Chunks};
use crate::operator::gemm::{Matrix, matmul, matmul_scaled};

/// A part of a pass that no other part writes.
enum Part {
    /// Rows (blade, row) of the multivectors.
    Blades(Range<usize>),
    /// Rows of the scalars.
    Scalars(Range<usize>),
}

/// The smallest number of multiplications that is worth handing to a thread.
const MIN_PRODUCTS: usize = 1 << 22;

/// Cuts the multivectors and the scalars of a side into parts.
fn parts(blades: usize, rows: usize, per_blade: usize, per_scalar: usize) -> Vec<Part> {
    let len = |products: usize| MIN_PRODUCTS.div_ceil(products.max(1)).max(64);
    let flat = Chunks::of_rows(blades * rows, len(per_blade));
    let mut parts: Vec<Part> = (0..flat.count())
        .map(|at| Part::Blades(flat.range(at)))
        .collect();
    if per_scalar > 0 {
        let of_scalars = Chunks::of_rows(rows, len(per_scalar));
        parts.extend((0..of_scalars.count()).map(|at| Part::Scalars(of_scalars.range(at))));
    }
    parts
}

/// The rows of a part that lie in a range of blades.
fn overlap(part: &Range<usize>, blade: usize, blades: usize, rows: usize) -> Range<usize> {
    let start = part.start.max(blade * rows);
    start..part.end.min((blade + blades) * rows).max(start)
}

impl EquivariantLinear {
    pub(super) fn run_output<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
        input: Side<'_, T>,
        out: SideMut<'_, T>,
    ) {
        let places = self.places(sizes, matrices);
        let (x, s) = (
            read(input.multivectors, sizes.in_channels),
            read(input.scalars, sizes.in_scalars),
        );
        let to = Matrix::rows(out.multivectors.as_mut_ptr(), sizes.out_channels);
        let to_s = Matrix::rows(out.scalars.as_mut_ptr(), sizes.out_scalars);
        let (k, n) = (sizes.in_channels, sizes.out_channels);
        let (k_s, n_s) = (sizes.in_scalars, sizes.out_scalars);
        let mixed = self.invariant.len();
        // Without a matrix of scalars, and without blades that scalars mix with, nothing else writes the scalars.
        let has_own = !matrices.scalars_to_scalars.is_empty();
        let work = parts(
            self.blades,
            sizes.rows,
            2 * k * n,
            n_s * (k_s + mixed * k).max(1),
        );
        let (places, x, s, to, to_s) = (&places, &x, &s, &to, &to_s);
        tasks::run::<T>(work.len(), &mut [], 0, |_, at| match &work[at] {
            Part::Blades(part) => {
                for term in &self.terms {
                    let rows = overlap(part, term.output, term.blades, sizes.rows);
                    let from = term.read(rows.start, sizes.rows);
                    // SAFETY: lengths were checked, and parts are disjoint.
                    unsafe {
                        matmul_scaled(
                            (rows.len(), k, n),
                            to.from(rows.start, 0),
                            x.from(from, 0),
                            places.weight(term.map).transposed(),
                            !term.is_first(),
                            T::from_f64(term.factor),
                        );
                    }
                }
                for (index, &blade) in self.invariant.iter().enumerate() {
                    let rows = overlap(part, blade, 1, sizes.rows);
                    if rows.is_empty() {
                        continue;
                    }
                    let row = rows.start - blade * sizes.rows;
                    // SAFETY: the same holds as above.
                    unsafe {
                        if k_s > 0 {
                            let b = places.scalars_to_blades(index).transposed();
                            matmul(
                                (rows.len(), k_s, n),
                                to.from(rows.start, 0),
                                s.from(row, 0),
                                b,
                                true,
                            );
                        }
                        let bias = matrices.blade_bias.iter().skip(index).step_by(mixed);
                        add_rows(to, rows, n, bias);
                    }
                }
            }
            Part::Scalars(rows) => {
                let m = rows.len();
                // SAFETY: the same holds as above.
                unsafe {
                    for (index, &blade) in self.invariant.iter().enumerate() {
                        let c = places.blades_to_scalars(index).transposed();
                        let from = x.from(blade * sizes.rows + rows.start, 0);
                        matmul((m, k, n_s), to_s.from(rows.start, 0), from, c, index > 0);
                    }
                    if has_own {
                        let d = places.scalars_to_scalars.transposed();
                        matmul(
                            (m, k_s, n_s),
                            to_s.from(rows.start, 0),
                            s.from(rows.start, 0),
                            d,
                            mixed > 0,
                        );
                    } else if mixed == 0 {
                        clear_rows(to_s, rows.clone(), n_s);
                    }
                    add_rows(to_s, rows.clone(), n_s, matrices.scalar_bias.iter());
                }
            }
        });
    }

    pub(super) fn run_input_gradient<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
        gradient: Side<'_, T>,
        out: SideMut<'_, T>,
    ) {
        let places = self.places(sizes, matrices);
        let g = read(gradient.multivectors, sizes.out_channels);
        let g_s = read(gradient.scalars, sizes.out_scalars);
        let to = Matrix::rows(out.multivectors.as_mut_ptr(), sizes.in_channels);
        let to_s = Matrix::rows(out.scalars.as_mut_ptr(), sizes.in_scalars);
        let (k, n) = (sizes.out_channels, sizes.in_channels);
        let (k_s, n_s) = (sizes.out_scalars, sizes.in_scalars);
        let mixed = self.invariant.len();
        // Without a matrix of scalars, and without blades that scalars mix with, nothing else writes the scalars.
        let has_own = !matrices.scalars_to_scalars.is_empty();
        let work = parts(
            self.blades,
            sizes.rows,
            2 * k * n,
            n_s * (k_s + mixed * k).max(1),
        );
        let (places, g, g_s, to, to_s) = (&places, &g, &g_s, &to, &to_s);
        tasks::run::<T>(work.len(), &mut [], 0, |_, at| match &work[at] {
            Part::Blades(part) => {
                for term in &self.terms {
                    let rows = overlap(part, term.input, term.blades, sizes.rows);
                    let from = term.written(rows.start, sizes.rows);
                    // SAFETY: lengths were checked, and parts are disjoint.
                    unsafe {
                        matmul_scaled(
                            (rows.len(), k, n),
                            to.from(rows.start, 0),
                            g.from(from, 0),
                            places.weight(term.map),
                            !term.is_first(),
                            T::from_f64(term.factor),
                        );
                    }
                }
                for (index, &blade) in self.invariant.iter().enumerate() {
                    let rows = overlap(part, blade, 1, sizes.rows);
                    if rows.is_empty() || k_s == 0 {
                        continue;
                    }
                    let row = rows.start - blade * sizes.rows;
                    let c = places.blades_to_scalars(index);
                    // SAFETY: the same holds as above.
                    unsafe {
                        matmul(
                            (rows.len(), k_s, n),
                            to.from(rows.start, 0),
                            g_s.from(row, 0),
                            c,
                            true,
                        )
                    };
                }
            }
            Part::Scalars(rows) => {
                let m = rows.len();
                // SAFETY: the same holds as above.
                unsafe {
                    for (index, &blade) in self.invariant.iter().enumerate() {
                        let b = places.scalars_to_blades(index);
                        let from = g.from(blade * sizes.rows + rows.start, 0);
                        matmul((m, k, n_s), to_s.from(rows.start, 0), from, b, index > 0);
                    }
                    if has_own {
                        let d = places.scalars_to_scalars;
                        matmul(
                            (m, k_s, n_s),
                            to_s.from(rows.start, 0),
                            g_s.from(rows.start, 0),
                            d,
                            mixed > 0,
                        );
                    } else if mixed == 0 {
                        clear_rows(to_s, rows.clone(), n_s);
                    }
                }
            }
        });
    }

    pub(super) fn run_weight_gradient<T: Element>(
        &self,
        sizes: Sizes,
        gradient: Side<'_, T>,
        input: Side<'_, T>,
        out: MatricesMut<'_, T>,
    ) {
        let g = read(gradient.multivectors, sizes.out_channels);
        let g_s = read(gradient.scalars, sizes.out_scalars);
        let (x, s) = (
            read(input.multivectors, sizes.in_channels),
            read(input.scalars, sizes.in_scalars),
        );
        let (k, n, rows) = (sizes.in_channels, sizes.out_channels, sizes.rows);
        let (k_s, n_s) = (sizes.in_scalars, sizes.out_scalars);
        let wanted = [
            !out.weight.is_empty(),
            !out.scalars_to_blades.is_empty(),
            !out.blades_to_scalars.is_empty(),
            !out.scalars_to_scalars.is_empty(),
        ];
        for (index, &blade) in self.invariant.iter().enumerate() {
            let bias = out
                .blade_bias
                .iter_mut()
                .skip(index)
                .step_by(self.invariant.len());
            sum_rows(
                &gradient.multivectors[blade * rows * n..(blade + 1) * rows * n],
                bias,
            );
        }
        sum_rows(gradient.scalars, out.scalar_bias.iter_mut());
        let places = self.places_mut(sizes, out);
        // One task for each matrix. Its rows are summed in order.
        let mixed = self.invariant.len();
        let count = self.maps + 2 * mixed + 1;
        let (places, x, s, g, g_s) = (&places, &x, &s, &g, &g_s);
        // SAFETY: lengths were checked; every task writes a matrix of its own.
        tasks::run::<T>(count, &mut [], 0, |_, at| unsafe {
            if at < self.maps {
                let of_map = self.terms.iter().filter(|term| term.map == at);
                for (index, term) in of_map.enumerate().filter(|_| wanted[0]) {
                    let (written, read) = (term.output * rows, term.input * rows);
                    matmul_scaled(
                        (n, term.blades * rows, k),
                        places.weight(at),
                        g.from(written, 0).transposed(),
                        x.from(read, 0),
                        index > 0,
                        T::from_f64(term.factor),
                    );
                }
            } else if at < self.maps + mixed {
                let index = at - self.maps;
                if wanted[1] {
                    let g = g.from(self.invariant[index] * rows, 0).transposed();
                    matmul(
                        (n, rows, k_s),
                        places.scalars_to_blades(index),
                        g,
                        *s,
                        false,
                    );
                }
            } else if at < self.maps + 2 * mixed {
                let index = at - self.maps - mixed;
                if wanted[2] {
                    let x = x.from(self.invariant[index] * rows, 0);
                    matmul(
                        (n_s, rows, k),
                        places.blades_to_scalars(index),
                        g_s.transposed(),
                        x,
                        false,
                    );
                }
            } else if wanted[3] {
                matmul(
                    (n_s, rows, k_s),
                    places.scalars_to_scalars,
                    g_s.transposed(),
                    *s,
                    false,
                );
            }
        });
    }

    fn places<T>(&self, sizes: Sizes, matrices: &Matrices<'_, T>) -> Places<T> {
        self.places_of(
            sizes,
            [
                matrices.weight.as_ptr().cast_mut(),
                matrices.scalars_to_blades.as_ptr().cast_mut(),
                matrices.blades_to_scalars.as_ptr().cast_mut(),
                matrices.scalars_to_scalars.as_ptr().cast_mut(),
            ],
        )
    }

    fn places_mut<T>(&self, sizes: Sizes, matrices: MatricesMut<'_, T>) -> Places<T> {
        self.places_of(
            sizes,
            [
                matrices.weight.as_mut_ptr(),
                matrices.scalars_to_blades.as_mut_ptr(),
                matrices.blades_to_scalars.as_mut_ptr(),
                matrices.scalars_to_scalars.as_mut_ptr(),
            ],
        )
    }

    fn places_of<T>(&self, sizes: Sizes, pointers: [*mut T; 4]) -> Places<T> {
        let mixed = self.invariant.len();
        let [
            weight,
            scalars_to_blades,
            blades_to_scalars,
            scalars_to_scalars,
        ] = pointers;
        Places {
            weight: Matrix {
                ptr: weight,
                row: sizes.in_channels * self.maps,
                column: self.maps,
            },
            scalars_to_blades: Matrix::rows(scalars_to_blades, mixed * sizes.in_scalars),
            in_scalars: sizes.in_scalars,
            blades_to_scalars: Matrix {
                ptr: blades_to_scalars,
                row: mixed * sizes.in_channels,
                column: mixed,
            },
            scalars_to_scalars: Matrix::rows(scalars_to_scalars, sizes.in_scalars),
        }
    }
}

impl Term {
    /// Whether the term writes, where others add.
    fn is_first(&self) -> bool {
        self.output == self.input
    }

    /// The row that an output row reads.
    fn read(&self, row: usize, rows: usize) -> usize {
        row + self.input * rows - self.output * rows
    }

    /// The output row that an input row is added to.
    fn written(&self, row: usize, rows: usize) -> usize {
        row + self.output * rows - self.input * rows
    }
}

/// The parameters as matrices, outputs by inputs.
struct Places<T> {
    weight: Matrix<T>,
    scalars_to_blades: Matrix<T>,
    in_scalars: usize,
    blades_to_scalars: Matrix<T>,
    scalars_to_scalars: Matrix<T>,
}

impl<T: Copy> Places<T> {
    fn weight(&self, map: usize) -> Matrix<T> {
        shifted(&self.weight, map)
    }

    fn scalars_to_blades(&self, index: usize) -> Matrix<T> {
        shifted(&self.scalars_to_blades, index * self.in_scalars)
    }

    fn blades_to_scalars(&self, index: usize) -> Matrix<T> {
        shifted(&self.blades_to_scalars, index)
    }
}

fn shifted<T: Copy>(matrix: &Matrix<T>, by: usize) -> Matrix<T> {
    Matrix {
        ptr: matrix.ptr.wrapping_add(by),
        ..*matrix
    }
}

fn read<T>(data: &[T], columns: usize) -> Matrix<T> {
    Matrix::rows(data.as_ptr().cast_mut(), columns)
}

/// Adds a vector to rows of a matrix; nothing for an empty vector.
///
/// # Safety
/// The rows have `n` entries each, which nobody else uses.
unsafe fn add_rows<'a, T: Element>(
    to: &Matrix<T>,
    rows: Range<usize>,
    n: usize,
    values: impl Iterator<Item = &'a T>,
) {
    let values: Vec<T> = values.copied().collect();
    if values.is_empty() {
        return;
    }
    for row in rows {
        // SAFETY: the caller promises it.
        let row = unsafe { std::slice::from_raw_parts_mut(to.from(row, 0).ptr, n) };
        for (to, &value) in row.iter_mut().zip(&values) {
            *to += value;
        }
    }
}

/// Clears rows of a matrix.
///
/// # Safety
/// The rows have `n` entries each, which nobody else uses.
unsafe fn clear_rows<T: Element>(to: &Matrix<T>, rows: Range<usize>, n: usize) {
    // SAFETY: the caller promises it, and rows follow each other.
    let all = unsafe { std::slice::from_raw_parts_mut(to.from(rows.start, 0).ptr, rows.len() * n) };
    all.fill(T::default());
}

/// Writes the sums of the columns of a matrix.
fn sum_rows<'a, T: Element>(matrix: &[T], to: impl ExactSizeIterator<Item = &'a mut T>) {
    let mut sums = vec![T::default(); to.len()];
    if sums.is_empty() {
        return;
    }
    for row in matrix.chunks_exact(sums.len()) {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
    }
    to.zip(sums).for_each(|(to, sum)| *to = sum);
}
