//! Numbers with derivatives: the maps of rotors are written once and run on both.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A real number, or one with its derivatives.
pub(super) trait Number:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// A number that does not depend on the inputs.
    fn constant(value: f64) -> Self;

    /// The number without its derivatives.
    fn value(self) -> f64;

    /// A function of the number, from its value there and its slope.
    fn through(self, value: f64, slope: f64) -> Self;

    /// The angle of the point with this height and a width.
    fn atan2(self, width: Self) -> Self;

    /// The square root.
    fn sqrt(self) -> Self {
        let root = self.value().sqrt();
        self.through(root, 0.5 / root)
    }

    /// The number times a constant.
    fn scale(self, factor: f64) -> Self {
        self * Self::constant(factor)
    }
}

impl Number for f64 {
    fn constant(value: f64) -> Self {
        value
    }

    fn value(self) -> f64 {
        self
    }

    fn through(self, value: f64, _: f64) -> Self {
        value
    }

    fn atan2(self, width: Self) -> Self {
        self.atan2(width)
    }
}

/// A number and its derivatives by `N` inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jet<const N: usize> {
    pub(super) value: f64,
    pub(super) slopes: [f64; N],
}

impl<const N: usize> Jet<N> {
    /// The input of a number.
    pub(super) fn input(value: f64, index: usize) -> Self {
        let mut jet = Self::constant(value);
        jet.slopes[index] = 1.0;
        jet
    }

    fn join(self, other: Self, value: f64, slope: f64, other_slope: f64) -> Self {
        let slopes =
            std::array::from_fn(|i| slope * self.slopes[i] + other_slope * other.slopes[i]);
        Self { value, slopes }
    }
}

impl<const N: usize> Number for Jet<N> {
    fn constant(value: f64) -> Self {
        Self {
            value,
            slopes: [0.0; N],
        }
    }

    fn value(self) -> f64 {
        self.value
    }

    fn through(self, value: f64, slope: f64) -> Self {
        Self {
            value,
            slopes: self.slopes.map(|own| own * slope),
        }
    }

    fn atan2(self, width: Self) -> Self {
        let length = self.value.hypot(width.value);
        let [height, across] = [self.value, width.value].map(|x| x / length / length);
        self.join(width, self.value.atan2(width.value), across, -height)
    }

    fn scale(self, factor: f64) -> Self {
        self.through(factor * self.value, factor)
    }
}

impl<const N: usize> Add for Jet<N> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.join(other, self.value + other.value, 1.0, 1.0)
    }
}

impl<const N: usize> Sub for Jet<N> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.join(other, self.value - other.value, 1.0, -1.0)
    }
}

impl<const N: usize> Mul for Jet<N> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        self.join(other, self.value * other.value, other.value, self.value)
    }
}

impl<const N: usize> Div for Jet<N> {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        let quotient = self.value / other.value;
        self.join(other, quotient, 1.0 / other.value, -quotient / other.value)
    }
}

impl<const N: usize> Neg for Jet<N> {
    type Output = Self;

    fn neg(self) -> Self {
        self.through(-self.value, -1.0)
    }
}
