//! Products with the matrix of linear layers that leave out its blocks of zeros, of which most of it consists.
//!
//! Kernels of [`block_sparse`] serve `f32` that may be rounded to TF32, and matrices whose sides are whole units of columns.

use std::collections::HashMap;

use flashcliff::Dtype;
use flashcliff::cuda::MatmulPrecision;
use flashcliff::cuda::block_sparse::{
    self, GROUP_INPUTS, GROUP_NUMBERS, GROUP_UNITS, Groups, Product, Rows, UNIT, Weights,
};
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;

use super::constants::{Constants, Table};
use super::matrix::Layout;
use super::{Site, Sizes};
use crate::Error;

/// Up to so many rows, these kernels wait for memory less often than dense products.
const FEW_ROWS: usize = 512;
/// For more rows they take less time where no more than one in so many elements of the matrix is in a block.
const ELEMENTS: usize = 3;

/// The blocks of a matrix `[inputs, outputs]`.
#[derive(Debug)]
pub(super) struct Blocks {
    layout: Layout,
    /// For each unit of inputs and each of outputs whether the block between them is one.
    units: Vec<Vec<bool>>,
    /// Groups of outputs; groups of inputs, which depend on outputs in the backward pass; groups of few of both, for
    /// the gradient of the matrix.
    forward: Grouped,
    backward: Grouped,
    weights: Grouped,
    /// Whether products that make rows leave out zeros. The gradient of the matrix always does.
    makes_rows: bool,
}

/// Groups of output units that depend on the same input units, on the device and on the host.
#[derive(Debug)]
struct Grouped {
    groups: Table,
    units: Table,
    sizes: Vec<i32>,
}

/// The input units and the output units of a group.
type Group = (Vec<usize>, Vec<usize>);

impl Blocks {
    /// The blocks of a matrix whose elements are zero or not; `None` if the kernels do not serve it.
    pub(super) fn new(
        layout: Layout,
        is_filled: impl Fn(usize) -> bool,
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Option<Self>, Error> {
        let Layout {
            inputs, outputs, ..
        } = layout;
        if !serve(layout, sizes) {
            return Ok(None);
        }
        let units = units_of([inputs, outputs], is_filled);
        let transposed: Vec<Vec<bool>> = (0..outputs / UNIT)
            .map(|output| units.iter().map(|row| row[output]).collect())
            .collect();
        let forward = alike(&transposed);
        let filled: usize = forward.iter().map(|(from, to)| from.len() * to.len()).sum();
        let few = forward.iter().flat_map(|(from, to)| {
            let pieces = pieces(from, GROUP_INPUTS);
            // Outputs without inputs have a bias.
            let pieces = if pieces.is_empty() {
                vec![Vec::new()]
            } else {
                pieces
            };
            pieces.into_iter().map(move |piece| (piece, to.clone()))
        });
        let few: Vec<Group> = few.collect();
        Ok(Some(Self {
            layout,
            makes_rows: makes_rows(layout, filled, sizes),
            backward: Grouped::new(&alike(&units), constants)?,
            forward: Grouped::new(&forward, constants)?,
            weights: Grouped::new(&few, constants)?,
            units,
        }))
    }

    /// Whether products that make rows leave out zeros.
    pub(super) fn makes_rows(&self) -> bool {
        self.makes_rows
    }

    /// Whether tokens on both sides of a map with such a matrix may have 16 bits.
    pub(super) fn take_16_bits(
        layout: Layout,
        is_filled: impl Fn(usize) -> bool,
        sizes: &Sizes,
    ) -> bool {
        if !serve(layout, sizes) {
            return false;
        }
        let units = units_of([layout.inputs, layout.outputs], is_filled);
        let filled = units
            .iter()
            .flatten()
            .filter(|is_filled| **is_filled)
            .count();
        makes_rows(layout, filled, sizes)
    }

    /// The elements of the matrix and of its bias that products read, in order.
    pub(super) fn elements(&self) -> Vec<usize> {
        let Layout {
            inputs,
            outputs,
            bias,
            len,
        } = self.layout;
        let is_read = |at: &usize| self.units[at / outputs / UNIT][at % outputs / UNIT];
        let of_matrix = (0..inputs * outputs).filter(is_read);
        of_matrix.chain(bias..len).collect()
    }

    /// The bytes that [`Self::gradient`] works in.
    pub(super) fn bytes(&self, sizes: &Sizes) -> usize {
        sizes.bytes(block_sparse::partials(sizes.rows(), self.weights.count()))
    }

    /// Writes rows times the matrix, plus the bias.
    ///
    /// # Safety
    /// The addresses point to the rows, to the matrix with its bias, and to the result.
    pub(super) unsafe fn output(
        &self,
        site: &Site<'_>,
        [x, matrix, to]: [CUdeviceptr; 3],
    ) -> Result<(), Error> {
        let (sizes, layout) = (&site.sizes, self.layout);
        let Layout {
            inputs, outputs, ..
        } = layout;
        let product = Product {
            x: rows(x, inputs, sizes.end_dtype(0)),
            weights: rows(matrix, outputs, sizes.dtype),
            bias: sizes.after(matrix, layout.bias),
            out: rows(to, outputs, sizes.end_dtype(1)),
            rows: sizes.rows(),
            transposed: false,
            groups: self.forward.at(site),
        };
        // SAFETY: the units belong to the matrix; the caller promises the rest.
        Ok(unsafe { block_sparse::product(site.target(), product) }?)
    }

    /// Writes the gradient of rows from that of the result.
    ///
    /// # Safety
    /// The addresses point to the gradient of the result, to the matrix, and to the gradient of the rows.
    pub(super) unsafe fn input(
        &self,
        site: &Site<'_>,
        [g, matrix, to]: [CUdeviceptr; 3],
    ) -> Result<(), Error> {
        let (sizes, layout) = (&site.sizes, self.layout);
        let Layout {
            inputs, outputs, ..
        } = layout;
        let product = Product {
            x: rows(g, outputs, sizes.end_dtype(1)),
            weights: rows(matrix, outputs, sizes.dtype),
            bias: 0,
            out: rows(to, inputs, sizes.end_dtype(0)),
            rows: sizes.rows(),
            transposed: true,
            groups: self.backward.at(site),
        };
        // SAFETY: the units belong to the matrix; the caller promises the rest.
        Ok(unsafe { block_sparse::product(site.target(), product) }?)
    }

    /// Writes the gradients of the matrix and of the bias after it. Elements in no block are left as they are.
    ///
    /// # Safety
    /// The addresses point to the rows, to the result's gradient, to the gradient, and to [`Self::bytes`] of memory.
    pub(super) unsafe fn gradient(
        &self,
        site: &Site<'_>,
        [x, g, to, partials]: [CUdeviceptr; 4],
    ) -> Result<(), Error> {
        let (sizes, layout) = (&site.sizes, self.layout);
        let Layout {
            inputs, outputs, ..
        } = layout;
        let weights = Weights {
            x: rows(x, inputs, sizes.end_dtype(0)),
            gradient: rows(g, outputs, sizes.end_dtype(1)),
            partials,
            to: rows(to, outputs, sizes.dtype),
            of_bias: sizes.after(to, layout.bias),
            rows: sizes.rows(),
            groups: self.weights.at(site),
        };
        // SAFETY: the units belong to the matrix; the caller promises the rest.
        Ok(unsafe { block_sparse::weights(site.target(), weights) }?)
    }
}

fn rows(elements: CUdeviceptr, stride: usize, dtype: Dtype) -> Rows {
    Rows {
        elements,
        stride,
        dtype,
    }
}

/// Whether the kernels serve a matrix.
fn serve(layout: Layout, sizes: &Sizes) -> bool {
    let is_whole = |side: usize| side > 0 && side.is_multiple_of(UNIT);
    let is_tf32 = sizes.dtype == Dtype::F32 && sizes.precision == MatmulPrecision::Tf32;
    is_tf32 && is_whole(layout.inputs) && is_whole(layout.outputs)
}

/// Whether products that make rows leave out zeros, of a matrix with so many blocks.
fn makes_rows(layout: Layout, blocks: usize, sizes: &Sizes) -> bool {
    sizes.rows() <= FEW_ROWS || ELEMENTS * blocks * UNIT * UNIT <= layout.inputs * layout.outputs
}

impl Grouped {
    fn new(groups: &[Group], constants: &mut Constants) -> Result<Self, Error> {
        let (sizes, units) = described(groups);
        Ok(Self {
            groups: constants.indices(&sizes)?,
            units: constants.indices(&units)?,
            // Numbers of units, of which a table was just made.
            sizes: sizes.iter().map(|&size| size as i32).collect(),
        })
    }

    fn count(&self) -> usize {
        self.sizes.len() / GROUP_NUMBERS
    }

    fn at(&self, site: &Site<'_>) -> Groups {
        Groups {
            groups: self.groups.at(site.tables),
            sizes: self.sizes.as_ptr().expose_provenance(),
            units: self.units.at(site.tables),
            count: self.count(),
        }
    }
}

/// The numbers of groups and the numbers of units, as the kernels read them.
fn described(groups: &[Group]) -> (Vec<i64>, Vec<i64>) {
    let (mut sizes, mut units) = (Vec::new(), Vec::new());
    let mut known: Vec<&[usize]> = Vec::new();
    for (inputs, outputs) in groups {
        for part in [inputs, outputs] {
            sizes.extend([units.len() as i64, part.len() as i64]);
            units.extend(part.iter().map(|&unit| unit as i64));
        }
        let is_first = !known.contains(&&outputs[..]);
        sizes.push(i64::from(is_first));
        known.push(outputs);
    }
    (sizes, units)
}

/// For each unit of inputs and each of outputs whether an element between them is not zero.
fn units_of([inputs, outputs]: [usize; 2], is_filled: impl Fn(usize) -> bool) -> Vec<Vec<bool>> {
    let mut units = vec![vec![false; outputs / UNIT]; inputs / UNIT];
    for at in (0..inputs * outputs).filter(|&at| is_filled(at)) {
        units[at / outputs / UNIT][at % outputs / UNIT] = true;
    }
    units
}

/// The units with the same sources, and these, in pieces of the size of a group. For each unit there are its sources.
fn alike(sources: &[Vec<bool>]) -> Vec<Group> {
    let mut places: HashMap<Vec<usize>, usize> = HashMap::new();
    let mut found: Vec<Group> = Vec::new();
    for (unit, filled) in sources.iter().enumerate() {
        let own: Vec<usize> = (0..filled.len()).filter(|&at| filled[at]).collect();
        let at = *places.entry(own).or_insert_with_key(|own| {
            found.push((own.clone(), Vec::new()));
            found.len() - 1
        });
        found[at].1.push(unit);
    }
    // The group that takes longest begins first. Groups that take as long keep the order of their units.
    found.sort_by_key(|(own, _)| std::cmp::Reverse(own.len()));
    let divided = found.into_iter().flat_map(|(own, units)| {
        let pieces = pieces(&units, GROUP_UNITS).into_iter();
        pieces.map(move |piece| (own.clone(), piece))
    });
    divided.collect()
}

/// Nearly equal pieces of at most so many units, an even number; pairs are not divided.
fn pieces(units: &[usize], most: usize) -> Vec<Vec<usize>> {
    let pairs = units.len().div_ceil(2);
    let count = pairs.div_ceil(most / 2);
    let bound = |at: usize| (2 * (pairs * at / count.max(1))).min(units.len());
    let piece = |at: usize| units[bound(at)..bound(at + 1)].to_vec();
    (0..count).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of 10 x 21 units, a few blocks of which are not zero.
    fn filled(input: usize, output: usize) -> bool {
        input.is_multiple_of(3) == (output % 4 < 2) && output < 19
    }

    fn sources() -> Vec<Vec<bool>> {
        let of = |output: usize| (0..10).map(|input| filled(input, output)).collect();
        (0..21).map(of).collect()
    }

    #[test]
    fn each_unit_is_in_one_group_with_all_its_sources() {
        let groups = alike(&sources());
        let mut seen = [0; 21];
        for (inputs, outputs) in &groups {
            assert!((1..=GROUP_UNITS).contains(&outputs.len()));
            for &output in outputs {
                seen[output] += 1;
                let expected: Vec<usize> = (0..10).filter(|&input| filled(input, output)).collect();
                assert_eq!(*inputs, expected, "unit {output}");
            }
        }
        assert_eq!(seen, [1; 21]);
        assert!(
            groups
                .windows(2)
                .all(|pair| pair[0].0.len() >= pair[1].0.len())
        );
    }

    #[test]
    fn pieces_are_nearly_equal_and_keep_pairs() {
        let units: Vec<usize> = (0..19).collect();
        let lens: Vec<usize> = pieces(&units, 8).iter().map(Vec::len).collect();
        assert_eq!(lens, [6, 6, 7]);
        assert_eq!(pieces(&units, 8).concat(), units);
        assert_eq!(pieces(&[], 8), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn the_first_group_of_outputs_is_marked() {
        let groups = [
            (vec![0, 1], vec![2]),
            (vec![4], vec![2]),
            (vec![0], vec![3]),
        ];
        let (sizes, units) = described(&groups);
        assert_eq!(sizes, [0, 2, 2, 1, 1, 3, 1, 4, 1, 0, 5, 1, 6, 1, 1]);
        assert_eq!(units, [0, 1, 2, 4, 2, 0, 3]);
    }

    #[test]
    fn units_are_filled_by_one_element() {
        let at = (UNIT + 3) * (2 * UNIT) + 5;
        let units = units_of([2 * UNIT, 2 * UNIT], |element| element == at);
        assert_eq!(units, [[false, false], [true, false]]);
    }
}
