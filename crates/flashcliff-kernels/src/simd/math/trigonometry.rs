//! `x = n π/2 + r` with `|r| <= π/4`: the sine and the cosine of `x` are, up to a sign, the sine and the cosine of `r`, swapped where `n`
//! is odd.

use std::f64::consts::FRAC_2_PI;

use super::super::vector::Vector;
use super::elem::MathElem;

/// The sine; that of zero has its sign.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn sin<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe { V::select(x.eq(V::zero()), x, turned(x, 0.0)) }
}

/// The cosine, which is the sine a quarter of a turn later.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn cos<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe { turned(x, 1.0) }
}

/// The sine of `x` and so many quarters of a turn. Products of `n` and all parts of π/2 but the last are exact, and so are
/// differences from `x`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
unsafe fn turned<V: Vector>(x: V, quarters: f64) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let known = x.abs().le(V::from_f64(V::Elem::LARGEST_ANGLE));
        let x = V::select(known, x, V::from_f64(f64::NAN));
        let n = x.mul(V::from_f64(FRAC_2_PI)).round();
        let mut r = x;
        for &part in V::Elem::HALF_PI {
            r = n.neg_mul_add(V::from_f64(part), r);
        }
        let square = r.mul(r);
        let sine = series(square, V::Elem::SINE).mul(square).mul_add(r, r);
        let half = square.mul(V::from_f64(0.5));
        let cosine = V::from_f64(1.0).sub(half);
        let cosine = series(square, V::Elem::COSINE).mul_add(square.mul(square), cosine);
        // The number of quarters modulo 4, from -2 to 2.
        let n = n.add(V::from_f64(quarters));
        let turns = n.mul(V::from_f64(0.25)).round();
        let quarter = turns.neg_mul_add(V::from_f64(4.0), n);
        let is_odd = quarter.abs().eq(V::from_f64(1.0));
        let value = V::select(is_odd, cosine, sine);
        let value = V::select(quarter.lt(V::zero()), value.neg(), value);
        V::select(quarter.eq(V::from_f64(2.0)), value.neg(), value)
    }
}

/// A polynomial, coefficients from the lowest.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
unsafe fn series<V: Vector>(x: V, coefficients: &[f64]) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let highest = V::zero();
        let coefficients = coefficients.iter().rev();
        coefficients.fold(highest, |sum, &c| sum.mul_add(x, V::from_f64(c)))
    }
}
