//! The numbers that references compute with: plain, exact, or with a derivative.

/// The operations that the formulas of the operators need.
pub trait Number: Copy {
    /// A constant. `value` is rounded to the format that the number stands for.
    fn constant(value: f64) -> Self;

    /// An input, which is exact in every format.
    fn input(value: f64) -> Self;

    /// The sum in any order.
    fn sum(terms: &[Self]) -> Self;

    /// The product.
    fn mul(self, other: Self) -> Self;

    /// The quotient.
    fn div(self, other: Self) -> Self;

    /// The negative.
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

    /// The sum of two.
    fn add(self, other: Self) -> Self {
        Self::sum(&[self, other])
    }

    /// The number, or its negative if the sign is negative.
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

/// A value with its derivative in one direction, without differences.
#[derive(Clone, Copy, Debug)]
pub struct Dual<N> {
    /// The value.
    pub value: N,
    /// The derivative.
    pub slope: N,
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
