//! Layers of geometric algebra transformers as functions of packed rows.
//!
//! A *token* is a packed row: the multivector channels, blade by blade, then the scalar channels. A function is a list of [`Stage`]s. On the
//! CPU the samples are cut into chunks, and each chunk goes through all stages in the layout of the core's operators, so activations stay in a
//! cache and never become tensors of candle. On a GPU a function is one node too, of kernels and matrix products.
//!
//! * `geometry` - the choices by which transformers over different algebras differ.
//! * `scope` - whom the items attend to, and masks; `sequences` - ragged batches.
//! * `stage` - the stages and what they have in common.
//! * `linear` - equivariant linear layers that share an input.
//! * `norm`, `gains`, `gate` - the invariant norm, factors of grades and of heads, and gated nonlinearities.
//! * `dropout` - dropout of grades; `draw` - its random numbers.
//! * `reinserted` - channels of other tokens behind those of each token.
//! * `product` - geometric products and joins of linear maps.
//! * `attention` - attention of heads; `features` packs its queries, keys and values, `head_norm` normalises them.
//! * `rotary` - positions of items among the scalars of queries and keys.
//! * `cost` - what a timeline says of them.
//! * `chunk` - the layout of a chunk; `cut` - how samples are cut.
//! * `function` - a list of stages as a node of candle's graph; `cross` - attention of the items of one set to those of another.
//! * `gpu` - the same on GPUs, with kernels; `compose` - of candle's operations, where there are no kernels.
//! * `constants` - tensors that are made once.

pub(crate) mod attention;
#[cfg(test)]
mod cases;
mod chunk;
mod compose;
pub(crate) mod constants;
mod cost;
pub(crate) mod cross;
mod cut;
pub(crate) mod draw;
pub(crate) mod dropout;
mod features;
pub(crate) mod function;
pub(crate) mod gains;
pub(crate) mod gate;
pub(crate) mod geometry;
#[cfg(any(feature = "cuda", test))]
mod gpu;
mod head_norm;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod product;
pub(crate) mod reinserted;
pub(crate) mod rotary;
pub(crate) mod scope;
pub(crate) mod sequences;
pub(crate) mod stage;

/// The number of multivector channels and of scalar channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Channels {
    /// Multivector channels.
    pub multivectors: usize,
    /// Scalar channels.
    pub scalars: usize,
}

impl Channels {
    /// So many multivector channels and scalar channels.
    pub const fn new(multivectors: usize, scalars: usize) -> Self {
        Self {
            multivectors,
            scalars,
        }
    }

    /// The numbers of a token of GATr, whose algebra Cl(3,0,1) has 16 blades.
    pub const fn width(self) -> usize {
        self.width_over(16)
    }

    /// The numbers of a token over an algebra of so many blades.
    pub const fn width_over(self, blades: usize) -> usize {
        blades * self.multivectors + self.scalars
    }

    /// These channels and others.
    #[must_use]
    pub(crate) const fn and(self, others: Self) -> Self {
        Self::new(
            self.multivectors + others.multivectors,
            self.scalars + others.scalars,
        )
    }

    /// Both numbers times a factor.
    #[must_use]
    pub const fn times(self, factor: usize) -> Self {
        Self::new(self.multivectors * factor, self.scalars * factor)
    }
}

/// A number in the type of elements.
fn number<T: crate::op::Scalar>(value: f64) -> T {
    <T as flashcliff::Element>::from_f64(value)
}
