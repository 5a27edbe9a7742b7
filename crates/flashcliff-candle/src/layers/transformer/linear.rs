//! The equivariant linear layer.

use candle_core::Result;
use candle_nn::VarBuilder;

use super::part::{self, Function};
use super::{Call, Channels, Geometry, Tokens};
use crate::Error;

/// How the parameters of a layer start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initialization {
    /// Outputs have about the variance of inputs.
    #[default]
    Default,
    /// Outputs have about a hundredth of the variance of inputs.
    Small,
    /// Multivector outputs are near the scalar 1: weights of a tenth, and a bias near 1.
    UnitScalar,
    /// Multivector outputs are around the scalar 1: weights of a half, and a bias near 1.
    AlmostUnitScalar,
}

impl Initialization {
    /// The factor of weights to multivectors, of weights to scalars, and the mean of the bias of multivectors.
    pub(super) fn numbers(self) -> (f64, f64, f64) {
        match self {
            Self::Default => (1.0, 1.0, 0.0),
            Self::Small => (0.1, 0.1, 0.0),
            Self::UnitScalar => (0.1, 1.0, 1.0),
            Self::AlmostUnitScalar => (0.5, 1.0, 1.0),
        }
    }

    /// The bounds of the weights of each map.
    pub(super) fn weight_bounds(
        self,
        geometry: &Geometry,
        input: Channels,
    ) -> std::result::Result<Vec<f64>, Error> {
        let (factor, ..) = self.numbers();
        let bound = factor / (input.multivectors as f64).sqrt();
        let maps = geometry.maps()?;
        // GATr divides maps by their norms, makes up for that in the starts, and halves the variance from the fourth map on.
        let spread = |(at, size): (usize, usize)| match (geometry.unit_maps, at < 3) {
            (false, _) => 1.0,
            (true, true) => size as f64,
            (true, false) => size as f64 / 2.0,
        };
        let sizes = maps.iter().map(|map| map.entries.len()).enumerate();
        let mut bounds: Vec<f64> = sizes.map(|map| bound * spread(map).sqrt()).collect();
        if input.scalars > 0 {
            // Scalar channels add to the blades that the group leaves alone.
            let half = bound / 2_f64.sqrt();
            bounds[0] = half;
            if let (2.., Some(last)) = (geometry.scalar_blades(), bounds.last_mut()) {
                *last = half;
            }
        }
        Ok(bounds)
    }
}

/// A linear layer of multivectors and scalars that commutes with the group of a geometry. Its weights multiply all linear maps that do: in GATr nine
/// maps of Cl(3,0,1), which commute with rotations, translations and reflections.
///
/// ```text
/// out = Σ over the maps a:  W_a B_a(x),   blades that the group leaves alone:  + S s + b
/// out_s = C x_0 + D s + c
/// ```
///
/// GATr divides each `B_a` by its Frobenius norm. The group leaves the scalar blade alone,
/// [`Group::Spin`](flashcliff::cayley::Group::Spin) the pseudoscalar too. `S`, `b` and `C` then have numbers for both blades, the blade innermost.
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
    function: Function,
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
        let part = part::linear(geometry, input, output, initialization, &vb)?;
        Ok(Self {
            function: Function::new("equi_linear", geometry, part),
        })
    }

    /// Applies the layer.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.function.apply(x, &Call::default())
    }
}
