//! A product for tensors of given sizes and types, and how it is cut into matrix products.

use super::blocks::Blocks;
use super::grades::OutputGrades;
use super::products::Products;
use crate::Dtype;
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::MatmulPrecision;
use crate::operator::{Dims, Pass};

/// A pass of the product for tensors of given sizes and types.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) grades: &'a OutputGrades,
    pub(super) dims: &'a Dims,
    pub(super) dtypes: Dtypes,
    pub(super) precision: MatmulPrecision,
    pub(super) pass: Pass,
    /// The most bytes that a block may take.
    pub(super) block_bytes: usize,
}

impl<'a> Problem<'a> {
    /// The blocks of the batch. They depend on the shape, the types and the limit alone.
    pub(super) fn blocks(&self) -> Blocks {
        let operand = self.operands().bytes();
        let product = match self.pass {
            Pass::Forward => self.dtypes.arithmetic().bytes(),
            Pass::Backward => operand,
        };
        let formed = self.grades.path_products() * self.dims.in_channels * operand;
        let output = self.grades.blades() * self.dims.out_channels * product;
        Blocks::new(self.dims.batch, formed + output, self.block_bytes)
    }

    /// The matrix products, by groups of output grades.
    pub(super) fn products(self) -> impl Iterator<Item = Products<'a>> {
        let blocks = self.blocks();
        let groups = self.grades.groups();
        groups.map(move |group| Products::new(self, group, blocks))
    }

    /// The type of the operands of the matrix products. f16 has the fraction of TF32, and a longer one than bf16. The
    /// exponents of these are not needed, since operands are scaled row by row. f16 takes half the memory of TF32 and
    /// has a higher rate on tensor cores.
    pub(super) fn operands(&self) -> Dtype {
        let lanes = self.dtypes.lanes;
        match self.precision.of(lanes) {
            MatmulPrecision::Highest => lanes,
            _ => Dtype::F16,
        }
    }

    /// Whether operands have a smaller type than the tensors. They are then scaled by powers of two that fit them into
    /// its range.
    pub(super) fn is_scaled(&self) -> bool {
        self.operands() != self.dtypes.lanes
    }

    /// Whether there is nothing to multiply.
    pub(super) fn is_nothing(&self) -> bool {
        let sizes = [
            self.dims.batch,
            self.dims.in_channels,
            self.dims.out_channels,
        ];
        self.grades.order.is_empty() || sizes.contains(&0)
    }
}
