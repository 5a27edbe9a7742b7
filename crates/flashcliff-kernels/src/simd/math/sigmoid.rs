//! The logistic function.

use super::super::vector::Vector;
use super::exp::exp_below_overflow;

/// `1/(1 + e)` or, for negative `x`, `e/(1 + e)`, with `e = exp(-|x|)`: nothing overflows and both
/// tails keep their relative accuracy.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn sigmoid<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let one = V::from_f64(1.0);
        let e = exp_below_overflow(x.abs().neg());
        V::select(x.lt(V::zero()), e, one).div(one.add(e))
    }
}

/// The slope of the logistic function, `e/(1 + e)²` with `e = exp(-|x|)`. The formula `s (1 - s)` would have no bits left where
/// `s` is close to 1. A caller that also computes the function shares the exponential.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn sigmoid_slope<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let e = exp_below_overflow(x.abs().neg());
        let sum = V::from_f64(1.0).add(e);
        e.div(sum.mul(sum))
    }
}
