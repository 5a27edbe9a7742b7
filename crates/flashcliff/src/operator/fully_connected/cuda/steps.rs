//! The matrix products of a block, with the addresses of their operands.

use super::problem::Problem;
use super::products::Products;
use super::workspace::Space;
use crate::cuda::matmul::{Product, offset};
use crate::operator::Pass;

/// The matrix products of a block of `count` rows, in a workspace.
pub(super) struct Steps<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) space: &'a Space,
    pub(super) count: usize,
}

impl<'a> Steps<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, space: &'a Space, count: usize) -> Self {
        Self {
            problem,
            space,
            count,
        }
    }

    /// All products of a pass, for the gradients that are wanted: of the operands, and of the weights.
    pub(super) fn all(&self, [of_operands, of_weights]: [bool; 2]) -> Vec<Product> {
        let mut all = Vec::new();
        for products in self.problem.products() {
            if self.problem.pass == Pass::Forward {
                all.push(self.output(&products));
                continue;
            }
            if of_operands {
                all.push(self.path_gradients(&products));
            }
            if of_weights {
                all.extend(self.weight_gradients(&products, false));
            }
        }
        all
    }

    fn weights(&self, products: &Products) -> u64 {
        let Problem { dims, .. } = self.problem;
        let size = dims.in_channels * dims.out_channels;
        let bytes = self.problem.operands().bytes();
        offset(self.space.weights, products.first_path(), size, bytes)
    }

    fn formed(&self, products: &Products) -> u64 {
        self.space.formed(self.problem, self.count)[products.grade()]
    }

    pub(super) fn output(&self, products: &Products) -> Product {
        let (weights, formed) = (self.weights(products), self.formed(products));
        products.output(self.count, [weights, formed, self.space.product])
    }

    pub(super) fn path_gradients(&self, products: &Products) -> Product {
        let (weights, formed) = (self.weights(products), self.formed(products));
        products.path_gradients(self.count, [weights, self.space.product, formed])
    }

    pub(super) fn weight_gradients(&self, products: &Products, accumulate: bool) -> Vec<Product> {
        let grads = self.space.weight_grads[products.grade()];
        let addresses = [self.space.product, self.formed(products), grads];
        products.weight_gradients(self.count, accumulate, addresses)
    }
}
