//! Descriptions of matrix products.

#[path = "../../src/cuda/matmul/precision.rs"]
mod precision;
#[path = "../../src/cuda/matmul/product.rs"]
mod product;

pub(crate) use precision::MatmulPrecision;
pub(super) use product::{Form, Problem};
