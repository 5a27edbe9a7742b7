//! The equivariant linear layer.

use candle_core::Result;
use candle_nn::VarBuilder;

use super::part::{self, Function};
use super::{Channels, Tokens};
use crate::Error;

/// How the parameters of a layer start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initialization {
    /// The variance stays what it is.
    #[default]
    Default,
    /// The variance becomes a hundredth.
    Small,
    /// Multivectors start near the scalar 1.
    UnitScalar,
    /// Multivectors start near the scalar 1, further away.
    AlmostUnitScalar,
}

/// The number of entries of each map, or half of it: GATr divides maps by their norms, makes up for that in the starts, and halves the variance
/// from the fourth map on.
const SPREADS: [f64; 9] = [1.0, 4.0, 6.0, 2.0, 0.5, 0.5, 1.5, 1.5, 0.5];

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
    pub(super) fn weight_bounds(self, input: Channels) -> Vec<f64> {
        let (factor, ..) = self.numbers();
        let bound = factor / (input.multivectors as f64).sqrt();
        let mut bounds: Vec<f64> = SPREADS.iter().map(|spread| bound * spread.sqrt()).collect();
        if input.scalars > 0 {
            // Scalar channels add to the scalar blade too.
            bounds[0] = bound / 2_f64.sqrt();
        }
        bounds
    }
}

/// Every linear map of multivectors of Cl(3,0,1) that commutes with rotations, translations and reflections, and scalar channels.
///
/// ```text
/// out = Σ over the nine maps a:  W_a B_a(x) / |B_a|,   scalar blade:  + S s + b
/// out_s = C x_0 + D s + c
/// ```
///
/// | parameter | shape | start |
/// |---|---|---|
/// | `weight` (W) | `[out, in, 9]` | uniform, see [`Initialization`] |
/// | `s2mvs.weight`, `s2mvs.bias` (S, b) | `[out, in_scalars]`, `[out]`, with scalar inputs | uniform |
/// | `bias` (b) | `[out, 1]`, without | 0 |
/// | `mvs2s.weight`, `mvs2s.bias` (C, c) | `[out_scalars, in]`, `[out_scalars]`, with scalar outputs | uniform |
/// | `s2s.weight` (D) | `[out_scalars, in_scalars]`, with both | uniform |
///
/// Source: GATr (arXiv 2305.18415, appendix A).
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
    /// A layer between so many channels.
    ///
    /// # Errors
    /// The errors of the builder.
    pub fn new(
        input: Channels,
        output: Channels,
        initialization: Initialization,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let part = part::linear(input, output, initialization, &vb)?;
        Ok(Self {
            function: Function::new("equi_linear", part),
        })
    }

    /// Applies the layer.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.function.apply(x, None)
    }
}
