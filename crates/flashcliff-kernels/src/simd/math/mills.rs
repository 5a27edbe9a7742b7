//! Mills' ratio: the tail of the normal distribution over its density, `(1 - Φ(a))/φ(a)`.
//!
//! It falls from √(π/2) like `1/a`, so with `t = 1/(1 + c a)` it is `t` times a smooth function on
//! `[0, 1]`, which one polynomial follows from 0 to infinity.

use super::super::vector::Vector;

/// Mills' ratio of `a >= 0`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn mills_f32<V: Vector<Elem = f32>>(a: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let one = V::from_f64(1.0);
        let t = one.div(a.mul_add(V::from_f64(0.36), one));
        // Degree 10 in t: relative error 2^-25.9.
        let q = horner!(t;
            0.360000004502679,
            0.3599988825137631,
            0.31339430460337386,
            0.21908699582295854,
            0.10766560076486414,
            -0.07189795817263321,
            0.1258481741700688,
            -0.533943346407031,
            0.6270606974633189,
            -0.3142669781903458,
            0.060367775103276726,
        );
        t.mul(q)
    }
}

/// Mills' ratio of `a >= 0`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn mills_f64<V: Vector<Elem = f64>>(a: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let one = V::from_f64(1.0);
        let t = one.div(a.mul_add(V::from_f64(0.28), one));
        // Degree 24 in 2 t - 1, whose powers cancel less: relative error 2^-55.5.
        let u = t.mul_add(V::from_f64(2.0), V::from_f64(-1.0));
        let q = horner!(u;
            0.5237230372054371,
            0.4017096871456585,
            0.22915031885756004,
            0.08856699876347636,
            0.01600431832199375,
            -0.003731058877635181,
            -0.0025296682608530983,
            0.0001174837885575862,
            0.0003582108402228491,
            -1.0079680485484275e-05,
            -5.759603021517653e-05,
            6.0040305685336676e-06,
            9.776106305741237e-06,
            -2.6561725278998853e-06,
            -1.4468483925096954e-06,
            8.775775773866924e-07,
            9.080035221785874e-08,
            -2.2606465855162108e-07,
            4.561143544880179e-08,
            4.311104529149068e-08,
            -2.271669280000686e-08,
            -5.242555218605701e-09,
            5.349726184967786e-09,
            2.7872874729980547e-10,
            -5.791296172583025e-10,
        );
        t.mul(q)
    }
}
