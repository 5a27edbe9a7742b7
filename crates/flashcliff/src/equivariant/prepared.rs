//! A layer with its parameters in the order in which products of matrices read them, shared among threads.

use std::ops::Range;

use super::passes::{Places, read};
use super::{EquivariantLinear, Matrices, Side, SideMut, Sizes, check_len};
use crate::kernel::tasks::{self, Chunks};
use crate::operator::gemm::{Matrix, Product, Rights, sum_of_products};
use crate::{Element, Error};

/// A layer with its parameters, copied for many calls: of [`EquivariantLinear::output`] or of [`EquivariantLinear::input_gradient`].
#[derive(Debug)]
pub struct Prepared<T> {
    blades: usize,
    /// The channels and scalars that are read.
    from: [usize; 2],
    /// The channels and scalars that are written.
    to: [usize; 2],
    products: Vec<Step>,
    rights: Rights<T>,
    /// The blades that have a bias, each with it, and the bias of scalars.
    blade_bias: Vec<(usize, Vec<T>)>,
    scalar_bias: Vec<T>,
}

/// A product that is added to a blade, or to scalars.
#[derive(Clone, Copy, Debug)]
struct Step {
    to: End,
    from: End,
    /// The number of the right factor.
    right: usize,
}

/// A blade of multivectors, or scalars.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Blade(usize),
    Scalars,
}

/// A part of a call that no other part writes.
enum Part {
    /// Rows (blade, row) of the multivectors.
    Blades(Range<usize>),
    /// Rows of the scalars.
    Scalars(Range<usize>),
}

/// The smallest number of multiplications that is worth handing to a thread.
const MIN_PRODUCTS: usize = 1 << 22;

/// The products of a layer, and their right factors.
struct List<T> {
    products: Vec<Step>,
    factors: Vec<((usize, usize), Matrix<T>, T)>,
    /// The map and the number that each factor of a map has. These come before all others.
    of_maps: Vec<(usize, f64)>,
}

impl<T: Element> List<T> {
    /// Adds a product with a map times a number.
    fn map(
        &mut self,
        [to, from]: [usize; 2],
        own: (usize, f64),
        factor: ((usize, usize), Matrix<T>),
    ) {
        let known = self.of_maps.iter().position(|other| *other == own);
        let right = known.unwrap_or_else(|| {
            self.of_maps.push(own);
            self.factors.push((factor.0, factor.1, T::from_f64(own.1)));
            self.factors.len() - 1
        });
        let [to, from] = [to, from].map(End::Blade);
        self.products.push(Step { to, from, right });
    }

    /// Adds a product with a separate factor.
    fn own(&mut self, [to, from]: [End; 2], (sizes, matrix): ((usize, usize), Matrix<T>)) {
        let right = self.factors.len();
        self.factors.push((sizes, matrix, T::from_f64(1.0)));
        self.products.push(Step { to, from, right });
    }
}

impl EquivariantLinear {
    /// Copies parameters, whose lengths were checked, for the layer.
    pub(super) fn prepared_output<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
    ) -> Prepared<T> {
        let (k, n) = (sizes.in_channels, sizes.out_channels);
        let (k_s, n_s) = (sizes.in_scalars, sizes.out_scalars);
        let transposed = |matrix: Matrix<T>| matrix.transposed();
        let list = self.list(sizes, matrices, |list, places| {
            for term in &self.terms {
                let factor = ((k, n), places.weight(term.map).transposed());
                for blade in 0..term.blades {
                    let ends = [term.output + blade, term.input + blade];
                    list.map(ends, (term.map, term.factor), factor);
                }
            }
            for (index, &blade) in self.invariant.iter().enumerate() {
                let blade = End::Blade(blade);
                let to_blades = transposed(places.scalars_to_blades(index));
                list.own([blade, End::Scalars], ((k_s, n), to_blades));
                let to_scalars = transposed(places.blades_to_scalars(index));
                list.own([End::Scalars, blade], ((k, n_s), to_scalars));
            }
            if !matrices.scalars_to_scalars.is_empty() {
                let own = transposed(places.scalars_to_scalars);
                list.own([End::Scalars; 2], ((k_s, n_s), own));
            }
        });
        let invariant = self.invariant.iter().enumerate();
        let bias = invariant.map(|(index, &blade)| {
            let own = matrices.blade_bias.iter().skip(index);
            (blade, own.step_by(self.invariant.len()).copied().collect())
        });
        Prepared {
            blade_bias: bias
                .filter(|(_, own): &(_, Vec<T>)| !own.is_empty())
                .collect(),
            scalar_bias: matrices.scalar_bias.to_vec(),
            ..self.prepared([k, k_s], [n, n_s], list)
        }
    }

    /// Copies parameters, whose lengths were checked, for the gradient of the input.
    pub(super) fn prepared_input_gradient<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
    ) -> Prepared<T> {
        let (k, n) = (sizes.out_channels, sizes.in_channels);
        let (k_s, n_s) = (sizes.out_scalars, sizes.in_scalars);
        let list = self.list(sizes, matrices, |list, places| {
            for term in &self.terms {
                let factor = ((k, n), places.weight(term.map));
                for blade in 0..term.blades {
                    let ends = [term.input + blade, term.output + blade];
                    list.map(ends, (term.map, term.factor), factor);
                }
            }
            for (index, &blade) in self.invariant.iter().enumerate() {
                let blade = End::Blade(blade);
                let of_blades = ((k_s, n), places.blades_to_scalars(index));
                list.own([blade, End::Scalars], of_blades);
                let of_scalars = ((k, n_s), places.scalars_to_blades(index));
                list.own([End::Scalars, blade], of_scalars);
            }
            if !matrices.scalars_to_scalars.is_empty() {
                list.own([End::Scalars; 2], ((k_s, n_s), places.scalars_to_scalars));
            }
        });
        self.prepared([k, k_s], [n, n_s], list)
    }

    fn list<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
        add: impl FnOnce(&mut List<T>, Places<T>),
    ) -> List<T> {
        let mut list = List {
            products: Vec::new(),
            factors: Vec::new(),
            of_maps: Vec::new(),
        };
        add(&mut list, self.places(sizes, matrices));
        list
    }

    fn prepared<T: Element>(&self, from: [usize; 2], to: [usize; 2], list: List<T>) -> Prepared<T> {
        Prepared {
            blades: self.blades,
            from,
            to,
            products: list.products,
            // SAFETY: the lengths of parameters were checked.
            rights: unsafe { Rights::new(&list.factors) },
            blade_bias: Vec::new(),
            scalar_bias: Vec::new(),
        }
    }
}

impl<T: Element> Prepared<T> {
    /// Computes the layer, or the gradient of its input, for so many rows: the same as without copies.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a slice that does not have the length of its shape.
    #[inline]
    pub fn run(&self, rows: usize, from: Side<'_, T>, to: SideMut<'_, T>) -> Result<(), Error> {
        T::linear_run(self, rows, from, to)
    }

    pub(super) fn run_here(
        &self,
        rows: usize,
        from: Side<'_, T>,
        to: SideMut<'_, T>,
    ) -> Result<(), Error> {
        for ([channels, scalars], lens) in [(self.from, from.lens()), (self.to, to.lens())] {
            check_len(&[self.blades, rows, channels], lens[0])?;
            check_len(&[rows, scalars], lens[1])?;
        }
        // Rows without elements may be any number.
        if to.lens() == [0, 0] {
            return Ok(());
        }
        let ([k, k_s], [n, n_s]) = (self.from, self.to);
        let call = Call {
            of: self,
            rows,
            from: [read(from.multivectors, k), read(from.scalars, k_s)],
            to: [
                Matrix::rows(to.multivectors.as_mut_ptr(), n),
                Matrix::rows(to.scalars.as_mut_ptr(), n_s),
            ],
        };
        let work = self.parts(rows);
        tasks::run::<T>(work.len(), &mut [], 0, |_, at| {
            let mut list = Vec::new();
            // SAFETY: lengths were checked, and parts are disjoint.
            let mut write = |end, rows| unsafe { call.write(end, rows, &mut list) };
            match &work[at] {
                Part::Blades(part) => {
                    for blade in part.start / rows..part.end.div_ceil(rows) {
                        let first = blade * rows;
                        let end = part.end.min(first + rows) - first;
                        write(End::Blade(blade), part.start.max(first) - first..end);
                    }
                }
                Part::Scalars(rows) => write(End::Scalars, rows.clone()),
            }
        });
        Ok(())
    }

    /// Cuts the multivectors and the scalars that are written into parts.
    fn parts(&self, rows: usize) -> Vec<Part> {
        let ([k, k_s], [n, n_s]) = (self.from, self.to);
        let mixed = self.products.iter().filter(|own| own.to == End::Scalars);
        let per_scalar = n_s * (k_s + mixed.count() * k).max(1);
        let len = |products: usize| MIN_PRODUCTS.div_ceil(products.max(1)).max(64);
        let flat = Chunks::of_rows(self.blades * rows, len(2 * k * n));
        let parts = (0..flat.count()).map(|at| Part::Blades(flat.range(at)));
        let mut parts: Vec<Part> = parts.collect();
        if per_scalar > 0 {
            let of_scalars = Chunks::of_rows(rows, len(per_scalar));
            parts.extend((0..of_scalars.count()).map(|at| Part::Scalars(of_scalars.range(at))));
        }
        parts
    }
}

/// A call with rows of multivectors and of scalars.
struct Call<'a, T: Element> {
    of: &'a Prepared<T>,
    rows: usize,
    from: [Matrix<T>; 2],
    to: [Matrix<T>; 2],
}

impl<T: Element> Call<'_, T> {
    /// Writes some rows of a blade, or of scalars.
    ///
    /// # Safety
    /// Lengths were checked, and nobody else writes these rows or reads them.
    unsafe fn write(&self, end: End, rows: Range<usize>, list: &mut Vec<Product<T>>) {
        let own = self.of.products.iter().filter(|own| own.to == end);
        list.clear();
        list.extend(own.map(|own| {
            let (from, first) = self.first(&self.from, own.from);
            self.of
                .rights
                .product(from.from(first + rows.start, 0), own.right)
        }));
        let (to, first) = self.first(&self.to, end);
        let (to, columns) = (to.from(first + rows.start, 0), to.row);
        let bias = match end {
            End::Scalars => Some(&self.of.scalar_bias),
            End::Blade(blade) => {
                let mut all = self.of.blade_bias.iter();
                all.find(|(own, _)| *own == blade).map(|(_, bias)| bias)
            }
        };
        // SAFETY: the caller promises it, and right factors have these columns.
        unsafe {
            sum_of_products((rows.len(), columns), to, list);
            let Some(bias) = bias.filter(|own| !own.is_empty()) else {
                return;
            };
            for row in 0..rows.len() {
                let row = std::slice::from_raw_parts_mut(to.from(row, 0).ptr, columns);
                for (to, &bias) in row.iter_mut().zip(bias) {
                    *to += bias;
                }
            }
        }
    }

    /// The matrix of an end, and its first row.
    fn first(&self, [blades, scalars]: &[Matrix<T>; 2], end: End) -> (Matrix<T>, usize) {
        match end {
            End::Blade(blade) => (*blades, blade * self.rows),
            End::Scalars => (*scalars, 0),
        }
    }
}
