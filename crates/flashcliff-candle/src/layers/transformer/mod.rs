//! Layers of geometric algebra transformers over Cl(3,0,1), as in GATr.
//!
//! They take and return [`Tokens`]: multivector channels and scalar channels of the items of samples. Parameters have the names and shapes of
//! GATr's state dict. A layer is one node of the graph on the CPU, also a whole [`Block`]; on a GPU it is composed of candle's operations.
//!
//! * [`Tokens`], [`Channels`] - what layers take.
//! * [`EquiLinear`] - all linear maps that commute with rotations, translations and reflections.
//! * [`EquiLayerNorm`], [`ScalarGate`] - the invariant norm, and a gated nonlinearity.
//! * [`GeometricBilinear`] - products and joins of linear maps.
//! * [`SelfAttention`] - attention that sees inner products and distances.
//! * [`Block`] - attention and a perceptron, each behind a norm and with a residual.
//!
//! Source: Brehmer, de Haan, Behrends and Cohen, *Geometric Algebra Transformer*, NeurIPS 2023, arXiv 2305.18415.

mod attention;
mod bilinear;
mod block;
mod linear;
mod part;
mod pointwise;
mod tokens;

pub use crate::op::transformer::Channels;
pub use attention::{AttentionOptions, SelfAttention};
pub use bilinear::GeometricBilinear;
pub use block::Block;
pub use linear::{EquiLinear, Initialization};
pub use pointwise::{EquiLayerNorm, ScalarGate};
pub use tokens::{Tokens, join_reference};
