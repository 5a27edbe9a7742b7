//! The standard normal distribution: what the exact GELU and its derivative are made of.

use std::f64::consts::FRAC_1_SQRT_2;

use super::super::vector::Vector;
use super::elem::MathElem;
use super::exp::split;

/// `1/√(2π)`.
const FRAC_1_SQRT_2PI: f64 = 0.398_942_280_401_432_7;

/// `(1 + erf(x/√2))/2`.
#[inline(always)]
pub(super) unsafe fn normal_cdf<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let half = V::from_f64(0.5);
        V::Elem::erf(x.mul(V::from_f64(FRAC_1_SQRT_2))).mul_add(half, half)
    }
}

/// `exp(-x²/2)/√(2π)`. The rounding error of `x²` would cost `x²/4` ulp, so it is carried along.
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
