//! The matrix products of a block of rows, for one or two output grades of the same shape. Let `A [blades rows, paths
//! in]` be the path products and `W [paths in, out]` the weights. Then one product `o = A W` gives all blades of a
//! grade.

use std::ops::Range;

use super::blocks::Blocks;
use super::grades::OutputGrade;
use super::problem::Problem;
use super::workspace::Scales;
use crate::Dtype;
use crate::cuda::matmul::{Form, MANY_TILES, Product, offset, tiles};

/// The smallest number of rows that is worth a part of a sum over rows.
const PART_ROWS: usize = 512;
/// The largest number of parts. Each part takes memory.
const MOST_PARTS: usize = 32;

/// The products of a group of output grades, for the blocks of a batch.
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

    /// The number of grades in the group.
    pub(super) fn members(&self) -> usize {
        self.group.len()
    }

    /// The first grade of the group, which identifies the group.
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

    /// The number of rows of `A` for `count` rows of the batch.
    pub(super) fn rows(&self, count: usize) -> usize {
        self.group[0].blades.len() * count
    }

    /// The number of columns of `A`.
    pub(super) fn width(&self) -> usize {
        self.group[0].paths.len() * self.problem.dims.in_channels
    }

    /// The rows and columns of `A` for `count` rows of the batch, and the columns of `W`.
    fn sizes(&self, count: usize) -> [usize; 3] {
        [
            self.rows(count),
            self.width(),
            self.problem.dims.out_channels,
        ]
    }

    /// The type of operands and the type of sums.
    fn types(&self) -> [Dtype; 2] {
        [self.problem.operands(), self.problem.dtypes.arithmetic()]
    }

    /// The number of tiles of the gradients of the weights, for all grades of the group.
    fn weight_tiles(&self) -> usize {
        self.group.len() * tiles(self.width(), self.problem.dims.out_channels)
    }

    /// The number of parts that the sum over rows in the gradient of the weights is cut into. All parts are computed at
    /// once: cuBLASLt, limited to sums in a fixed order, gives a long sum to few multiprocessors. It depends on the
    /// shape and on the rows of a block.
    pub(super) fn parts(&self) -> usize {
        let wanted =
            (MANY_TILES / self.weight_tiles().max(1)).min(self.rows(self.blocks.rows) / PART_ROWS);
        wanted.clamp(1, MOST_PARTS)
    }

    /// `o = A W` for `count` rows of the batch. The addresses are of `W` and `A` of the group, and of all blades of
    /// `o`.
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

    /// `grad_A = grad_o W^T`. The addresses are of `W` of the group, of all blades of `grad_o`, and of `grad_A` of the
    /// group. `grad_A` has the type of operands too, so for a scaled block it is made smaller by a power of two.
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

    /// `grad_W = A^T grad_o`, or the same added to the values that are there. The addresses are of all blades of
    /// `grad_o`, of `A` of the group, and of its gradients.
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
            // The rows that are left over are added to the first part.
            accumulate: accumulate || product.accumulate,
            ..product
        };
        products.into_iter().map(set).collect()
    }

    /// The products for all grades of the group, with one part each.
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

    /// The products for one grade: one for all parts at once, and one for the rows that are left over.
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

    /// The address of the blades of the first grade in a tensor like the output, and the distance in elements to those
    /// of the second.
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
