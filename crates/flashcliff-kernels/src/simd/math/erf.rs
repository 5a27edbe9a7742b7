//! The error function: an odd polynomial `x + x P(x²)` for small `|x|`, else `1 - Q(|x|)^8`, where
//! `Q` approximates the eighth root of erfc.
//!
//! The root decays slowly, so a polynomial follows it to the point where erf rounds to one, and
//! three squarings replace an exponential; they magnify the rounding errors of `Q` eightfold, but
//! only relative to erfc, which is at most 0.16 there.

use super::super::vector::Vector;

/// `erf(x)` for `|x| <= 19/16`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn small_f32<V: Vector<Elem = f32>>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        // Degree 6 in x²: relative error of erf 2^-26.1.
        let t = x.mul(x);
        let p = horner!(t;
            0.12837915122509003,
            -0.37612542510032654,
            0.11282794177532196,
            -0.02682464011013508,
            0.00513841537758708,
            -0.0007611836772412062,
            6.65328188915737e-5,
        );
        x.mul_add(p, x)
    }
}

/// `erf(x)` for `|x| <= 1`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn small_f64<V: Vector<Elem = f64>>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        // Degree 11 in x²: relative error of erf 2^-56.0.
        let t = x.mul(x);
        let p = horner!(t;
            0.12837916709551256,
            -0.3761263890318341,
            0.11283791670942125,
            -0.0268661706430879,
            0.005223977607716036,
            -0.0008548326064958218,
            0.00012055298826970119,
            -1.4924828432233123e-5,
            1.6448687656661478e-6,
            -1.6218828195848156e-7,
            1.376665142601989e-8,
            -7.884897737449877e-10,
        );
        x.mul_add(p, x)
    }
}

/// `erf(x)`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn erf_f32<V: Vector<Elem = f32>>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let a = x.abs();
        let small = small_f32(a);

        // Degree 6 on [19/16, 3.93]: absolute error of erf 2^-27.8; erf(3.92) rounds to one.
        let b = V::from_f64(3.93).min(a);
        let q = horner!(b;
            1.00132417678833,
            -0.14683453738689423,
            -0.05879415199160576,
            -0.01341845653951168,
            0.013802386820316315,
            -0.0026661341544240713,
            0.00016781060548964888,
        );

        V::select(a.lt(V::from_f64(1.1875)), small, one_minus_eighth_power(q)).copysign(x)
    }
}

/// `erf(x)`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
pub(super) unsafe fn erf_f64<V: Vector<Elem = f64>>(x: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let a = x.abs();
        let small = small_f64(a);

        // Degree 18 on [1, 5.95]: absolute error of erf 2^-57.5; erf(5.93) rounds to one.
        let b = V::from_f64(5.95).min(a);
        let q = horner!(b;
            0.9999999720491661,
            -0.14104712117160934,
            -0.06963153332931242,
            -0.0020866145050419805,
            0.006587826264791381,
            0.00018193484604936012,
            -0.000499199538629824,
            6.892482674952373e-5,
            1.4420335612850012e-5,
            -1.2851763511262519e-5,
            6.0293974181316585e-6,
            -2.009889328750607e-6,
            4.871449852691265e-7,
            -8.811461469866807e-8,
            1.2025803163243306e-8,
            -1.2175650172033424e-9,
            8.667089882978981e-11,
            -3.868622521674211e-12,
            8.124653887419793e-14,
        );

        V::select(a.lt(V::from_f64(1.0)), small, one_minus_eighth_power(q)).copysign(x)
    }
}

/// `1 - q^8`.
///
/// # Safety
/// The contract of [`Vector`] holds.
#[inline(always)]
unsafe fn one_minus_eighth_power<V: Vector>(q: V) -> V {
    // SAFETY: the contract of `Vector`.
    unsafe {
        let q2 = q.mul(q);
        let q4 = q2.mul(q2);
        q4.neg_mul_add(q4, V::from_f64(1.0))
    }
}
