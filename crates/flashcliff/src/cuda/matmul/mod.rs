//! Matrix products of cuBLASLt.

mod blaslt;
mod configuration;
mod descriptor;
mod library;
mod operation;
mod plan;
mod product;
mod watch;

pub(crate) use blaslt::BlasLt;
pub(super) use plan::Plan;
pub(crate) use product::{BIAS_ALIGNMENT, MANY_TILES, ONE, Product, tiles};
pub use watch::Knob;
pub(super) use watch::Watch;

pub(crate) use crate::tuning_table::{Form, MatmulPrecision};

/// The address of the `index`-th part of `size` elements.
pub(crate) fn offset(base: u64, index: usize, size: usize, bytes: usize) -> u64 {
    base + (index * size * bytes) as u64
}
