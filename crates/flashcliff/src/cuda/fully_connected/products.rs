//! The matrix products of a block of rows and one output grade. With the path products `A` as
//! `[blades rows, paths in]` and the weights as `W [paths in, out]`, one product is all of `o = A W`.

use super::blocked::OutputGrade;
use super::blocks::Blocks;
use crate::Dtype;
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::{Form, MANY_TILES, MatmulPrecision, ONE, Product, offset, tiles};
use crate::operator::Dims;

/// The fewest rows worth a part of a sum over rows.
const PART_ROWS: usize = 512;
/// The most parts: each takes memory.
const MOST_PARTS: usize = 32;

/// The products of one output grade, for blocks of at most so many rows.
#[derive(Clone, Copy)]
pub(super) struct Products<'a> {
    grade: &'a OutputGrade,
    dims: &'a Dims,
    /// Of the operands and of the results.
    types: [Dtype; 2],
    blocks: Blocks,
    precision: MatmulPrecision,
}

impl<'a> Products<'a> {
    pub(super) fn new(
        grade: &'a OutputGrade,
        dims: &'a Dims,
        dtypes: Dtypes,
        blocks: Blocks,
        precision: MatmulPrecision,
    ) -> Self {
        Self {
            grade,
            dims,
            types: [dtypes.lanes, dtypes.arithmetic()],
            blocks,
            precision,
        }
    }

    /// The rows of `A` for a whole block.
    pub(super) fn rows(&self) -> usize {
        self.grade.blades.len() * self.blocks.rows
    }

    /// The columns of `A`.
    pub(super) fn width(&self) -> usize {
        self.grade.paths.len() * self.dims.in_channels
    }

    /// The parts of the sum over rows that the gradient of the weights is, all at once: cuBLASLt, kept to sums
    /// in a fixed order, gives a long one to few multiprocessors. Depends on the shape alone.
    pub(super) fn parts(&self) -> usize {
        let tiles = tiles(self.width(), self.dims.out_channels).max(1);
        let wanted = (MANY_TILES / tiles).min(self.rows() / PART_ROWS);
        wanted.clamp(1, MOST_PARTS)
    }

    /// `o = A W` for so many rows of the batch; the addresses are those of all weights, of `A`, and of all
    /// blades of `o`.
    pub(super) fn output(&self, count: usize, [weights, formed, product]: [u64; 3]) -> Product {
        let size = (self.dims.out_channels, self.rows_of(count), self.width());
        let o = self.blades(product, count, self.types[1]);
        let addresses = [self.weights(weights), formed, o];
        self.product(Form::Times, size, ONE, addresses)
    }

    /// `grad_A = grad_o W^T`; the addresses are those of all weights, of all blades of `grad_o`, and of
    /// `grad_A`.
    pub(super) fn path_gradients(
        &self,
        count: usize,
        [weights, grad_product, formed]: [u64; 3],
    ) -> Product {
        let size = (self.width(), self.rows_of(count), self.dims.out_channels);
        let grad_o = self.blades(grad_product, count, self.types[0]);
        let addresses = [self.weights(weights), grad_o, formed];
        self.product(Form::TimesTranspose, size, ONE, addresses)
    }

    /// `grad_W += A^T grad_o` in parts, the rows that are left over added to the first one. The first block
    /// overwrites what there was.
    pub(super) fn weight_gradients(
        &self,
        count: usize,
        is_first: bool,
        [grad_product, formed, grads]: [u64; 3],
    ) -> impl Iterator<Item = Product> {
        let (parts, out, width) = (self.parts(), self.dims.out_channels, self.width());
        let (rows, part) = (self.rows_of(count), self.rows_of(count) / parts);
        let grad_o = self.blades(grad_product, count, self.types[0]);
        let strides = [part * out, part * width, width * out];
        let together = (part > 0).then(|| Product {
            accumulate: !is_first,
            ..self.product(
                Form::TransposeTimes,
                (out, width, part),
                (parts, strides),
                [grad_o, formed, grads],
            )
        });
        let done = part * parts;
        let rest = (done < rows).then(|| {
            let bytes = self.types[0].bytes();
            let grad_o = offset(grad_o, done, out, bytes);
            let formed = offset(formed, done, width, bytes);
            let size = (out, width, rows - done);
            Product {
                accumulate: true,
                ..self.product(Form::TransposeTimes, size, ONE, [grad_o, formed, grads])
            }
        });
        together.into_iter().chain(rest)
    }

    fn rows_of(&self, count: usize) -> usize {
        self.grade.blades.len() * count
    }

    /// The weights of the grade.
    fn weights(&self, all: u64) -> u64 {
        let size = self.dims.in_channels * self.dims.out_channels;
        offset(all, self.grade.paths.start, size, self.types[0].bytes())
    }

    /// The blades of the grade in a tensor like the output.
    fn blades(&self, all: u64, count: usize, dtype: Dtype) -> u64 {
        let size = count * self.dims.out_channels;
        offset(all, self.grade.blades.start, size, dtype.bytes())
    }

    fn product(
        &self,
        form: Form,
        size: (usize, usize, usize),
        parts: (usize, [usize; 3]),
        addresses: [u64; 3],
    ) -> Product {
        Product::new(form, size, parts, self.types, addresses, self.precision)
    }
}
