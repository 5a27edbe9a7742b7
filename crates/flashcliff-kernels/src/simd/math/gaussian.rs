//! The standard normal distribution, which gives the exact GELU and its derivative.

use std::f64::consts::FRAC_1_SQRT_2;

use super::super::vector::Vector;
use super::elem::MathElem;
use super::exp::split;

/// `1/√(2π)`.
const FRAC_1_SQRT_2PI: f64 = 0.398_942_280_401_432_7;

/// The normal distribution function. The tail beyond `|x|` is the density times Mills' ratio: `(1 + erf(x/√2))/2` would have no
/// bits left where it is small. A caller that also computes the density shares the exponential.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn normal_cdf<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let (half, one) = (V::from_f64(0.5), V::from_f64(1.0));
        let a = x.abs();
        let tail = normal_pdf(x).mul(V::Elem::mills(a));
        let far = V::select(x.lt(V::zero()), tail, one.sub(tail));
        // Around the middle both halves keep all their bits.
        let near = V::Elem::erf_small(x.mul(V::from_f64(FRAC_1_SQRT_2))).mul_add(half, half);
        V::select(a.lt(half), near, far)
    }
}

/// `exp(-x²/2)/√(2π)`. The rounding error of `x²` would cost `x²/4` ulp, so it is taken into account.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn normal_pdf<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let minus_half = V::from_f64(-0.5);
        let (square, error) = V::from_f64(V::Elem::PDF_VANISHES).min(x.abs()).two_square();
        let (n, r) = split(square.mul(minus_half));
        let r = error.mul_add(minus_half, r);
        V::Elem::exp_reduced(r)
            .mul(V::from_f64(FRAC_1_SQRT_2PI))
            .ldexp(n)
    }
}
