//! The CPU kernels of flashcliff. Programs use the crate `flashcliff`, which checks its arguments. This crate checks nothing,
//! and its interface may change with every version.
//!
//! # What is built
//! The build script generates the kernels of every algebra that a feature names; `all-algebras` names all that flashcliff
//! ships. The operators of layers are always built; `plain-products` and `fully-connected` add the other groups. Kernels are
//! compiled for `f32`, and with the feature `f64` for that type too. The variable `FLASHCLIFF_ALGEBRAS` adds algebras by
//! signature, such as `FLASHCLIFF_ALGEBRAS="1,1,1;6,0,0"`. [`ALGEBRAS`] lists the algebras that were built.
//!
//! # How generated code runs
//! A [`Program`] describes an operator as static data: its digest and its two passes. A pass is a list of
//! [stages](stage::Stage), functions over the channels of one row, each compiled for every
//! [tier](simd::Tier) of the target. A stage that was not compiled is [code], which [`interpreted`] makes into a stage too. The
//! crate `flashcliff` runs stages over whole tensors.

pub mod code;
mod gate;
mod interpret;
mod option;
pub mod program;
mod range;
pub mod simd;
pub mod stage;

pub use gate::{FAST_SCALE, Gate, TANH_CUBIC, TANH_SCALE};
pub use interpret::interpreted;
pub use option::UnknownOption;
pub use program::{Kernels, Program};

/// The names that generated code uses, here and in other crates.
#[doc(hidden)]
pub mod prelude {
    pub use crate::gate::{gate, gate_and_slope, gate_slope};
    pub use crate::kernel as stage;
    pub use crate::program::{Plan, Program, Slot, StageCall};
    pub use crate::range::{damp, greater, hypot, larger};
    pub use crate::simd::Math;
    pub use crate::stage::{Stage, StageArgs};
}

#[allow(
    clippy::approx_constant,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "constants are written by value; all stages share the contract of `StageArgs`; the comments are in the copies for review"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

pub use generated::ALGEBRAS;
