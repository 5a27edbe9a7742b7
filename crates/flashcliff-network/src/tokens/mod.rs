//! Steps of geometric algebra transformers, as nodes of a network.
//!
//! A *token* is a row of [`Channels`]: its multivectors, blade by blade, then its scalars. A [`Step`] makes tokens of
//! tokens, and perhaps of parameters, a reference of joins, a mask, or other tokens. Each module describes a step and
//! computes it on the CPU, for a chunk of samples whose multivectors are `[blades, rows, channels]`.
//!
//! * `geometry` - the choices by which transformers over different algebras differ.
//! * `linear` - equivariant linear maps that share an input.
//! * `lanes` - operators of programs, whose lanes are channels of tokens; `norm`, `gate`, `products` - the invariant
//!   norm, gated nonlinearities, and geometric products and joins.
//! * `programs` - the programs of these steps; `compiled` - their operators, with kernels of the build script.
//! * `gains` - factors of grades and of heads.
//! * `dropout` - dropout of grades.
//! * `reinserted` - channels of other tokens after the channels of each token.
//! * `frames` - maps to and from the frame of each token, by an `outermorphism`.
//! * `components` - multivectors as scalars, and back.
//! * `attention` - attention of heads; `features` packs its queries, keys and values, `head_norm` normalises them, `joint` vectors and
//!   scalars together.
//! * `attention_tangent` - derivatives of attention; `head_group` - norms of heads, and their derivatives; `distances` -
//!   features of distances, and their derivatives; `jet` - the numbers in which derivatives are computed.
//! * `rotary` - positions of items among the scalars of queries and keys.
//! * `step` - a step of any kind, with its inputs, its result and its passes.
//! * `chunk` - samples that are computed together, and their layout.
//! * `transformer`, `slim` - layers and whole networks of these steps.

pub(crate) mod attention;
pub(crate) mod attention_tangent;
mod channels;
pub(crate) mod chunk;
mod compiled;
pub(crate) mod components;
pub(crate) mod distances;
pub(crate) mod dropout;
pub(crate) mod features;
pub(crate) mod frames;
pub(crate) mod gains;
mod gate;
pub(crate) mod geometry;
pub(crate) mod head_group;
mod head_norm;
pub(crate) mod jet;
pub(crate) mod joint;
pub(crate) mod lanes;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod outermorphism;
mod products;
mod programs;
#[cfg(all(test, feature = "compiled"))]
mod published;
pub(crate) mod reinserted;
pub(crate) mod rotary;
mod slim;
pub(crate) mod step;
mod transformer;

pub use attention::Attention;
pub use attention_tangent::AttentionTangent;
pub use channels::Channels;
pub use chunk::Draw;
pub use components::Components;
pub use distances::Distances;
pub use dropout::Dropout;
pub use frames::Frames;
pub use gains::Gains;
pub use geometry::Geometry;
pub use head_group::HeadNorm;
pub use lanes::Lanes;
pub use linear::Linear;
pub use norm::NormOptions;
pub use programs::gate::GateFunction;
pub use reinserted::Reinserted;
pub use rotary::Rotary;
pub use slim::{Slim, SlimEnds};
pub use step::Step;
pub use transformer::{
    AttentionOptions, Beside, BlockOptions, Ends, Initialization, Layers, Start, Transformer,
};

/// A number in the type of elements.
fn number<T: flashcliff::Element>(value: f64) -> T {
    T::from_f64(value)
}

/// Adds elements to others.
pub(crate) fn add<T: crate::Number>(sum: &mut [T], other: &[T]) {
    for (sum, &other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
}
