//! The constants and polynomials that the elementary functions need for an element type.

use std::fmt::Debug;

use super::super::vector::Vector;
use super::{erf, exp, mills, tanh};

/// An element type of [`Vector`]: `f32` or `f64`, with the polynomials of its precision. It must not be implemented elsewhere.
#[allow(
    clippy::missing_safety_doc,
    reason = "all methods share the contract of Vector"
)]
pub trait MathElem:
    sealed::Sealed + Copy + Debug + Default + PartialOrd + Send + Sync + 'static
{
    /// A number whose `exp` is infinite, while that of a slightly smaller number is not.
    #[doc(hidden)]
    const EXP_OVERFLOWS: f64;
    /// A number whose `exp` rounds to zero, while that of a slightly larger number does not.
    #[doc(hidden)]
    const EXP_VANISHES: f64;
    /// The leading bits of ln 2, few enough for products with exponents to be exact.
    #[doc(hidden)]
    const LN_2_HIGH: f64;
    /// ln 2 minus its leading bits.
    #[doc(hidden)]
    const LN_2_LOW: f64;
    /// The largest angle that is taken to one near zero without a loss of digits.
    const LARGEST_ANGLE: f64;
    /// π/2 in parts, whose sum has twice the digits. All but the last have few enough bits for their products with
    /// quarters of a turn to be exact.
    #[doc(hidden)]
    const HALF_PI: &'static [f64];
    /// The coefficients of `(sin(r)/r - 1)/t` in `t = r²`, Taylor's, for `|r| <= π/4`.
    #[doc(hidden)]
    const SINE: &'static [f64];
    /// The coefficients of `(cos(r) - 1 + t/2)/t²` in `t = r²`, Taylor's, for `|r| <= π/4`.
    #[doc(hidden)]
    const COSINE: &'static [f64];
    /// A number whose `tanh` rounds to one.
    #[doc(hidden)]
    const TANH_IS_ONE: f64;
    /// A number at which the normal density rounds to zero.
    #[doc(hidden)]
    const PDF_VANISHES: f64;

    /// Rounds to nearest.
    fn from_f64(value: f64) -> Self;

    /// Widens, exactly.
    fn to_f64(self) -> f64;

    /// `exp(r)` for `|r| <= ln(2)/2`.
    #[doc(hidden)]
    unsafe fn exp_reduced<V: Vector<Elem = Self>>(r: V) -> V;

    /// `erf(x)`.
    #[doc(hidden)]
    unsafe fn erf<V: Vector<Elem = Self>>(x: V) -> V;

    /// `erf(x)` for `|x| <= 1`.
    #[doc(hidden)]
    unsafe fn erf_small<V: Vector<Elem = Self>>(x: V) -> V;

    /// The tail of the normal distribution beyond `a >= 0`, divided by the density at `a`.
    #[doc(hidden)]
    unsafe fn mills<V: Vector<Elem = Self>>(a: V) -> V;

    /// `(tanh(x)/x - 1)/t` of `t = x²`, for `|x| <= 5/8`.
    #[doc(hidden)]
    unsafe fn tanh_small<V: Vector<Elem = Self>>(t: V) -> V;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl MathElem for f32 {
    const EXP_OVERFLOWS: f64 = 88.8;
    const EXP_VANISHES: f64 = -104.0;
    const LN_2_HIGH: f64 = 22_713.0 / 32_768.0;
    const LN_2_LOW: f64 = 1.428_606_765_330_187e-6;
    const LARGEST_ANGLE: f64 = 65_536.0;
    const HALF_PI: &'static [f64] = &[
        1.5703125,
        0.0004825592041015625,
        1.2665987014770508e-06,
        9.89530235528946e-10,
        2.5633440682570896e-12,
    ];
    const SINE: &'static [f64] = &[
        -0.1666666716337204,
        0.008333333767950535,
        -0.00019841270113829523,
        2.7557318844628753e-06,
    ];
    const COSINE: &'static [f64] = &[
        0.0416666679084301,
        -0.0013888889225199819,
        2.4801587642286904e-05,
        -2.755731998149713e-07,
    ];
    const TANH_IS_ONE: f64 = 9.4;
    const PDF_VANISHES: f64 = 14.5;

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as Self
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self.into()
    }
    #[inline(always)]
    unsafe fn exp_reduced<V: Vector<Elem = Self>>(r: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { exp::reduced_f32(r) }
    }
    #[inline(always)]
    unsafe fn erf<V: Vector<Elem = Self>>(x: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { erf::erf_f32(x) }
    }
    #[inline(always)]
    unsafe fn erf_small<V: Vector<Elem = Self>>(x: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { erf::small_f32(x) }
    }
    #[inline(always)]
    unsafe fn mills<V: Vector<Elem = Self>>(a: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { mills::mills_f32(a) }
    }
    #[inline(always)]
    unsafe fn tanh_small<V: Vector<Elem = Self>>(t: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { tanh::small_f32(t) }
    }
}

impl MathElem for f64 {
    const EXP_OVERFLOWS: f64 = 709.8;
    const EXP_VANISHES: f64 = -745.2;
    const LN_2_HIGH: f64 = 0.693_147_180_559_890_3;
    const LN_2_LOW: f64 = 5.497_923_018_708_371e-14;
    const LARGEST_ANGLE: f64 = 134_217_728.0;
    const HALF_PI: &'static [f64] = &[
        1.5707963109016418,
        1.5893254712295857e-08,
        6.123233995736766e-17,
    ];
    const SINE: &'static [f64] = &[
        -0.16666666666666666,
        0.008333333333333333,
        -0.0001984126984126984,
        2.7557319223985893e-06,
        -2.505210838544172e-08,
        1.6059043836821613e-10,
        -7.647163731819816e-13,
        2.8114572543455206e-15,
    ];
    const COSINE: &'static [f64] = &[
        0.041666666666666664,
        -0.001388888888888889,
        2.48015873015873e-05,
        -2.755731922398589e-07,
        2.08767569878681e-09,
        -1.1470745597729725e-11,
        4.779477332387385e-14,
    ];
    const TANH_IS_ONE: f64 = 19.5;
    const PDF_VANISHES: f64 = 38.7;

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    unsafe fn exp_reduced<V: Vector<Elem = Self>>(r: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { exp::reduced_f64(r) }
    }
    #[inline(always)]
    unsafe fn erf<V: Vector<Elem = Self>>(x: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { erf::erf_f64(x) }
    }
    #[inline(always)]
    unsafe fn erf_small<V: Vector<Elem = Self>>(x: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { erf::small_f64(x) }
    }
    #[inline(always)]
    unsafe fn mills<V: Vector<Elem = Self>>(a: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { mills::mills_f64(a) }
    }
    #[inline(always)]
    unsafe fn tanh_small<V: Vector<Elem = Self>>(t: V) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { tanh::small_f64(t) }
    }
}
