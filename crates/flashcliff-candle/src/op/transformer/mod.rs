//! Layers of geometric algebra transformers over Cl(3,0,1) as functions of packed rows.
//!
//! A *token* is a packed row: the multivector channels, blade by blade, then the scalar channels. A function is a list of [`Stage`]s. On the
//! CPU the samples are cut into chunks, and each chunk goes through all stages in the layout of the core's operators, so activations stay in a
//! cache and never become tensors of candle. On a GPU a function is one node too, of kernels and matrix products.
//!
//! * `stage` - the stages and what they have in common.
//! * `linear` - equivariant linear layers that share an input.
//! * `norm`, `gate` - the invariant norm and gated nonlinearities.
//! * `product` - geometric products and joins of linear maps.
//! * `attention` - attention of heads; `features` packs its queries, keys and values.
//! * `cost` - what a timeline says of them.
//! * `chunk` - how samples are cut, and the layout of a chunk.
//! * `function` - a list of stages as a node of candle's graph.
//! * `gpu` - the same on GPUs, with kernels; `compose` - of candle's operations, where there are no kernels.
//! * `constants` - tensors that are made once.

pub(crate) mod attention;
mod chunk;
mod compose;
mod constants;
mod cost;
mod features;
pub(crate) mod function;
pub(crate) mod gate;
#[cfg(any(feature = "cuda", test))]
mod gpu;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod product;
pub(crate) mod stage;

/// The blades of Cl(3,0,1).
pub(crate) const BLADES: usize = 16;

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

    /// The numbers of a token.
    pub const fn width(self) -> usize {
        BLADES * self.multivectors + self.scalars
    }

    /// Both numbers times a factor.
    #[must_use]
    pub const fn times(self, factor: usize) -> Self {
        Self::new(self.multivectors * factor, self.scalars * factor)
    }
}

/// The algebra Cl(3,0,1).
///
/// # Errors
/// None: the signature is supported.
pub(crate) fn algebra() -> Result<flashcliff::Algebra, crate::Error> {
    let signature = flashcliff::Signature::new(3, 0, 1).map_err(flashcliff::Error::from)?;
    Ok(flashcliff::Algebra::new(signature)?)
}

/// A number in the type of elements.
fn number<T: crate::op::Scalar>(value: f64) -> T {
    <T as flashcliff::Element>::from_f64(value)
}
