//! Running generated kernels: the contract between generated code and the library.
//!
//! [`stage`] is what a generated function sees of the world, [`program`] the static data that
//! describes an operator, [`lanes`] the skeleton that runs a program over a tensor.

pub(crate) mod gate;
pub(crate) mod lanes;
pub(crate) mod program;
pub(crate) mod range;
pub(crate) mod rows;
pub(crate) mod stage;
pub(crate) mod tasks;

pub(crate) use program::Kernels;

/// What generated files import.
pub(crate) mod generated_prelude {
    pub(crate) use super::gate::{gate, gate_and_slope, gate_slope};
    pub(crate) use super::program::{Plan, Program, Slot, StageCall};
    pub(crate) use super::range::{damp, hypot};
    pub(crate) use super::stage::{Stage, StageArgs, stage};
    pub(crate) use crate::simd::Math;
}
