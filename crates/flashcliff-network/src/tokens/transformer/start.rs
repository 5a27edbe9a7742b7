//! How the parameters of layers start.

use crate::tokens::Linear;
use crate::tokens::linear::Kind;

/// How the parameters of a linear layer start.
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

/// How a parameter starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// At a number.
    Constant(f64),
    /// Uniform around a number.
    Uniform {
        /// The mean.
        mean: f64,
        /// The largest distance to it.
        bound: f64,
    },
    /// Normal around 0, with a standard deviation.
    Normal(f64),
    /// Uniform around 0, with a bound for each index of the last axis.
    Bounds(Vec<f64>),
}

impl Initialization {
    /// The factor of weights to multivectors, of weights to scalars, and the mean of the bias of multivectors.
    fn numbers(self) -> (f64, f64, f64) {
        match self {
            Self::Default => (1.0, 1.0, 0.0),
            Self::Small => (0.1, 0.1, 0.0),
            Self::UnitScalar => (0.1, 1.0, 1.0),
            Self::AlmostUnitScalar => (0.5, 1.0, 1.0),
        }
    }

    /// The start of a kind of parameters, whose maps have so many entries.
    pub(super) fn of(self, kind: Kind, step: &Linear, sizes: &[usize]) -> Start {
        let (factor, of_scalars, mean) = self.numbers();
        let (mv, s) = (step.input.multivectors as f64, step.input.scalars as f64);
        let has_scalars = step.input.scalars > 0;
        let maps = if has_scalars { 2.0 } else { 1.0 };
        let mixed = step.geometry.scalar_blades() as f64 * mv;
        let (mean, bound) = match kind {
            Kind::Weight => return Start::Bounds(self.bounds(step, sizes)),
            Kind::BladeBias if !has_scalars => return Start::Constant(0.0),
            Kind::BladeBias => (mean, 1.0 / (s + mv).sqrt()),
            Kind::ScalarsToBlades => (0.0, factor / (2.0 * s).sqrt()),
            Kind::BladesToScalars => (0.0, of_scalars / (mixed * maps).sqrt()),
            Kind::ScalarBias => (0.0, of_scalars / (mixed + s).sqrt()),
            Kind::ScalarsToScalars => (0.0, of_scalars / (s * maps).sqrt()),
        };
        Start::Uniform { mean, bound }
    }

    /// The bounds of the weights of each map.
    fn bounds(self, step: &Linear, sizes: &[usize]) -> Vec<f64> {
        let (factor, ..) = self.numbers();
        let bound = factor / (step.input.multivectors as f64).sqrt();
        // GATr divides maps by their norms, makes up for that in the starts, and halves the variance from the fourth map on.
        let spread = |(at, &size): (usize, &usize)| match (step.geometry.unit_maps, at < 3) {
            (false, _) => 1.0,
            (true, true) => size as f64,
            (true, false) => size as f64 / 2.0,
        };
        let sizes = sizes.iter().enumerate();
        let mut bounds: Vec<f64> = sizes.map(|map| bound * spread(map).sqrt()).collect();
        if step.input.scalars > 0 {
            // Scalar channels add to the blades that the group leaves alone.
            let half = bound / 2_f64.sqrt();
            bounds[0] = half;
            if let (2.., Some(last)) = (step.geometry.scalar_blades(), bounds.last_mut()) {
                *last = half;
            }
        }
        bounds
    }
}
