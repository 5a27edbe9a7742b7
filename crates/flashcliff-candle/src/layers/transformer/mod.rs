//! Layers of geometric algebra transformers: GATr, and its relatives over other algebras.
//!
//! They take and return [`Tokens`]: multivector channels and scalar channels of the items of samples. Parameters have
//! the names and shapes of GATr's state dict. `new` makes a layer of GATr, `over` one of any [`Geometry`] or algebra.
//! Each layer is one node of the graph; a whole [`Block`] is one too. On a GPU tokens have `f32` or `f64`, and an
//! algebra of 2 to 5 dimensions.
//!
//! * [`Tokens`], [`Channels`] - what layers take.
//! * [`Geometry`] - the choices of a transformer over an algebra.
//! * [`Scope`], [`Mask`], [`Sequences`] - whom items attend to.
//! * [`Call`] - the other arguments of a call; [`Draws`], [`Draw`] - random numbers of dropout.
//! * [`EquiLinear`] - all linear maps that commute with the group, such as rotations, translations and reflections.
//! * [`EquiLayerNorm`], [`ScalarGate`], [`GradeDropout`] - the invariant norm, a gated nonlinearity, and dropout.
//! * [`GeometricBilinear`] - products and joins of linear maps.
//! * [`SelfAttention`], [`CrossAttention`] - attention that sees inner products and distances, within a set and to another one.
//! * [`Block`] - attention and a perceptron, each behind a norm and with a residual.
//!
//! Source: Brehmer, de Haan, Behrends and Cohen, *Geometric Algebra Transformer*, NeurIPS 2023, arXiv 2305.18415;
//! Spinner et al., *Lorentz-Equivariant Geometric Algebra Transformers*, NeurIPS 2024, arXiv 2405.14806; de Haan,
//! Cohen and Brehmer, *Euclidean, Projective, Conformal*, AISTATS 2024, arXiv 2311.04744.

mod attention;
mod bilinear;
mod block;
mod bound;
mod call;
mod checks;
mod cross;
mod draw;
mod linear;
mod pointwise;
pub(crate) mod scope;
mod sequences;
mod tokens;

pub use flashcliff_network::tokens::{
    AttentionOptions, BlockOptions, Channels, Geometry, Initialization,
};

pub use attention::SelfAttention;
pub use bilinear::GeometricBilinear;
pub use block::Block;
pub use call::Call;
pub use cross::CrossAttention;
pub use draw::{Draw, Draws};
pub use linear::EquiLinear;
pub use pointwise::{EquiLayerNorm, GradeDropout, ScalarGate};
pub use scope::{Mask, Scope};
pub use sequences::Sequences;
pub(crate) use tokens::numbers;
pub use tokens::{Tokens, join_reference, join_reference_within};
