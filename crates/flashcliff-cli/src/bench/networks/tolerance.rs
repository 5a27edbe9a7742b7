//! The differences that rounding explains.
//!
//! Layers, and networks in `f32`, are compared element by element. Errors of 16 bits come from many roundings, so
//! gradients of training steps are compared by their norms. Let `u` be the unit roundoff, `2^-8` for `bf16` and `2^-11`
//! for `f16`. A layer of a product doubles the error of what it gets and adds four roundings of root mean square
//! `u / 2`; after four layers an error is at most `25 u`, relative to the norm of the gradient of a parameter, and all
//! gradients together have `32 u` with what follows the layers. Where values pass a rectifier, those within their error
//! of 0 may change the side. They are about `5 u` of all, which is an error of `sqrt(5 u)` of the norm of all
//! gradients, and no bound for a single parameter.

use candle_core::DType;
use flashcliff::Dtype;
use flashcliff_candle::models::Architecture;

use super::cases::{NetworkCase, Run, What};

/// The differences that rounding explains, relative to the largest element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    /// The difference of outputs, predictions and losses.
    pub(super) output: f64,
    /// The difference of gradients, which add over the batch.
    pub(super) gradient: f64,
    /// Gradients below this part of the largest one of all are 0 but for rounding.
    pub(super) zero: f64,
    /// Gradients below this part of the largest one of their parameter may be rounding alone, so that Adam may take them for either sign.
    pub(super) significant: f64,
    /// The bounds of norms, if gradients are compared by norms.
    pub(super) norms: Option<Norms>,
}

/// The bounds of errors of gradients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Norms {
    /// The unit roundoff. What is smaller than this part of the norm of all gradients may be rounding alone.
    pub(super) roundoff: f64,
    /// The norm of the error of a parameter's gradient, relative to the norm of that gradient; `None` without a bound.
    pub(super) own: Option<f64>,
    /// The norm of the errors of all gradients together, relative to the norm of all gradients.
    pub(super) all: f64,
}

impl Tolerance {
    pub(super) const F32: Self = Self {
        output: 1e-4,
        gradient: 1e-3,
        zero: 1e-6,
        significant: 1e-2,
        norms: None,
    };

    /// The tolerance of a case beside numbers of a type.
    pub(super) fn of(case: &NetworkCase, other: DType) -> Self {
        let of_halves = match case.dtype {
            Dtype::Bf16 => Some((2.0_f64.powi(-8), [5e-2, 1e-1, 1e-2])),
            Dtype::F16 => Some((2.0_f64.powi(-11), [1e-2, 2e-2, 2e-3])),
            _ => None,
        };
        match (case.what, of_halves) {
            (What::Network(architecture), Some((roundoff, _))) if case.run == Run::Step => {
                Self::of_steps(architecture, roundoff)
            }
            (_, Some((_, [output, gradient, zero]))) => Self {
                output,
                gradient,
                zero,
                ..Self::F32
            },
            (_, None) if case.dtype == Dtype::F64 && other == DType::F64 => Self {
                output: 1e-10,
                gradient: 1e-9,
                zero: 1e-13,
                ..Self::F32
            },
            _ => Self::F32,
        }
    }

    /// The tolerance of training steps with features of 16 bits.
    pub(super) fn of_steps(architecture: Architecture, roundoff: f64) -> Self {
        let all = 32.0 * roundoff;
        let norms = match architecture {
            Architecture::Regression { .. } => Norms {
                roundoff,
                own: None,
                all: all.max(2.0 * (5.0 * roundoff).sqrt()),
            },
            _ => Norms {
                roundoff,
                own: Some(25.0 * roundoff),
                all,
            },
        };
        Self {
            // An error is quadratic in what it subtracts, so it has twice the error of the prediction.
            output: all,
            // Some times the root mean square of the errors, where the largest element is some times that of the elements.
            significant: 0.25,
            norms: Some(norms),
            ..Self::F32
        }
    }
}
