//! The invariant norm, the gated nonlinearity, and dropout.

use candle_core::Result;
use candle_nn::VarBuilder;

use super::bound::{Layer, Needs};
use super::{Call, Channels, Draw, Geometry, Tokens};
use crate::Error;

/// The name of the layer.
const NORM: &str = "equi_layer_norm";

/// `x / sqrt(max(mean over channels of <x, x>, 0.01))`, and a layer norm of the scalars. [`Self::with_gains`] multiplies both by gains.
///
/// `<x, x>` is the sum over grades of the absolute value of the grade's squared norm. In GATr that is the sum of the
/// squares of all blades without the null vector. The layer norm of scalars adds 1e-5 to the variance.
///
/// Sources: GATr (arXiv 2305.18415, section 3), L-GATr (arXiv 2405.14806, section 3).
#[derive(Clone, Debug)]
pub struct EquiLayerNorm {
    layer: Layer,
}

impl EquiLayerNorm {
    /// A norm of GATr of so many channels.
    ///
    /// # Errors
    /// None: the algebra is supported.
    pub fn new(channels: Channels) -> std::result::Result<Self, Error> {
        Ok(Self::over(Geometry::gatr()?, channels))
    }

    /// A norm over a geometry, or an algebra.
    pub fn over(geometry: impl Into<Geometry>, channels: Channels) -> Self {
        let needs = Needs::between(channels, channels);
        let layer = Layer::new(NORM, geometry.into(), needs, move |layers, given| {
            layers.norm(given.tokens, channels)
        });
        Self { layer }
    }

    /// A norm with gains, as L-GATr has them since 2.0. Parameters, which start at 1: `weight_mv`
    /// `[channels, grades]` and `weight_s` `[scalars]`, each only if there are such channels.
    ///
    /// # Errors
    /// The errors of the builder.
    pub fn with_gains(
        geometry: impl Into<Geometry>,
        channels: Channels,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let needs = Needs::between(channels, channels);
        let layer = Layer::new(NORM, geometry.into(), needs, move |layers, given| {
            layers.norm_with_gains("", given.tokens, channels)
        });
        Ok(Self {
            layer: layer.bound(&vb)?,
        })
    }

    /// Applies the norm.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.layer.apply(x, &Call::default())
    }
}

/// Multivectors times `g(x_0)`, and GELU of scalars.
///
/// `g(z) = z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3)))` is GELU in its tanh form, as in GATr. GELU of scalars
/// is exact, or in the tanh form too with `tanh_scalars` in the geometry.
///
/// Source: GATr (arXiv 2305.18415, section 3).
#[derive(Clone, Debug)]
pub struct ScalarGate {
    layer: Layer,
}

impl ScalarGate {
    /// A gate of GATr of so many channels.
    ///
    /// # Errors
    /// The errors of the core.
    pub fn new(channels: Channels) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, channels)
    }

    /// A gate over a geometry, or an algebra.
    ///
    /// # Errors
    /// The errors of the core.
    pub fn over(
        geometry: impl Into<Geometry>,
        channels: Channels,
    ) -> std::result::Result<Self, Error> {
        let needs = Needs::between(channels, channels);
        let layer = Layer::new(
            "scalar_gate",
            geometry.into(),
            needs,
            move |layers, given| layers.gate(given.tokens, channels),
        );
        Ok(Self {
            layer: layer.checked()?,
        })
    }

    /// Applies the gate.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.layer.apply(x, &Call::default())
    }
}

/// Dropout of whole grades of a multivector channel, and of scalars.
///
/// In training each grade of each channel and item, and each scalar, becomes 0 with probability `p`, and is multiplied
/// by `1 / (1 - p)` otherwise. What is dropped depends on the random numbers and on the place in the tokens alone: it
/// is the same on the CPU and on GPUs, and in the backward pass. Layers that get the same numbers drop the same places,
/// so each should have its own numbers: [`Draw::of`].
///
/// Source: the layer of GATr's repository (arXiv 2305.18415).
#[derive(Clone, Debug)]
pub struct GradeDropout {
    layer: Layer,
}

impl GradeDropout {
    /// A layer of GATr for so many channels.
    ///
    /// # Errors
    /// [`Error::Option`] for a `p` that is not a probability below 1.
    pub fn new(channels: Channels, p: f64) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, channels, p)
    }

    /// A layer over a geometry, or an algebra.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn over(
        geometry: impl Into<Geometry>,
        channels: Channels,
        p: f64,
    ) -> std::result::Result<Self, Error> {
        let needs = Needs::between(channels, channels);
        let layer = Layer::new(
            "grade_dropout",
            geometry.into(),
            needs,
            move |layers, given| layers.dropout(given.tokens, channels, Some(p), 0),
        );
        Ok(Self {
            layer: layer.checked()?,
        })
    }

    /// Applies the layer with random numbers of a pass; without any it changes nothing.
    ///
    /// # Errors
    /// Tokens of other channels; random numbers on another device.
    pub fn forward(&self, x: &Tokens, draw: Option<&Draw>) -> Result<Tokens> {
        self.layer.apply(
            x,
            &Call {
                draw,
                ..Call::default()
            },
        )
    }
}
