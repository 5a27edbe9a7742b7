//! The gates: a function of the scalar component that multiplies every blade.

use crate::named_option;
use crate::range::damp;
use crate::simd::Math;

/// The gate of an operand: a function of its scalar component that multiplies every blade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gate {
    /// No gate.
    None,
    /// `(1 + erf(x / sqrt 2)) / 2`: the scalar becomes GELU of itself.
    #[default]
    Gelu,
    /// The tanh form of GELU: `(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`.
    GeluTanh,
    /// `1 / (1 + exp(-x))`.
    Silu,
    /// The fast form of GELU: `1 / (1 + exp(-1.702 x))`.
    GeluFast,
}

impl Gate {
    /// All gates.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Gelu,
        Self::GeluTanh,
        Self::Silu,
        Self::GeluFast,
    ];

    /// The name, as [`FromStr`](std::str::FromStr) reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::Silu => "silu",
            Self::GeluFast => "gelu_fast",
        }
    }
}

named_option!(Gate, "gate", old "sigmoid" => Self::GeluFast);

/// `sqrt(2 / pi)`, the scale of the tanh form of GELU.
pub const TANH_SCALE: f64 = 0.797_884_560_802_865_4;
/// The cubic coefficient of the tanh form of GELU.
pub const TANH_CUBIC: f64 = 0.044715;
/// The slope at 0 of the argument of the fast form of GELU.
pub const FAST_SCALE: f64 = 1.702;

/// The gate at `x`.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
pub unsafe fn gate<V: Math>(gate: Gate, x: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        match gate {
            Gate::None => V::from_f64(1.0),
            Gate::Gelu => x.normal_cdf(),
            Gate::GeluTanh => tanh_argument(x).sigmoid(),
            Gate::Silu => x.sigmoid(),
            Gate::GeluFast => x.mul(V::from_f64(FAST_SCALE)).sigmoid(),
        }
    }
}

/// The derivative of the gate at `x`.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
pub unsafe fn gate_slope<V: Math>(gate: Gate, x: V) -> V {
    // SAFETY: the caller's.
    unsafe { gate_and_slope::<V>(gate, x).1 }
}

/// The gate and its derivative at `x`.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
pub unsafe fn gate_and_slope<V: Math>(gate: Gate, x: V) -> (V, V) {
    // SAFETY: the caller's.
    unsafe {
        let one = V::from_f64(1.0);
        match gate {
            Gate::None => (one, V::zero()),
            Gate::Gelu => (x.normal_cdf(), x.normal_pdf()),
            Gate::GeluTanh => {
                let cubic = V::from_f64(3.0 * TANH_CUBIC);
                let inner = x.mul(x).mul_add(cubic, one);
                let inner = inner.mul(V::from_f64(2.0 * TANH_SCALE));
                sigmoid_and_slope(tanh_argument(x), inner)
            }
            Gate::Silu => sigmoid_and_slope(x, one),
            Gate::GeluFast => {
                let scale = V::from_f64(FAST_SCALE);
                sigmoid_and_slope(x.mul(scale), scale)
            }
        }
    }
}

/// The `z` with `(1 + tanh(z / 2)) / 2 = sigmoid(z)` for which that is GELU's tanh form.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
unsafe fn tanh_argument<V: Math>(x: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        let cubic = x.mul(x).mul_add(V::from_f64(TANH_CUBIC), V::from_f64(1.0));
        x.mul(cubic).mul(V::from_f64(2.0 * TANH_SCALE))
    }
}

/// `s = sigmoid(argument)` and `s (1 - s)` times the derivative of the argument.
///
/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
unsafe fn sigmoid_and_slope<V: Math>(argument: V, inner: V) -> (V, V) {
    // SAFETY: the caller's.
    unsafe {
        // The slope of the argument may be infinite where that of the function is 0.
        (argument.sigmoid(), damp(argument.sigmoid_slope(), inner))
    }
}
