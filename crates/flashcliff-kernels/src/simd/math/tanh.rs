//! The hyperbolic tangent: an odd polynomial below 5/8, `1 - 2/(exp(2x) + 1)` above.

use super::super::vector::Vector;
use super::elem::MathElem;
use super::exp::split;

/// `tanh(x)`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn tanh<V: Vector>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let a = x.abs();

        let t = a.mul(a);
        let small = a.mul(t).mul_add(V::Elem::tanh_small(t), a);

        let bounded = V::from_f64(V::Elem::TANH_IS_ONE).min(a);
        let (n, r) = split(bounded.add(bounded));
        let e = V::Elem::exp_reduced(r).ldexp(n);
        let one = V::from_f64(1.0);
        let large = one.sub(V::from_f64(2.0).div(e.add(one)));

        V::select(a.lt(V::from_f64(0.625)), small, large).copysign(x)
    }
}

/// Degree 4 in `t = x²`, `x <= 5/8`: relative error of tanh 2^-27.7.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn small_f32<V: Vector<Elem = f32>>(t: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        horner!(t;
            -0.3333328068256378,
            0.13331405818462372,
            -0.053736522793769836,
            0.020628217607736588,
            -0.005692378617823124,
        )
    }
}

/// Degree 10 in `t = x²`, `x <= 5/8`: relative error of tanh 2^-56.4.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn small_f64<V: Vector<Elem = f64>>(t: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        horner!(t;
            -0.33333333333332854,
            0.13333333333261932,
            -0.05396825393119432,
            0.02186948757442583,
            -0.008863220980864488,
            0.003591988998647041,
            -0.0014549579792878533,
            0.000586313595128598,
            -0.00022855824556380753,
            7.713756591354114e-5,
            -1.6069234294039636e-5,
        )
    }
}
