//! The equivariant linear layer.

use candle_core::Result;
use candle_nn::VarBuilder;

use super::bound::{Layer, Needs};
use super::{Call, Channels, Geometry, Initialization, Tokens};
use crate::Error;

/// A linear layer of multivectors and scalars that commutes with the group of a geometry. Its weights multiply all
/// linear maps that do: in GATr nine maps of Cl(3,0,1), which commute with rotations, translations and reflections.
///
/// ```text
/// out = Σ over the maps a:  W_a B_a(x),   blades that the group leaves alone:  + S s + b
/// out_s = C x_0 + D s + c
/// ```
///
/// GATr divides each `B_a` by its Frobenius norm. The group leaves the scalar blade alone,
/// [`Group::Spin`](flashcliff::cayley::Group::Spin) the pseudoscalar too. `S`, `b` and `C` then have numbers for both
/// blades, the blade innermost.
///
/// | parameter | shape | start |
/// |---|---|---|
/// | `weight` (W) | `[out, in, maps]` | uniform, see [`Initialization`] |
/// | `s2mvs.weight`, `s2mvs.bias` (S, b) | `[out * blades, in_scalars]`, `[out * blades]`, with scalar inputs | uniform |
/// | `bias` (b) | `[out, 1]` of the scalar blade, without scalar inputs | 0 |
/// | `mvs2s.weight`, `mvs2s.bias` (C, c) | `[out_scalars, in * blades]`, `[out_scalars]`, with scalar outputs | uniform |
/// | `s2s.weight` (D) | `[out_scalars, in_scalars]`, with both | uniform |
///
/// Sources: GATr (arXiv 2305.18415, appendix A), L-GATr (arXiv 2405.14806, section 3).
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::init::Parameters;
/// use flashcliff_candle::layers::transformer::{Channels, EquiLinear, Initialization, Tokens};
///
/// let parameters = Parameters::seeded(1);
/// let vb = parameters.builder(DType::F32, &Device::Cpu);
/// let (from, to) = (Channels::new(2, 3), Channels::new(4, 5));
/// let layer = EquiLinear::new(from, to, Initialization::Default, vb)?;
/// let x = Tokens::from_packed(Tensor::ones((7, 6, 35), DType::F32, &Device::Cpu)?, from)?;
/// assert_eq!(layer.forward(&x)?.channels(), to);
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EquiLinear {
    layer: Layer,
}

impl EquiLinear {
    /// A layer of GATr between so many channels.
    ///
    /// # Errors
    /// The errors of the builder.
    pub fn new(
        input: Channels,
        output: Channels,
        initialization: Initialization,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, input, output, initialization, vb)
    }

    /// A layer over a geometry, or an algebra.
    ///
    /// # Errors
    /// [`Error::Geometry`] for an algebra that lacks what the geometry needs, and the errors of the builder.
    pub fn over(
        geometry: impl Into<Geometry>,
        input: Channels,
        output: Channels,
        initialization: Initialization,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let geometry = geometry.into();
        let needs = Needs::between(input, output);
        let layer = Layer::new("equi_linear", geometry, needs, move |layers, given| {
            layers.linear("", given.tokens, [input, output], initialization)
        });
        Ok(Self {
            layer: layer.bound(&vb)?,
        })
    }

    /// Applies the layer.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.layer.apply(x, &Call::default())
    }
}
