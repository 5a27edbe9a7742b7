//! Matrix products of cuBLASLt.

mod blaslt;
mod configuration;
mod descriptor;
mod library;
mod operation;
mod plan;
mod precision;
mod product;
mod watch;

pub(super) use blaslt::BlasLt;
pub(super) use plan::Plan;
pub use precision::MatmulPrecision;
pub(super) use product::{BIAS_ALIGNMENT, Form, MANY_TILES, ONE, Problem, Product, tiles};
pub(super) use watch::{Knob, Watch};

/// The address of the `index`-th part of `size` elements.
pub(super) fn offset(base: u64, index: usize, size: usize, bytes: usize) -> u64 {
    base + (index * size * bytes) as u64
}
