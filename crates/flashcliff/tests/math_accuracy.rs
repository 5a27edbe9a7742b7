//! Compares the elementary functions with an independent double-precision library, in ulp of the exact result, on every
//! tier that this CPU has.
//!
//! The ordinary run takes samples, the long test every 31st `f32`. Before a release it takes every `f32`, a quarter of an hour
//! on two cores:
//!
//! ```sh
//! FLASHCLIFF_EVERY_F32=1 cargo test --release --package flashcliff --test math_accuracy -- --ignored --nocapture
//! ```

use std::{env, fmt, thread};

use flashcliff_kernels::simd::{Math, Scalar, Tier, Vector};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Exp,
    Sin,
    Cos,
    Erf,
    Sigmoid,
    SigmoidSlope,
    Tanh,
    NormalPdf,
    NormalCdf,
}

use Function::{Cos, Erf, Exp, NormalCdf, NormalPdf, Sigmoid, SigmoidSlope, Sin, Tanh};

impl Function {
    const ALL: [Self; 9] = [
        Exp,
        Sin,
        Cos,
        Erf,
        Sigmoid,
        SigmoidSlope,
        Tanh,
        NormalPdf,
        NormalCdf,
    ];

    /// The exact value, to about one ulp of `f64`.
    fn reference(self, x: f64, format: &Format) -> f64 {
        match self {
            Exp => libm::exp(x),
            Sin | Cos if x.abs() > format.largest_angle => f64::NAN,
            Sin => libm::sin(x),
            Cos => libm::cos(x),
            Erf => libm::erf(x),
            Sigmoid if x < 0.0 => libm::exp(x) / (1.0 + libm::exp(x)),
            Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
            Tanh => libm::tanh(x),
            NormalPdf if x.abs() > 50.0 => 0.0,
            NormalPdf => {
                // All factors but the exponential have twice the precision.
                let (high, low) = (0.398_942_280_401_432_7, -2.492_327_202_277_73e-17);
                let square = x * x;
                let square_error = libm::fma(x, x, -square);
                let e = libm::exp(-square / 2.0);
                let product = e * high;
                product + (libm::fma(e, high, -product) + e * low - product * square_error / 2.0)
            }
            SigmoidSlope => {
                let e = libm::exp(-x.abs());
                e / ((1.0 + e) * (1.0 + e))
            }
            NormalCdf => {
                // The rounding error of the argument is taken into account.
                let (high, low) = (std::f64::consts::FRAC_1_SQRT_2, -4.833_646_656_726_457e-17);
                let z = -x * high;
                let error = libm::fma(-x, high, -z) - x * low;
                let slope = std::f64::consts::FRAC_2_SQRT_PI * libm::exp(-z * z);
                let correction = if error.is_finite() {
                    slope * error
                } else {
                    0.0
                };
                0.5 * (libm::erfc(z) - correction)
            }
        }
    }

    /// The bound that the documentation of `Math` states.
    fn bound(self, format: &Format) -> f64 {
        match self {
            Exp => 2.0,
            Sin | Cos if format.digits == 52 => 2.0,
            Sin | Cos => 4.0,
            Erf if format.digits == 23 => 2.0,
            Erf | Sigmoid | Tanh | NormalPdf => 4.0,
            SigmoidSlope => 6.0,
            NormalCdf if format.digits == 23 => 8.0,
            NormalCdf => 10.0,
        }
    }
}

/// A floating-point format, for the size of its ulp.
struct Format {
    digits: i32,
    least_exponent: i32,
    greatest_exponent: i32,
    largest_angle: f64,
}

const F32: Format = Format {
    digits: 23,
    least_exponent: -149,
    greatest_exponent: 127,
    largest_angle: 65_536.0,
};
const F64: Format = Format {
    digits: 52,
    least_exponent: -1074,
    greatest_exponent: 1023,
    largest_angle: 134_217_728.0,
};

impl Format {
    /// The distance of `got` from `want` in ulp of `want`; infinite if only one of them is NaN. An overflow counts as
    /// the next power of two.
    fn error(&self, got: f64, want: f64) -> f64 {
        if want.is_nan() || got.is_nan() {
            return if want.is_nan() && got.is_nan() {
                0.0
            } else {
                f64::INFINITY
            };
        }
        let limit = 2.0 * pow2(self.greatest_exponent);
        let (got, want) = (got.clamp(-limit, limit), want.clamp(-limit, limit));
        if got == want {
            0.0
        } else {
            (got - want).abs() / self.ulp(want)
        }
    }

    fn ulp(&self, x: f64) -> f64 {
        let exponent = ((x.to_bits() >> 52) & 0x7FF) as i32 - 1023;
        pow2((exponent.min(self.greatest_exponent) - self.digits).max(self.least_exponent))
    }
}

fn pow2(exponent: i32) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (exponent + 1074))
    }
}

/// The worst of many comparisons.
#[derive(Clone, Copy, Debug)]
struct Worst {
    error: f64,
    x: f64,
    got: f64,
    want: f64,
}

impl Worst {
    const NONE: Self = Self {
        error: 0.0,
        x: 0.0,
        got: 0.0,
        want: 0.0,
    };

    fn compare(&mut self, format: &Format, x: f64, got: f64, want: f64) {
        let error = format.error(got, want);
        if error > self.error {
            *self = Self {
                error,
                x,
                got,
                want,
            };
        }
    }

    fn merge(self, other: Self) -> Self {
        if other.error > self.error {
            other
        } else {
            self
        }
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.3} ulp at {:e}: got {:e}, expected {:e}",
            self.error, self.x, self.got, self.want
        )
    }
}

/// `y = function(x)` with the vectors of one tier: the shims of the kernel pattern. Lengths are
/// multiples of sixteen.
macro_rules! map {
    ($map:ident, $elem:ident, $avx2:ident, $avx512:ident, $neon:ident) => {
        #[allow(
            clippy::missing_safety_doc,
            reason = "all functions share the contract of `Vector`: the CPU has the tier"
        )]
        fn $map(tier: Tier, function: Function, x: &[$elem], y: &mut [$elem]) {
            #[inline(always)]
            unsafe fn body<V: Vector<Elem = $elem>>(
                function: Function,
                x: &[$elem],
                y: &mut [$elem],
            ) {
                macro_rules! each {
                    ($method:ident) => {
                        for (x, y) in x.chunks_exact(V::LANES).zip(y.chunks_exact_mut(V::LANES)) {
                            // SAFETY: the chunks have `LANES` elements; the shim ensures that the CPU has the tier.
                            unsafe { V::load(x.as_ptr()).$method().store(y.as_mut_ptr()) }
                        }
                    };
                }
                match function {
                    Exp => each!(exp),
                    Sin => each!(sin),
                    Cos => each!(cos),
                    Erf => each!(erf),
                    Sigmoid => each!(sigmoid),
                    SigmoidSlope => each!(sigmoid_slope),
                    Tanh => each!(tanh),
                    NormalPdf => each!(normal_pdf),
                    NormalCdf => each!(normal_cdf),
                }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2(function: Function, x: &[$elem], y: &mut [$elem]) {
                // SAFETY: this function has the features of the tier.
                unsafe { body::<flashcliff_kernels::simd::avx2::$avx2>(function, x, y) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512(function: Function, x: &[$elem], y: &mut [$elem]) {
                // SAFETY: this function has the features of the tier.
                unsafe { body::<flashcliff_kernels::simd::avx512::$avx512>(function, x, y) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            fn neon(function: Function, x: &[$elem], y: &mut [$elem]) {
                // SAFETY: this function has the features of the tier.
                unsafe { body::<flashcliff_kernels::simd::neon::$neon>(function, x, y) }
            }

            assert!(tier.is_available() && x.len() == y.len() && x.len().is_multiple_of(16));
            // SAFETY: the tier is available.
            unsafe {
                match tier {
                    Tier::Scalar => body::<Scalar<$elem>>(function, x, y),
                    #[cfg(target_arch = "x86_64")]
                    Tier::Avx2 => avx2(function, x, y),
                    #[cfg(target_arch = "x86_64")]
                    Tier::Avx512 => avx512(function, x, y),
                    #[cfg(target_arch = "aarch64")]
                    Tier::Neon => neon(function, x, y),
                    tier => panic!("no shim for {tier}"),
                }
            }
        }
    };
}

map!(map_f32, f32, F32x8, F32x16, F32x4);
map!(map_f64, f64, F64x4, F64x8, F64x2);

/// The worst errors of all available tiers over the floats with these bits.
fn worst_f32(function: Function, mut bits: impl Iterator<Item = u32>) -> Vec<(Tier, Worst)> {
    const BLOCK: usize = 4096;
    let mut worst: Vec<_> = Tier::available().map(|tier| (tier, Worst::NONE)).collect();
    let (mut x, mut y, mut want) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
    loop {
        let mut count = 0;
        for ((x, want), bits) in x.iter_mut().zip(&mut want).zip(bits.by_ref()) {
            *x = f32::from_bits(bits);
            *want = function.reference(f64::from(*x), &F32);
            count += 1;
        }
        if count == 0 {
            return worst;
        }
        for (tier, worst) in &mut worst {
            map_f32(*tier, function, &x, &mut y);
            for ((x, y), want) in x.iter().zip(&y).zip(&want).take(count) {
                worst.compare(&F32, f64::from(*x), f64::from(*y), *want);
            }
        }
    }
}

/// The worst errors over one of `stride` floats and over the [`edges`], on all cores. An odd stride reaches all exponents of both
/// signs, and all last bits.
fn sweep(function: Function, stride: u64) -> Vec<(Tier, Worst)> {
    let count = (1_u64 << 32).div_ceil(stride);
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    // There are many more pieces than threads, since the reference is much slower for some inputs than for others.
    let pieces = 64 * threads;
    let piece = |k: u64| {
        let indices = count * k / pieces..count * (k + 1) / pieces;
        indices.map(|i| (i * stride) as u32)
    };
    thread::scope(|scope| {
        let spawn = |t: u64| {
            scope.spawn(move || {
                let runs = (t..pieces)
                    .step_by(threads as usize)
                    .map(|k| worst_f32(function, piece(k)));
                runs.reduce(merge).expect("at least one piece")
            })
        };
        let running: Vec<_> = (0..threads).map(spawn).collect();
        let done = running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        done.fold(worst_f32(function, edges()), merge)
    })
}

/// The bits of the floats around zero, infinity and every power of two, and around the places where a function changes its
/// formula, overflows, loses digits or vanishes, with both signs.
fn edges() -> impl Iterator<Item = u32> {
    const AROUND: u32 = 512;
    let powers = (0..=255).map(|exponent| exponent << 23);
    let places = [
        0.625_f32, 1.1875, 3.93, 9.4, 12.949_953, 13.146_681, 14.170_186, 14.356_402, 14.5,
        87.336_55, 88.722_84, 88.8, 103.972_08, 104.0,
    ];
    powers
        .chain(places.map(f32::to_bits))
        .flat_map(|bits| bits.saturating_sub(AROUND)..=bits + AROUND)
        .flat_map(|bits| [bits, bits | 1 << 31])
}

fn merge(a: Vec<(Tier, Worst)>, b: Vec<(Tier, Worst)>) -> Vec<(Tier, Worst)> {
    a.into_iter()
        .zip(b)
        .map(|((tier, a), (_, b))| (tier, a.merge(b)))
        .collect()
}

fn worst_f64(tier: Tier, function: Function, x: &[f64]) -> Worst {
    let mut y = vec![0.0; x.len()];
    map_f64(tier, function, x, &mut y);
    let mut worst = Worst::NONE;
    for (x, y) in x.iter().zip(&y) {
        worst.compare(&F64, *x, *y, function.reference(*x, &F64));
    }
    worst
}

/// Prints the errors of all tiers, then checks them against the bound.
fn demand(function: Function, format: &Format, worst: &[(Tier, Worst)]) {
    for (tier, worst) in worst {
        println!(
            "{function:?} f{} {tier}: {worst}",
            if format.digits == 23 { 32 } else { 64 }
        );
    }
    for (tier, worst) in worst {
        assert!(
            worst.error <= function.bound(format),
            "{function:?} on {tier}: {worst}"
        );
    }
}

/// Random numbers by SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `[-bound, bound)`.
    fn symmetric(&mut self, bound: f64) -> f64 {
        ((self.bits() >> 11) as f64 * 2.0_f64.powi(-52) - 1.0) * bound
    }
}

/// Any bit pattern, the ranges where the functions change, the subnormal tails.
fn samples_f64(count: usize) -> Vec<f64> {
    let mut random = Random(2026);
    let mut x = Vec::with_capacity(6 * count);
    for _ in 0..count {
        x.push(f64::from_bits(random.bits()));
        for bound in [0.7, 1.5, 7.0, 40.0, 760.0] {
            x.push(random.symmetric(bound));
        }
    }
    x
}

#[test]
fn f32_functions_keep_their_bounds_on_a_sample() {
    for function in Function::ALL {
        demand(function, &F32, &sweep(function, 4093));
    }
}

#[test]
fn f64_functions_keep_their_bounds_on_a_sample() {
    let x = samples_f64(80_000);
    for function in Function::ALL {
        let worst: Vec<_> = Tier::available()
            .map(|tier| (tier, worst_f64(tier, function, &x)))
            .collect();
        demand(function, &F64, &worst);
    }
}

#[test]
#[ignore = "2^32 inputs / 31, or all with FLASHCLIFF_EVERY_F32=1: run with --release"]
fn f32_functions_keep_their_bounds_on_many_inputs() {
    let every = env::var_os("FLASHCLIFF_EVERY_F32").is_some_and(|value| value == "1");
    let stride = if every { 1 } else { 31 };
    for function in Function::ALL {
        demand(function, &F32, &sweep(function, stride));
    }
}

#[test]
fn edges_have_both_signs_and_everything_special() {
    let edges: Vec<f32> = edges().map(f32::from_bits).collect();
    let subnormal = f32::from_bits(1);
    let normal = [f32::MIN_POSITIVE, 0.625, 1.0, f32::MAX];
    for x in [0.0, subnormal, f32::INFINITY].into_iter().chain(normal) {
        let is_in = |x: f32| edges.iter().any(|edge| edge.to_bits() == x.to_bits());
        assert!(is_in(x) && is_in(-x), "{x}");
    }
    assert!(edges.iter().any(|x| x.is_nan()));
}

/// Values that must come out bit for bit, the sign of zero included.
const EXACT: &[(Function, f64, f64)] = &[
    (Exp, 0.0, 1.0),
    (Exp, -0.0, 1.0),
    (Exp, f64::INFINITY, f64::INFINITY),
    (Exp, f64::NEG_INFINITY, 0.0),
    (Exp, 1e30, f64::INFINITY),
    (Exp, -1e30, 0.0),
    (Sin, 0.0, 0.0),
    (Sin, -0.0, -0.0),
    (Cos, 0.0, 1.0),
    (Cos, -0.0, 1.0),
    (Erf, 0.0, 0.0),
    (Erf, -0.0, -0.0),
    (Erf, f64::INFINITY, 1.0),
    (Erf, f64::NEG_INFINITY, -1.0),
    (Erf, 1e30, 1.0),
    (Erf, 6.0, 1.0),
    (Erf, -6.0, -1.0),
    (Sigmoid, 0.0, 0.5),
    (Sigmoid, f64::INFINITY, 1.0),
    (Sigmoid, f64::NEG_INFINITY, 0.0),
    (SigmoidSlope, 0.0, 0.25),
    (SigmoidSlope, f64::INFINITY, 0.0),
    (SigmoidSlope, f64::NEG_INFINITY, 0.0),
    (Tanh, 0.0, 0.0),
    (Tanh, -0.0, -0.0),
    (Tanh, f64::INFINITY, 1.0),
    (Tanh, f64::NEG_INFINITY, -1.0),
    (NormalPdf, f64::INFINITY, 0.0),
    (NormalPdf, f64::NEG_INFINITY, 0.0),
    (NormalPdf, 1e30, 0.0),
    (NormalCdf, 0.0, 0.5),
    (NormalCdf, f64::INFINITY, 1.0),
    (NormalCdf, f64::NEG_INFINITY, 0.0),
];

#[test]
fn special_values_are_exact_in_every_lane() {
    for tier in Tier::available() {
        for &(function, x, want) in EXACT {
            let (mut y32, mut y64) = ([7.0_f32; 16], [7.0_f64; 16]);
            map_f32(tier, function, &[x as f32; 16], &mut y32);
            map_f64(tier, function, &[x; 16], &mut y64);
            assert!(
                y32.iter().all(|y| y.to_bits() == (want as f32).to_bits()),
                "{tier} {function:?}({x}): {y32:?}"
            );
            assert!(
                y64.iter().all(|y| y.to_bits() == want.to_bits()),
                "{tier} {function:?}({x}): {y64:?}"
            );
        }
    }
}

#[test]
fn nan_in_gives_nan_out_whatever_its_payload() {
    let payloads32 = [
        0x7FC0_0000_u32,
        0xFFC0_0000,
        0x7FC0_0001,
        0xFFFF_FFFF,
        0x7FD5_5555,
        0x7F80_0001,
    ];
    let payloads64 = [
        0x7FF8_u64 << 48,
        0xFFF8 << 48,
        (0x7FF8 << 48) + 1,
        u64::MAX,
        0x7FFA_5555_5555_5555,
        (0x7FF0 << 48) + 1,
    ];
    for tier in Tier::available() {
        for function in Function::ALL {
            for (bits32, bits64) in payloads32.into_iter().zip(payloads64) {
                let (mut y32, mut y64) = ([7.0_f32; 16], [7.0_f64; 16]);
                map_f32(tier, function, &[f32::from_bits(bits32); 16], &mut y32);
                map_f64(tier, function, &[f64::from_bits(bits64); 16], &mut y64);
                assert!(
                    y32.iter().all(|y| y.is_nan()),
                    "{tier} {function:?}({bits32:#x}): {y32:?}"
                );
                assert!(
                    y64.iter().all(|y| y.is_nan()),
                    "{tier} {function:?}({bits64:#x}): {y64:?}"
                );
            }
        }
    }
}

#[test]
fn a_result_does_not_depend_on_lane_or_neighbours() {
    for tier in Tier::available() {
        for function in Function::ALL {
            let x: [f32; 16] = std::array::from_fn(|i| (i as f32 - 7.3) * 0.9);
            let (mut all, mut one) = ([0.0; 16], [0.0; 16]);
            map_f32(tier, function, &x, &mut all);
            for i in 0..16 {
                let mut alone = [f32::NAN; 16];
                alone[15 - i] = x[i];
                map_f32(tier, function, &alone, &mut one);
                assert_eq!(
                    one[15 - i].to_bits(),
                    all[i].to_bits(),
                    "{tier} {function:?}({})",
                    x[i]
                );
            }
        }
    }
}

/// The comparison itself must be able to fail.
#[test]
fn an_erf_off_by_three_ulp_is_reported() {
    let mut worst = Worst::NONE;
    for i in 0..1000 {
        let x = i as f32 * 0.004;
        let want = Erf.reference(f64::from(x), &F32);
        let off = if i == 321 { 3 } else { 0 };
        let got = f32::from_bits((want as f32).to_bits() + off);
        worst.compare(&F32, f64::from(x), f64::from(got), want);
    }
    assert_eq!(worst.x, f64::from(321.0_f32 * 0.004), "{worst}");
    assert!(
        worst.error > Erf.bound(&F32) && (2.5..=3.5).contains(&worst.error),
        "{worst}"
    );
}

#[test]
fn wrong_specials_are_infinitely_wrong() {
    assert_eq!(F32.error(f64::NAN, 1.0), f64::INFINITY);
    assert_eq!(F32.error(1.0, f64::NAN), f64::INFINITY);
    assert_eq!(F32.error(f64::INFINITY, f64::from(f32::MAX)), 1.0);
    assert_eq!(F32.error(f64::from(f32::from_bits(2)), 0.0), 2.0);
    assert!(F32.error(f64::INFINITY, 1.0) > 1e30);
    assert!(F64.error(f64::INFINITY, f64::MAX) > 1e15);
}
