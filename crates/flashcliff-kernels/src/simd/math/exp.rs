//! `exp(x) = 2^n exp(r)` with `n = round(x / ln 2)` and `r = x - n ln 2`, `|r| <= ln(2)/2`.

use std::f64::consts::LOG2_E;

use super::super::vector::Vector;
use super::elem::MathElem;

/// `exp(x)`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn exp<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe { exp_below_overflow(V::from_f64(V::Elem::EXP_OVERFLOWS).min(x)) }
}

/// `exp(x)` for `x` not beyond the overflow threshold.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn exp_below_overflow<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let (n, r) = split(V::from_f64(V::Elem::EXP_VANISHES).max(x));
        V::Elem::exp_reduced(r).ldexp(n)
    }
}

/// `(n, r)` with `x = n ln 2 + r`. The product of `n` and the high part of ln 2 is exact, and so is
/// its difference from `x`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn split<V: Vector>(x: V) -> (V, V) {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let n = x.mul(V::from_f64(LOG2_E)).round();
        let r = n.neg_mul_add(V::from_f64(V::Elem::LN_2_HIGH), x);
        (n, n.neg_mul_add(V::from_f64(V::Elem::LN_2_LOW), r))
    }
}

/// Degree 6 in `r`, `|r| <= 0.34666`, the first two coefficients fixed at 1: relative error
/// 2^-28.1.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn reduced_f32<V: Vector<Elem = f32>>(r: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        horner!(r;
            1.0,
            1.0,
            0.4999999403953552,
            0.16666516661643982,
            0.04166824743151665,
            0.008369081653654575,
            0.0013818992301821709,
        )
    }
}

/// Degree 11 in `r`, `|r| <= 0.34666`, the first two coefficients fixed at 1: relative error
/// 2^-57.4.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn reduced_f64<V: Vector<Elem = f64>>(r: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        horner!(r;
            1.0,
            1.0,
            0.5000000000000011,
            0.16666666666666372,
            0.041666666666524875,
            0.008333333333449454,
            0.0013888888945889754,
            0.0001984126971908763,
            2.480148985549097e-5,
            2.755731348369148e-6,
            2.763168744482188e-7,
            2.5108692511982915e-8,
        )
    }
}
