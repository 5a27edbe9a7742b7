//! The CPU kernels of flashcliff. Programs use the crate `flashcliff`, which checks what it is given; this
//! crate checks nothing, and its interface may change with every version.
//!
//! # What is built
//! The build script generates the kernels of every algebra that a feature names, `all-algebras` those of all that
//! flashcliff ships; in `f32`, and with the feature `f64` in that too. The variable `FLASHCLIFF_ALGEBRAS` adds others by
//! signature, such as `FLASHCLIFF_ALGEBRAS="1,1,1;6,0,0"`. [`ALGEBRAS`] lists what was built.
//!
//! # How generated code runs
//! A [`Program`] describes an operator as static data: its tensors and its two passes. A pass is a list of
//! [stages](stage::Stage), functions over the channels of one row, each compiled for every
//! [tier](simd::Tier) of the target. A stage that was not compiled is [code], which [`interpreted`] makes a stage
//! too. What runs them over whole tensors is the matter of `flashcliff`.

pub mod code;
mod gate;
mod interpret;
mod option;
pub mod program;
mod range;
pub mod simd;
pub mod stage;

pub use gate::Gate;
pub use interpret::interpreted;
pub use option::UnknownOption;
pub use program::{Kernels, Program};

/// What generated code calls.
mod prelude {
    pub(crate) use crate::gate::{gate, gate_and_slope, gate_slope};
    pub(crate) use crate::program::{Interpreted, Plan, Program, Slot, StageCall};
    pub(crate) use crate::range::{damp, hypot};
    pub(crate) use crate::simd::Math;
    pub(crate) use crate::stage::kernel as stage;
    pub(crate) use crate::stage::{Stage, StageArgs};
}

#[allow(
    clippy::approx_constant,
    clippy::undocumented_unsafe_blocks,
    reason = "constants are written by value; the comments are in the copies for review"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

pub use generated::ALGEBRAS;
