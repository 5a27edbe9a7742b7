//! Numbers with an error bound, with which the references compute too.

use flashcliff_program::reference::Number;

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
