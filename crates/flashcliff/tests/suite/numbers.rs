//! The numbers that the reference computes with: plain, exact, with an error bound, or with a derivative.

/// The operations that the formulas of the operators need.
pub(crate) trait Number: Copy {
    /// A constant. `value` is rounded to the format that the number stands for.
    fn constant(value: f64) -> Self;

    /// An input, which is exact in every format.
    fn input(value: f64) -> Self;

    /// The sum in any order.
    fn sum(terms: &[Self]) -> Self;

    fn mul(self, other: Self) -> Self;

    fn div(self, other: Self) -> Self;

    fn neg(self) -> Self;

    /// `f(self)`, from the function and its slope.
    fn apply(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self;

    /// Does the same as [`Self::apply`] for a function between 0 and 1 that is accurate absolutely, not relatively.
    fn apply_absolute(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        self.apply(f, slope)
    }

    /// Does the same as [`Self::apply`] for a function that saturates: its slope may be computed from the value and its
    /// complement, and so be accurate only absolutely.
    fn apply_saturating(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        self.apply(f, slope)
    }

    fn add(self, other: Self) -> Self {
        Self::sum(&[self, other])
    }

    fn signed(self, sign: i64) -> Self {
        if sign < 0 { self.neg() } else { self }
    }
}

impl Number for f64 {
    fn constant(value: f64) -> Self {
        value
    }

    fn input(value: f64) -> Self {
        value
    }

    fn sum(terms: &[Self]) -> Self {
        terms.iter().sum()
    }

    fn mul(self, other: Self) -> Self {
        self * other
    }

    fn div(self, other: Self) -> Self {
        self / other
    }

    fn neg(self) -> Self {
        -self
    }

    fn apply(self, f: &dyn Fn(f64) -> f64, _: &dyn Fn(f64) -> f64) -> Self {
        f(self)
    }
}

/// Exact numbers; only for operators that add and multiply.
impl Number for i128 {
    fn constant(value: f64) -> Self {
        assert_eq!(value.fract(), 0.0, "not an integer");
        value as Self
    }

    fn input(value: f64) -> Self {
        Self::constant(value)
    }

    fn sum(terms: &[Self]) -> Self {
        terms.iter().sum()
    }

    fn mul(self, other: Self) -> Self {
        self * other
    }

    fn div(self, _: Self) -> Self {
        panic!("a quotient is not exact in integers")
    }

    fn neg(self) -> Self {
        -self
    }

    fn apply(self, _: &dyn Fn(f64) -> f64, _: &dyn Fn(f64) -> f64) -> Self {
        panic!("a function is not exact in integers")
    }
}

/// A value and a bound on how far a computation with `BITS`-bit significands may stray from it,
/// whatever the order of its sums and whether or not it fuses products.
///
/// Each operation adds `u |result|`, with `u = 2^-BITS`, to the errors of its operands. All operations except sums also
/// add the smallest normal number, below which bits or the whole result may be lost. So a sum of n terms is off by at
/// most `n u sum |t|`, and a product by `(terms + 2) u sum |w x y|`. Functions may be off by [`FUNCTION_ULP`] units in
/// the last place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded<const BITS: i32> {
    pub(crate) value: f64,
    pub(crate) error: f64,
}

/// The error of functions in units of `u`, which is half a unit in the last place. The library promises at most 4
/// units,
const FUNCTION_ULP: f64 = 4.0;
/// The error of the normal distribution function, which is 1.5 units of the number one.
const ABSOLUTE_ULP: f64 = 1.5;
/// The point where the slope of the smooth norm `(q^2 + 1e-16)^(1/4)` is steepest: `q = sqrt(2e-16)`.
const NORM_TURN: f64 = std::f64::consts::SQRT_2 * 1e-8;

impl<const BITS: i32> Bounded<BITS> {
    const UNIT: f64 = 1.0 / (1_u64 << BITS) as f64;
    const UNDERFLOW: f64 = match BITS {
        24 => f32::MIN_POSITIVE as f64,
        _ => f64::MIN_POSITIVE,
    };

    fn new(value: f64, error: f64) -> Self {
        Self { value, error }
    }

    /// `f(self)`, if `f` were computed without error. If the slope is not known, the bound is the range of `f` over the
    /// interval.
    fn image(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        let value = f(self.value);
        let reach = |x: f64| (f(x) - value).abs();
        let (low, high) = (self.value - self.error, self.value + self.error);
        // Between these points the functions of the operators and their slopes are monotone.
        let turns = [0.0, NORM_TURN, -NORM_TURN];
        let inside = turns.into_iter().filter(|x| low < *x && *x < high);
        let ends = inside.chain([low, high]).map(reach).fold(0.0, f64::max);
        let slope = slope(self.value).abs();
        let linear = if slope.is_nan() {
            0.0
        } else {
            slope * self.error
        };
        Self::new(value, ends + linear)
    }
}

impl<const BITS: i32> Number for Bounded<BITS> {
    fn constant(value: f64) -> Self {
        Self::new(value, Self::UNIT * value.abs())
    }

    fn input(value: f64) -> Self {
        Self::new(value, 0.0)
    }

    fn sum(terms: &[Self]) -> Self {
        let (mut value, mut error, mut size) = (0.0, 0.0, 0.0);
        for term in terms {
            value += term.value;
            error += term.error;
            size += term.value.abs() + term.error;
        }
        Self::new(value, error + terms.len() as f64 * Self::UNIT * size)
    }

    fn mul(self, other: Self) -> Self {
        let value = self.value * other.value;
        let (a, b) = (self.value.abs(), other.value.abs());
        let error = a * other.error + b * self.error + self.error * other.error;
        Self::new(
            value,
            error + Self::UNIT * (value.abs() + error) + Self::UNDERFLOW,
        )
    }

    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        let least = other.value.abs() - other.error;
        let error = (self.error + value.abs() * other.error) / least;
        // The quotient may be computed as such, or as a product with a reciprocal.
        let error = if least > 0.0 { error } else { f64::INFINITY };
        Self::new(
            value,
            error + 3.0 * Self::UNIT * (value.abs() + error) + Self::UNDERFLOW,
        )
    }

    fn neg(self) -> Self {
        Self::new(-self.value, self.error)
    }

    fn apply(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        let Self { value, error } = self.image(f, slope);
        Self::new(
            value,
            error + 2.0 * FUNCTION_ULP * Self::UNIT * (value.abs() + error) + Self::UNDERFLOW,
        )
    }

    fn apply_absolute(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        let Self { value, error } = self.image(f, slope);
        Self::new(value, error + 2.0 * ABSOLUTE_ULP * Self::UNIT)
    }
}

/// A value with its derivative in one direction, without differences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dual<N> {
    pub(crate) value: N,
    pub(crate) slope: N,
}

impl<N: Number> Number for Dual<N> {
    fn constant(value: f64) -> Self {
        Self {
            value: N::constant(value),
            slope: N::constant(0.0),
        }
    }

    fn input(value: f64) -> Self {
        Self::constant(value)
    }

    fn sum(terms: &[Self]) -> Self {
        let values: Vec<N> = terms.iter().map(|t| t.value).collect();
        let slopes: Vec<N> = terms.iter().map(|t| t.slope).collect();
        Self {
            value: N::sum(&values),
            slope: N::sum(&slopes),
        }
    }

    fn mul(self, other: Self) -> Self {
        let slope = self.value.mul(other.slope).add(self.slope.mul(other.value));
        Self {
            value: self.value.mul(other.value),
            slope,
        }
    }

    fn div(self, other: Self) -> Self {
        let value = self.value.div(other.value);
        let slope = self
            .slope
            .add(value.mul(other.slope).neg())
            .div(other.value);
        Self { value, slope }
    }

    fn neg(self) -> Self {
        Self {
            value: self.value.neg(),
            slope: self.slope.neg(),
        }
    }

    fn apply(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        let factor = self.value.apply(slope, &UNKNOWN);
        self.chain(self.value.apply(f, slope), factor)
    }

    fn apply_absolute(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        let factor = self.value.apply_absolute(slope, &UNKNOWN);
        self.chain(self.value.apply_absolute(f, slope), factor)
    }

    fn apply_saturating(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        let factor = self.value.apply_absolute(slope, &UNKNOWN);
        self.chain(self.value.apply(f, slope), factor)
    }
}

/// The slope of a slope, which is not known.
const UNKNOWN: fn(f64) -> f64 = |_| f64::NAN;

impl<N: Number> Dual<N> {
    fn chain(self, value: N, factor: N) -> Self {
        Self {
            value,
            slope: self.slope.mul(factor),
        }
    }
}
