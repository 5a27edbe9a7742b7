//! Descriptions of matrix products.

#[path = "../../src/cuda/matmul/product.rs"]
mod product;
