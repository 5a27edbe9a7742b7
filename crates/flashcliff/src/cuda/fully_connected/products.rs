//! The matrix products of a block of rows, for one or two output grades of the same shape. With the path
//! products `A` as `[blades rows, paths in]` and the weights as `W [paths in, out]`, one product is all of
//! `o = A W`.

use std::ops::Range;

use super::blocks::Blocks;
use super::grades::OutputGrade;
use super::problem::Problem;
use super::workspace::Scales;
use crate::Dtype;
use crate::cuda::matmul::{Form, MANY_TILES, Product, offset, tiles};

/// The fewest rows worth a part of a sum over rows.
const PART_ROWS: usize = 512;
/// The most parts: each takes memory.
const MOST_PARTS: usize = 32;

/// The products of a group of output grades, for blocks of at most so many rows.
#[derive(Clone, Copy)]
pub(super) struct Products<'a> {
    group: &'a [OutputGrade],
    problem: Problem<'a>,
    blocks: Blocks,
}

impl<'a> Products<'a> {
    /// `group` is not empty, and its grades have the same shape.
    pub(super) fn new(problem: Problem<'a>, group: &'a [OutputGrade], blocks: Blocks) -> Self {
        Self {
            group,
            problem,
            blocks,
        }
    }

    /// How many grades.
    pub(super) fn members(&self) -> usize {
        self.group.len()
    }

    /// The first grade: what the group is known by.
    pub(super) fn grade(&self) -> usize {
        self.group[0].grade
    }

    /// The paths to each grade, in the order of the products.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'a Range<usize>> {
        self.group.iter().map(|grade| &grade.paths)
    }

    pub(super) fn first_path(&self) -> usize {
        self.group[0].paths.start
    }

    /// The rows of `A` for so many rows of the batch.
    pub(super) fn rows(&self, count: usize) -> usize {
        self.group[0].blades.len() * count
    }

    /// The columns of `A`.
    pub(super) fn width(&self) -> usize {
        self.group[0].paths.len() * self.problem.dims.in_channels
    }

    /// `A` for so many rows of the batch: its rows and columns, and the columns of `W`.
    fn sizes(&self, count: usize) -> [usize; 3] {
        [
            self.rows(count),
            self.width(),
            self.problem.dims.out_channels,
        ]
    }

    /// Of operands, and of sums.
    fn types(&self) -> [Dtype; 2] {
        [self.problem.operands(), self.problem.dtypes.arithmetic()]
    }

    /// The tiles of the gradients of the weights, of all grades.
    fn weight_tiles(&self) -> usize {
        self.group.len() * tiles(self.width(), self.problem.dims.out_channels)
    }

    /// The parts of the sum over rows that the gradient of the weights is, all at once: cuBLASLt, kept to sums
    /// in a fixed order, gives a long one to few multiprocessors. Depends on the shape and on the rows of a block.
    pub(super) fn parts(&self) -> usize {
        let wanted =
            (MANY_TILES / self.weight_tiles().max(1)).min(self.rows(self.blocks.rows) / PART_ROWS);
        wanted.clamp(1, MOST_PARTS)
    }

    /// `o = A W` for so many rows of the batch; the addresses are those of `W` and of `A`, of the group, and of all blades
    /// of `o`.
    pub(super) fn output(&self, count: usize, [weights, formed, product]: [u64; 3]) -> Product {
        let [rows, width, out] = self.sizes(count);
        let types = self.types();
        let (o, stride) = self.blades(product, count, types[1]);
        let strides = [width * out, rows * width, stride];
        self.product(
            Form::Times,
            (out, rows, width),
            (self.group.len(), strides),
            types,
            [weights, formed, o],
        )
    }

    /// `grad_A = grad_o W^T`; the addresses are those of `W` of the group, of all blades of `grad_o`, and of `grad_A` of the
    /// group. Of a scaled block smaller by a power of two, since `grad_A` is of the type of operands too.
    pub(super) fn path_gradients(
        &self,
        count: usize,
        [weights, grad_product, formed]: [u64; 3],
    ) -> Product {
        let [rows, width, out] = self.sizes(count);
        let operands = self.problem.operands();
        let (grad_o, stride) = self.blades(grad_product, count, operands);
        let strides = [width * out, stride, rows * width];
        let product = self.product(
            Form::TimesTranspose,
            (width, rows, out),
            (self.group.len(), strides),
            [operands; 2],
            [weights, grad_o, formed],
        );
        let scale = match self.problem.is_scaled() {
            true => f64::from(-Scales::path_grads(out)).exp2(),
            false => 1.0,
        };
        Product { scale, ..product }
    }

    /// `grad_W = A^T grad_o`, or added to what there was. The addresses are those of all blades of `grad_o`, of `A`
    /// of the group, and of its gradients.
    pub(super) fn weight_gradients(
        &self,
        count: usize,
        accumulate: bool,
        addresses: [u64; 3],
    ) -> Vec<Product> {
        let products = match self.parts() {
            1 => vec![self.weight_gradients_together(count, addresses)],
            _ => (0..self.group.len())
                .flat_map(|member| self.weight_gradients_in_parts(member, count, addresses))
                .collect(),
        };
        let set = |product: Product| Product {
            // What is left over of the rows is added to the first part.
            accumulate: accumulate || product.accumulate,
            ..product
        };
        products.into_iter().map(set).collect()
    }

    /// Those of all grades, in one part each.
    fn weight_gradients_together(
        &self,
        count: usize,
        [grad_product, formed, grads]: [u64; 3],
    ) -> Product {
        let [rows, width, out] = self.sizes(count);
        let (grad_o, stride) = self.blades(grad_product, count, self.problem.operands());
        let strides = [stride, rows * width, width * out];
        self.product(
            Form::TransposeTimes,
            (out, width, rows),
            (self.group.len(), strides),
            self.types(),
            [grad_o, formed, grads],
        )
    }

    /// Those of one grade: all parts at once, and the rows that are left over.
    fn weight_gradients_in_parts(
        &self,
        member: usize,
        count: usize,
        [grad_product, formed, grads]: [u64; 3],
    ) -> impl Iterator<Item = Product> {
        let ([rows, width, out], parts) = (self.sizes(count), self.parts());
        let part = rows / parts;
        let types = self.types();
        let [lane, sum] = types.map(Dtype::bytes);
        let (grad_o, stride) = self.blades(grad_product, count, types[0]);
        let grad_o = offset(grad_o, member, stride, lane);
        let formed = offset(formed, member, rows * width, lane);
        let grads = offset(grads, member, parts * width * out, sum);
        let form = Form::TransposeTimes;
        let strides = [part * out, part * width, width * out];
        let together = (part > 0).then(|| {
            let size = (out, width, part);
            self.product(form, size, (parts, strides), types, [grad_o, formed, grads])
        });
        let done = part * parts;
        let rest = (done < rows).then(|| {
            let addresses = [
                offset(grad_o, done, out, lane),
                offset(formed, done, width, lane),
                grads,
            ];
            let size = (out, width, rows - done);
            Product {
                accumulate: true,
                ..self.product(form, size, (1, [0; 3]), types, addresses)
            }
        });
        together.into_iter().chain(rest)
    }

    /// The blades of the first grade in a tensor like the output, and the elements from there to those of the second.
    fn blades(&self, all: u64, count: usize, dtype: Dtype) -> (u64, usize) {
        let size = count * self.problem.dims.out_channels;
        let first = self.group[0].blades.start;
        let next = self.group.last().map_or(first, |grade| grade.blades.start);
        (
            offset(all, first, size, dtype.bytes()),
            (next - first) * size,
        )
    }

    fn product(
        &self,
        form: Form,
        size: (usize, usize, usize),
        parts: (usize, [usize; 3]),
        types: [Dtype; 2],
        addresses: [u64; 3],
    ) -> Product {
        Product::new(form, size, parts, types, addresses, self.problem.precision)
    }
}
