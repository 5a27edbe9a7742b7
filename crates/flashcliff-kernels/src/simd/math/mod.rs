//! Elementary functions on vectors: branch-free, one minimax polynomial set per element type.
//!
//! # Accuracy
//!
//! Largest error found, in units in the last place (ulp) of the exact result; in brackets the bound
//! that `tests/math_accuracy.rs` holds every tier to. f32 functions were measured over all 2^32
//! inputs against double precision, on AVX2 and the scalar tier, but sines and cosines over one of
//! 4093; f64 functions over dense samples against 140-bit arithmetic, sines and cosines against
//! double precision. The scalar tier, which has no fused multiply-add, is the second
//! number.
//!
//! | function | f32 | f64 |
//! |---|---|---|
//! | [`exp`](Math::exp) | 0.90, 1.17 (2) | 0.80, 1.06 (2) |
//! | [`sin`](Math::sin), [`cos`](Math::cos) | 2.53, 2.55 (4) | 1.00, 1.00 (2) |
//! | [`erf`](Math::erf) | 1.56, 1.94 (2) | 1.69, 1.94 (4) |
//! | [`sigmoid`](Math::sigmoid) | 2.41, 2.41 (4) | 1.97, 1.97 (4) |
//! | [`tanh`](Math::tanh) | 1.37, 1.35 (4) | 1.25, 1.24 (4) |
//! | [`normal_pdf`](Math::normal_pdf) | 2.07, 2.24 (4) | 2.06, 2.06 (4) |
//! | [`sigmoid_slope`](Math::sigmoid_slope) | 4.22, 4.22 (6) | 4.00, 4.00 (6) |
//! | [`normal_cdf`](Math::normal_cdf) | 5.86, 6.65 (8) | 6.00, 7.00 (10) |
//!
//! # Where the coefficients come from
//!
//! Sines and cosines have the coefficients of their Taylor series. Each other table was computed for this crate: the
//! Remez exchange at 50 digits, weighted so that the error of the *function* is levelled, on the interval that the
//! table states. Coefficients were rounded to the element type one at a time from the lowest, the rest refitted after
//! each; the error stated is that of the rounded polynomial, in exact arithmetic.
//!
//! # Specials
//!
//! NaN gives NaN; infinities give the limits; odd functions keep the sign of zero; subnormal
//! results are rounded like others, given that the CPU does not flush them.

/// `c0 + x (c1 + x (c2 + ...))` by multiply-adds, coefficients from the lowest.
macro_rules! horner {
    ($x:expr; $c:expr) => { Vector::from_f64($c) };
    ($x:expr; $c:expr, $($rest:expr),+ $(,)?) => {
        Vector::mul_add(horner!($x; $($rest),+), $x, Vector::from_f64($c))
    };
}

mod elem;
mod erf;
mod exp;
mod gaussian;
mod mills;
mod sigmoid;
mod tanh;
mod trigonometry;

pub use elem::MathElem;

use super::vector::Vector;

/// Elementary functions of a [`Vector`], under its contract.
///
/// # Safety
///
/// The contract is that of [`Vector`]: the CPU supports the tier of the type.
#[allow(
    clippy::missing_safety_doc,
    reason = "all methods share the contract stated on the trait"
)]
pub trait Math: Vector {
    /// e to the power `self`.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { exp::exp(self) }
    }

    /// The sine of an angle up to [`MathElem::LARGEST_ANGLE`], NaN beyond.
    #[inline(always)]
    unsafe fn sin(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { trigonometry::sin(self) }
    }

    /// The cosine of an angle up to [`MathElem::LARGEST_ANGLE`], NaN beyond.
    #[inline(always)]
    unsafe fn cos(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { trigonometry::cos(self) }
    }

    /// The error function, `2/√π ∫₀ˣ exp(-t²) dt`.
    #[inline(always)]
    unsafe fn erf(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { <Self::Elem as MathElem>::erf(self) }
    }

    /// The logistic function, `1 / (1 + exp(-self))`, to full relative accuracy in both tails.
    #[inline(always)]
    unsafe fn sigmoid(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { sigmoid::sigmoid(self) }
    }

    /// The derivative of the logistic function, to full relative accuracy in both tails.
    #[inline(always)]
    unsafe fn sigmoid_slope(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { sigmoid::sigmoid_slope(self) }
    }

    /// The hyperbolic tangent.
    #[inline(always)]
    unsafe fn tanh(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { tanh::tanh(self) }
    }

    /// The standard normal distribution function Φ, `(1 + erf(self / √2)) / 2`, to full relative
    /// accuracy in both tails.
    #[inline(always)]
    unsafe fn normal_cdf(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { gaussian::normal_cdf(self) }
    }

    /// The standard normal density, `exp(-self²/2) / √(2π)`, to full relative accuracy in the
    /// tails.
    #[inline(always)]
    unsafe fn normal_pdf(self) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { gaussian::normal_pdf(self) }
    }
}

impl<V: Vector> Math for V {}
