//! Numbers with changes along directions, for derivatives of any order of what is computed number by number.
//!
//! A jet along `n` directions is a polynomial in `ε_1 … ε_n` with `ε_i² = 0`. Its component `s` belongs to the product of
//! the `ε` of a set of directions, the bits of `s`, so a jet has `2^n` components. The last component of a function of
//! jets is the derivative of the function along all directions.
//!
//! The gradients of that derivative are the components of the gradient of the function at jets, for a gradient of its
//! result that does not change: by component `s` of an input it is component `2^n - 1 - s`, of the other directions.

use std::ops::{Add, AddAssign, Mul, Neg, Sub};

use super::number;
use crate::Number;

/// The components along the most directions of a step, which has derivatives up to one order more.
const MOST_COMPONENTS: usize = 1 << flashcliff::attention::MOST_DIRECTIONS;

/// The components along one more direction than a jet has; `None` if it has the most.
pub(crate) fn along_one_more(components: usize) -> Option<usize> {
    (components < MOST_COMPONENTS).then_some(2 * components)
}

/// The subsets of a set, from the empty one on, with what is left of it.
pub(crate) fn subsets(set: usize) -> impl Iterator<Item = (usize, usize)> {
    let subsets = (0..=set).filter(move |own| own & !set == 0);
    subsets.map(move |own| (own, set & !own))
}

/// Calls a function with a number of components as a constant.
macro_rules! with_components {
    ($components:expr, $n:ident => $work:expr) => {
        match $components {
            1 => {
                const $n: usize = 1;
                $work
            }
            2 => {
                const $n: usize = 2;
                $work
            }
            4 => {
                const $n: usize = 4;
                $work
            }
            _ => {
                const $n: usize = 8;
                $work
            }
        }
    };
}
pub(crate) use with_components;

/// A number and its changes: `N` is a power of two.
#[derive(Clone, Copy)]
pub(crate) struct Jet<T, const N: usize>(pub(crate) [T; N]);

impl<T: Number, const N: usize> Jet<T, N> {
    /// The component along all directions.
    pub(crate) const LAST: usize = N - 1;

    /// A number that does not change.
    pub(crate) fn of(value: T) -> Self {
        let mut own = Self::default();
        own.0[0] = value;
        own
    }

    /// A constant.
    pub(crate) fn constant(value: f64) -> Self {
        Self::of(number(value))
    }

    /// The number with all components but the first.
    fn changes(mut self) -> Self {
        self.0[0] = T::default();
        self
    }

    /// A power of the number, whose power is known.
    pub(crate) fn power(self, exponent: f64, of_value: T) -> Self {
        // Σ_k (p over k) v^(p - k) δ^k, where δ has no power above the number of directions.
        let (value, changes) = (self.0[0], self.changes());
        let mut term = Self::of(of_value);
        let mut sum = term;
        for k in 0..N.ilog2() {
            let k = f64::from(k);
            let factor = number::<T>((exponent - k) / (k + 1.0)) / value;
            term = term * changes * Self::of(factor);
            sum += term;
        }
        sum
    }

    /// `1 / x`.
    pub(crate) fn inverse(self) -> Self {
        self.power(-1.0, number::<T>(1.0) / self.0[0])
    }

    /// The exponential of the number.
    pub(crate) fn exponential(self) -> Self {
        let changes = self.changes();
        let mut term = Self::of(self.0[0].exponential());
        let mut sum = term;
        for k in 0..N.ilog2() {
            term = term * changes * Self::constant(1.0 / f64::from(k + 1));
            sum += term;
        }
        sum
    }
}

impl<T: Number, const N: usize> Default for Jet<T, N> {
    fn default() -> Self {
        Self([T::default(); N])
    }
}

impl<T: Number, const N: usize> Add for Jet<T, N> {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl<T: Number, const N: usize> AddAssign for Jet<T, N> {
    fn add_assign(&mut self, other: Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }
}

impl<T: Number, const N: usize> Neg for Jet<T, N> {
    type Output = Self;

    fn neg(self) -> Self {
        Self(self.0.map(|own| T::default() - own))
    }
}

impl<T: Number, const N: usize> Sub for Jet<T, N> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl<T: Number, const N: usize> Mul for Jet<T, N> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let mut product = Self::default();
        for (set, to) in product.0.iter_mut().enumerate() {
            for (own, others) in subsets(set) {
                *to += self.0[own] * other.0[others];
            }
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Derivatives of `x^-0.5`, of `1 / x` and of `exp(x)` along three directions with mixed components.
    #[test]
    fn functions_of_jets_have_their_derivatives() {
        let x = Jet::<f64, 8>([1.7, 0.3, -0.4, 0.11, 0.9, 0.25, -0.6, 0.05]);
        let [_, a, b, ab, c, ac, bc, abc] = x.0;
        // Faà di Bruno's formula.
        let last = |first: f64, second: f64, third: f64| {
            first * abc + second * (ab * c + ac * b + bc * a) + third * a * b * c
        };
        let v = x.0[0];
        let root = x.power(-0.5, v.powf(-0.5)).0[7];
        let expected = last(
            -0.5 * v.powf(-1.5),
            0.75 * v.powf(-2.5),
            -1.875 * v.powf(-3.5),
        );
        assert!((root - expected).abs() < 1e-14, "{root}, {expected}");
        let inverse = x.inverse().0[7];
        let expected = last(-v.powi(-2), 2.0 * v.powi(-3), -6.0 * v.powi(-4));
        assert!((inverse - expected).abs() < 1e-14, "{inverse}, {expected}");
        let exponential = x.exponential().0[7];
        let expected = last(v.exp(), v.exp(), v.exp());
        assert!((exponential - expected).abs() < 1e-13);
        let one = x * x.inverse();
        assert!((one.0[0] - 1.0).abs() < 1e-15 && one.0[1..].iter().all(|own| own.abs() < 1e-14));
    }
}
