//! Arithmetic that stays in range even if a plain formula would leave it.

use crate::simd::Math;

/// The ratio of the legs from which on the longer leg is the hypotenuse, in `f32` and in `f64`.
const LONG: f64 = 134_217_728.0; // 2^27

/// `a b`, or 0 if `a` is 0, whatever `b` is.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
pub unsafe fn damp<V: Math>(a: V, b: V) -> V {
    // SAFETY: the caller promises it.
    unsafe { V::select(a.eq(V::zero()), V::zero(), a.mul(b)) }
}

/// The larger of both; `b` if they are equal. NaN if one of them is.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
pub unsafe fn larger<V: Math>(a: V, b: V) -> V {
    // SAFETY: the caller promises it.
    unsafe { V::select(a.eq(a), a.max(b), a) }
}

/// 1 where `a > b`, else 0.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
pub unsafe fn greater<V: Math>(a: V, b: V) -> V {
    // SAFETY: the caller promises it.
    unsafe { V::select(b.lt(a), V::from_f64(1.0), V::zero()) }
}

/// `sqrt(a^2 + b^2)`. Neither square is formed, so neither overflows nor underflows.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
pub unsafe fn hypot<V: Math>(a: V, b: V) -> V {
    // SAFETY: the caller promises it.
    unsafe {
        let (a, b) = (a.abs(), b.abs());
        let ratio = a.div(b);
        let short = ratio.mul_add(ratio, V::from_f64(1.0)).sqrt().mul(b);
        V::select(b.mul(V::from_f64(LONG)).le(a), a, short)
    }
}
