//! Compares every method of `Vector` with plain scalar arithmetic, bit for bit, on every tier that this CPU has.

use std::fmt::Debug;

use flashcliff_kernels::simd::{Scalar, Tier, Vector};

/// The operands: specials of every kind, values that round, values that cancel.
const OPERANDS: [f64; 30] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -1.5,
    2.5,
    3.5,
    -4.5,
    0.1,
    -0.3,
    1.0 / 3.0,
    1e-3,
    -7.7e5,
    123_456.789,
    3.0e18,
    -6.02e23,
    1e-30,
    -1e-38,
    1e-40,
    -1e-45,
    3.4e38,
    -3.4e38,
    1.7e308,
    -2.3e-308,
    5e-324,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    std::f64::consts::PI,
];

/// The number of lanes of the widest register.
const WIDEST: usize = 16;

/// The suite for one element type: `check` is generic over the vector, the shims instantiate it,
/// `run` picks the shim.
macro_rules! suite {
    ($elem:ident, exponents to $limit:literal, $avx2:ident, $avx512:ident, $neon:ident) => {
        #[allow(
            clippy::missing_safety_doc,
            reason = "all functions share the contract of `Vector`: the CPU has the tier"
        )]
        mod $elem {
            use super::*;

            type Binary<V> = unsafe fn(V, V) -> V;
            type Ternary<V> = unsafe fn(V, V, V) -> V;

            fn operands() -> Vec<$elem> {
                OPERANDS.iter().map(|&x| x as $elem).collect()
            }

            /// All lanes of a vector.
            unsafe fn lanes<V: Vector<Elem = $elem>>(v: V) -> Vec<$elem> {
                let mut out = [99.0; WIDEST];
                // SAFETY: `out` is as long as the widest register.
                unsafe { v.store(out.as_mut_ptr()) };
                assert!(
                    out[V::LANES..].iter().all(|&x| x == 99.0),
                    "a store wrote past its lanes"
                );
                out[..V::LANES].to_vec()
            }

            /// A vector whose lanes are consecutive operands from `start`, cyclically.
            unsafe fn window<V: Vector<Elem = $elem>>(all: &[$elem], start: usize) -> V {
                let x: [$elem; WIDEST] = std::array::from_fn(|i| all[(start + i) % all.len()]);
                // SAFETY: `x` is as long as the widest register.
                unsafe { V::load(x.as_ptr()) }
            }

            #[track_caller]
            fn same(what: &str, got: $elem, want: $elem, operands: &dyn Debug) {
                let equal = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(
                    equal,
                    "{what}({operands:?}): got {got:e}, expected {want:e}"
                );
            }

            unsafe fn unary<V: Vector<Elem = $elem>>(
                what: &str,
                op: unsafe fn(V) -> V,
                want: fn($elem) -> $elem,
            ) {
                let all = operands();
                for start in 0..all.len() {
                    // SAFETY: the caller vouches for the tier.
                    let got = unsafe { lanes(op(window(&all, start))) };
                    for (i, got) in got.into_iter().enumerate() {
                        let a = all[(start + i) % all.len()];
                        same(what, got, want(a), &a);
                    }
                }
            }

            unsafe fn binary<V: Vector<Elem = $elem>>(
                what: &str,
                op: Binary<V>,
                want: fn($elem, $elem) -> $elem,
            ) {
                let all = operands();
                for (j, &b) in all.iter().enumerate() {
                    for start in 0..all.len() {
                        // The right operand also varies by lane, so that a broadcast would be noticed.
                        // SAFETY: the caller ensures that the CPU has the tier.
                        let got = unsafe { lanes(op(window(&all, start), window(&all, j))) };
                        same(what, got[0], want(all[start], b), &(all[start], b));
                        for (i, got) in got.into_iter().enumerate() {
                            let (a, b) = (all[(start + i) % all.len()], all[(j + i) % all.len()]);
                            same(what, got, want(a, b), &(a, b));
                        }
                    }
                }
            }

            unsafe fn ternary<V: Vector<Elem = $elem>>(
                what: &str,
                op: Ternary<V>,
                want: fn($elem, $elem, $elem) -> $elem,
            ) {
                let all = operands();
                for k in 0..all.len() {
                    for j in 0..all.len() {
                        for start in (0..all.len()).step_by(V::LANES) {
                            // SAFETY: the caller vouches for the tier.
                            let got = unsafe {
                                lanes(op(window(&all, start), window(&all, j), window(&all, k)))
                            };
                            for (i, got) in got.into_iter().enumerate() {
                                let at = |first: usize| all[(first + i) % all.len()];
                                same(
                                    what,
                                    got,
                                    want(at(start), at(j), at(k)),
                                    &(at(start), at(j), at(k)),
                                );
                            }
                        }
                    }
                }
            }

            unsafe fn arithmetic<V: Vector<Elem = $elem>>(fused: bool) {
                // SAFETY: the caller vouches for the tier.
                unsafe {
                    binary::<V>("add", V::add, |a, b| a + b);
                    binary::<V>("sub", V::sub, |a, b| a - b);
                    binary::<V>("mul", V::mul, |a, b| a * b);
                    binary::<V>("div", V::div, |a, b| a / b);
                    binary::<V>("min", V::min, |a, b| if a < b { a } else { b });
                    binary::<V>("max", V::max, |a, b| if a > b { a } else { b });
                    binary::<V>("copysign", V::copysign, $elem::copysign);
                    unary::<V>("neg", V::neg, |a| -a);
                    unary::<V>("abs", V::abs, $elem::abs);
                    unary::<V>("sqrt", V::sqrt, $elem::sqrt);
                    if fused {
                        ternary::<V>("mul_add", V::mul_add, $elem::mul_add);
                        ternary::<V>("neg_mul_add", V::neg_mul_add, |a, b, c| (-a).mul_add(b, c));
                        ternary::<V>("mul_sub", V::mul_sub, |a, b, c| a.mul_add(b, -c));
                    } else {
                        ternary::<V>("mul_add", V::mul_add, |a, b, c| a * b + c);
                        ternary::<V>("neg_mul_add", V::neg_mul_add, |a, b, c| c - a * b);
                        ternary::<V>("mul_sub", V::mul_sub, |a, b, c| a * b - c);
                    }
                }
            }

            unsafe fn comparisons<V: Vector<Elem = $elem>>() {
                // SAFETY: the caller vouches for the tier.
                unsafe {
                    binary::<V>(
                        "lt",
                        |a, b| V::select(a.lt(b), a, b),
                        |a, b| if a < b { a } else { b },
                    );
                    binary::<V>(
                        "le",
                        |a, b| V::select(a.le(b), a, V::zero()),
                        |a, b| if a <= b { a } else { 0.0 },
                    );
                    binary::<V>(
                        "eq",
                        |a, b| V::select(a.eq(b), a, V::from_f64(7.0)),
                        |a, b| if a == b { a } else { 7.0 },
                    );
                }
            }

            unsafe fn signs_of_nan<V: Vector<Elem = $elem>>() {
                fn bits<V: Vector<Elem = $elem>>(v: V) -> Vec<u64> {
                    // SAFETY: it is only called below, where the caller ensures that the CPU has the tier.
                    let lanes = unsafe { lanes(v) };
                    lanes.into_iter().map(|x| x.to_bits().into()).collect()
                }
                // SAFETY: the caller vouches for the tier.
                unsafe {
                    let nan = V::splat($elem::NAN.copysign(1.0));
                    let negative = V::splat($elem::NAN.copysign(-1.0));
                    assert_eq!(bits(nan.neg()), bits(negative), "neg flips the sign of NaN");
                    assert_eq!(
                        bits(negative.abs()),
                        bits(nan),
                        "abs clears the sign of NaN"
                    );
                    assert_eq!(
                        bits(nan.copysign(V::from_f64(-0.0))),
                        bits(negative),
                        "copysign reads the sign of -0"
                    );
                }
            }

            unsafe fn memory<V: Vector<Elem = $elem>>() {
                #[repr(align(64))]
                struct Aligned([$elem; 3 * WIDEST]);
                let source: Vec<$elem> = (1..=2 * WIDEST as u32).map(|i| i as $elem).collect();
                for offset in 0..WIDEST {
                    let mut target = Aligned([0.0; 3 * WIDEST]);
                    // SAFETY: the caller ensures that the CPU has the tier; both slices hold `LANES` elements past the
                    // offset.
                    unsafe {
                        V::load(source[offset..].as_ptr()).store(target.0[offset..].as_mut_ptr())
                    };
                    for (i, &got) in target.0.iter().enumerate() {
                        let inside = (offset..offset + V::LANES).contains(&i);
                        assert_eq!(
                            got,
                            if inside { source[i] } else { 0.0 },
                            "offset {offset}, element {i}"
                        );
                    }
                }
                let mut target = Aligned([0.0; 3 * WIDEST]);
                // SAFETY: the caller ensures that the CPU has the tier; the target is aligned to 64 bytes, and a
                // multiple of `LANES` elements keeps that alignment.
                unsafe {
                    V::load(source.as_ptr()).stream(target.0[V::LANES..].as_mut_ptr());
                    V::stream_fence();
                }
                assert_eq!(target.0[V::LANES..2 * V::LANES], source[..V::LANES]);
                assert!(
                    target.0[..V::LANES]
                        .iter()
                        .chain(&target.0[2 * V::LANES..])
                        .all(|&x| x == 0.0)
                );
                // SAFETY: the caller vouches for the tier.
                unsafe {
                    assert_eq!(lanes(V::splat(2.75)), vec![2.75; V::LANES]);
                    assert_eq!(lanes(V::from_f64(0.1)), vec![0.1; V::LANES]);
                    assert_eq!(lanes(V::zero()), vec![0.0; V::LANES]);
                }
            }

            unsafe fn keep_first<V: Vector<Elem = $elem>>() {
                let bad = [$elem::NAN, $elem::INFINITY, -0.0, -3.0];
                for bad in bad {
                    for n in (0..=V::LANES + 2).chain([usize::MAX]) {
                        let x: [$elem; WIDEST] =
                            std::array::from_fn(|i| if i < n { i as $elem - 1.5 } else { bad });
                        // SAFETY: the caller vouches for the tier.
                        let got = unsafe { lanes(V::load(x.as_ptr()).keep_first(n)) };
                        for (i, got) in got.into_iter().enumerate() {
                            let want: $elem = if i < n { x[i] } else { 0.0 };
                            assert_eq!(
                                got.to_bits(),
                                want.to_bits(),
                                "keep_first({n}), lane {i}, after {bad}"
                            );
                        }
                    }
                }
                let x = [$elem::NAN; WIDEST];
                // SAFETY: the caller vouches for the tier.
                let kept = unsafe { lanes(V::load(x.as_ptr()).keep_first(V::LANES)) };
                assert!(
                    kept.iter().all(|x| x.is_nan()),
                    "kept lanes are not cleaned"
                );
            }

            /// Adds halves to each other until one lane is left.
            fn sum_of_halves(x: &[$elem]) -> $elem {
                let (low, high) = x.split_at(x.len() / 2);
                let sum: Vec<_> = low.iter().zip(high).map(|(a, b)| a + b).collect();
                if sum.len() == 1 {
                    sum[0]
                } else {
                    sum_of_halves(&sum)
                }
            }

            /// Adds neighbours first.
            fn sum_of_neighbours(x: &[$elem]) -> $elem {
                let sum: Vec<_> = x.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
                if sum.len() == 1 {
                    sum[0]
                } else {
                    sum_of_neighbours(&sum)
                }
            }

            unsafe fn reduce_add<V: Vector<Elem = $elem>>() {
                let (mut unlike_sequential, mut unlike_neighbours) = (0, 0);
                for seed in 0..64 {
                    let x: [$elem; WIDEST] = std::array::from_fn(|i| {
                        ((seed * 37 + i * 101) as $elem).sin() * (i % 3 + 1) as $elem
                    });
                    let x = &x[..V::LANES];
                    // SAFETY: the caller ensures that the CPU has the tier; `x` holds `LANES` elements.
                    let got = unsafe { V::load(x.as_ptr()).reduce_add() };
                    let want = if V::LANES == 1 {
                        x[0]
                    } else {
                        sum_of_halves(x)
                    };
                    assert_eq!(
                        got.to_bits(),
                        want.to_bits(),
                        "reduce_add({x:?}): got {got:e}, expected {want:e}"
                    );
                    if V::LANES > 1 {
                        unlike_sequential += usize::from(x.iter().sum::<$elem>() != want);
                        unlike_neighbours += usize::from(sum_of_neighbours(x) != want);
                    }
                }
                if V::LANES > 2 {
                    assert!(
                        unlike_sequential > 9 && unlike_neighbours > 9,
                        "the data cannot tell the orders apart"
                    );
                }
            }

            unsafe fn rounding_and_scaling<V: Vector<Elem = $elem>>() {
                let mut all = vec![
                    0.0,
                    -0.0,
                    0.5,
                    1.5,
                    2.5,
                    -0.5,
                    -1.5,
                    -2.5,
                    0.49999997,
                    -0.7,
                    1.2,
                    1e5 + 0.5,
                    -99.5,
                ];
                all.extend([0.5_f64.powi(60) as $elem, 3e6, -3e6 - 0.25]);
                for start in 0..all.len() {
                    // SAFETY: the caller vouches for the tier.
                    let got = unsafe { lanes(V::round(window(&all, start))) };
                    for (i, got) in got.into_iter().enumerate() {
                        let a = all[(start + i) % all.len()];
                        assert_eq!(got, a.round_ties_even(), "round({a})");
                    }
                }
                let limit = $limit;
                let significands: [$elem; 6] = [1.0, -1.1, 0.7, 1.9999, -0.25, 0.3];
                for n in -limit..=limit {
                    for m in significands {
                        // SAFETY: the caller vouches for the tier.
                        let got = unsafe { lanes(V::splat(m).ldexp(V::from_f64(f64::from(n)))) };
                        let want = scaled(m, n);
                        got.into_iter()
                            .for_each(|got| same("ldexp", got, want, &(m, n)));
                    }
                }
                // SAFETY: the caller vouches for the tier.
                let nan = unsafe { lanes(V::splat($elem::NAN).ldexp(V::splat($elem::NAN))) };
                assert!(nan.iter().all(|x| x.is_nan()));
            }

            /// `m 2^n` by a multiplication that is exact and one that may round.
            fn scaled(m: $elem, n: i32) -> $elem {
                let two: $elem = 2.0;
                m * two.powi(n / 2) * two.powi(n - n / 2)
            }

            unsafe fn squares<V: Vector<Elem = $elem>>() {
                let all: Vec<$elem> = (0..4096_u32)
                    .map(|i| (i as $elem * 0.618_034 - 900.3) * (1.0 + i as $elem / 7.0))
                    .collect();
                for start in (0..all.len()).step_by(V::LANES) {
                    // SAFETY: the caller vouches for the tier.
                    let (square, error) = unsafe {
                        let (square, error) = window::<V>(&all, start).two_square();
                        (lanes(square), lanes(error))
                    };
                    for (i, (square, error)) in square.into_iter().zip(error).enumerate() {
                        let a = all[start + i];
                        assert_eq!(square, a * a);
                        assert_eq!(error, a.mul_add(a, -square), "the rounding error of {a}²");
                    }
                }
            }

            #[inline(always)]
            unsafe fn check<V: Vector<Elem = $elem>>(tier: Tier) {
                let declared = if size_of::<$elem>() == 4 {
                    tier.lanes_f32()
                } else {
                    tier.lanes_f64()
                };
                assert_eq!(V::LANES, declared);
                assert_eq!(size_of::<V>(), V::LANES * size_of::<$elem>());
                // SAFETY: the caller vouches for the tier.
                unsafe {
                    arithmetic::<V>(tier != Tier::Scalar);
                    comparisons::<V>();
                    signs_of_nan::<V>();
                    memory::<V>();
                    keep_first::<V>();
                    reduce_add::<V>();
                    rounding_and_scaling::<V>();
                    squares::<V>();
                }
            }

            #[test]
            fn every_method_on_every_tier() {
                for tier in Tier::available() {
                    println!("{tier}");
                    // SAFETY: the tier is available.
                    unsafe {
                        match tier {
                            Tier::Scalar => check::<Scalar<$elem>>(tier),
                            #[cfg(target_arch = "x86_64")]
                            Tier::Avx2 => check::<flashcliff_kernels::simd::avx2::$avx2>(tier),
                            #[cfg(target_arch = "x86_64")]
                            Tier::Avx512 => {
                                check::<flashcliff_kernels::simd::avx512::$avx512>(tier)
                            }
                            #[cfg(target_arch = "aarch64")]
                            Tier::Neon => check::<flashcliff_kernels::simd::neon::$neon>(tier),
                            tier => panic!("no vectors for {tier}"),
                        }
                    }
                }
            }
        }
    };
}

suite!(f32, exponents to 200, F32x8, F32x16, F32x4);
suite!(f64, exponents to 2000, F64x4, F64x8, F64x2);
