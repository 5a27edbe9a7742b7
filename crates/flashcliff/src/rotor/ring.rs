//! Functions of `a + b Q` with `Q Q = c`.
//!
//! In up to five dimensions the square of a bivector is `s + Q` with a scalar `s` and a 4-vector `Q` that commutes with the
//! bivector and whose square is a scalar `c`. Functions of bivectors are functions of such elements, which form a
//! commutative ring: the complex numbers for `c < 0`, the dual numbers for `c = 0`, pairs of real numbers for `c > 0`.
//!
//! Nothing divides by `c`, so zero is no special case. Below four dimensions `b` and `c` are zero.

use super::number::Number;

/// `a + b Q`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<X> {
    pub(super) a: X,
    pub(super) b: X,
}

impl<X: Number> Element<X> {
    fn shifted(self, number: f64) -> Self {
        Self {
            a: self.a + X::constant(number),
            ..self
        }
    }

    fn scaled(self, factor: f64) -> Self {
        Self {
            a: self.a.scale(factor),
            b: self.b.scale(factor),
        }
    }

    fn times(self, other: Self, c: X) -> Self {
        Self {
            a: self.a * other.a + c * (self.b * other.b),
            b: self.a * other.b + self.b * other.a,
        }
    }

    /// The sum of `coefficient(k) self^k` for `k` below `terms`.
    fn series(self, c: X, terms: u32, coefficient: impl Fn(u32) -> f64) -> Self {
        let zero = Self {
            a: X::constant(0.0),
            b: X::constant(0.0),
        };
        let powers = (0..terms).rev();
        powers.fold(zero, |sum, k| self.times(sum, c).shifted(coefficient(k)))
    }

    /// `1 / self`: the conjugate over the product with it.
    pub(super) fn inverse(self, c: X) -> Self {
        let norm = self.a * self.a - c * (self.b * self.b);
        Self {
            a: self.a / norm,
            b: -(self.b / norm),
        }
    }

    /// The principal square root and its inverse; not finite where the ring has none.
    ///
    /// With `n = sqrt(a^2 - c b^2)` and `r = sqrt((a + n) / 2)` the root is `r + b / (2 r) Q`. Where `a < 0`, the sum `a + n`
    /// would lose its digits; it is `-c b^2 / (n - a)`.
    pub(super) fn root(self, c: X) -> [Self; 2] {
        let part = c * (self.b * self.b);
        let n = (self.a * self.a - part).sqrt();
        let square = if self.a.value() < 0.0 {
            -(part / (n - self.a).scale(2.0))
        } else {
            (self.a + n).scale(0.5)
        };
        let r = square.sqrt();
        let rest = self.b / r.scale(2.0);
        let over = Self {
            a: r / n,
            b: -(rest / n),
        };
        [Self { a: r, b: rest }, over]
    }
}

/// `C(u) - 1` and `S(u)` of `u = s + Q`, with `C(u) = cosh(sqrt u)` and `S(u) = sinh(sqrt u) / sqrt u`.
///
/// Both are power series of `u / 4^k` and then `k` doublings, `C(4 u) = 2 C(u)^2 - 1` and `S(4 u) = S(u) C(u)`, where `k`
/// makes `u / 4^k` small. `C - 1` is carried in place of `C`, which keeps its digits where it is small.
pub(super) fn exponential<X: Number>(s: X, c: X) -> [Element<X>; 2] {
    /// Doublings that take the smallest argument to the largest `f64`.
    const MOST: f64 = 512.0;
    let size = s.value().abs() + c.value().abs().sqrt();
    // `min` also turns NaN into a number: the loop below ends.
    let doublings = (size.max(1.0).log2() / 2.0).ceil().min(MOST);
    let scale = (-2.0 * doublings).exp2();
    let u = Element {
        a: s.scale(scale),
        b: X::constant(scale),
    };
    let cosine = u.series(c, 9, |k| inverse_factorial(2 * k + 2));
    let mut cosine = u.times(cosine, c);
    let mut sine = u.series(c, 10, |k| inverse_factorial(2 * k + 1));
    for _ in 0..doublings as u32 {
        sine = sine.times(cosine.shifted(1.0), c);
        cosine = cosine.times(cosine.shifted(2.0), c).scaled(2.0);
    }
    [cosine, sine]
}

/// `k(w) = arccos(w) / sqrt(1 - w^2)`, and `arcosh(w) / sqrt(w^2 - 1)` where `w` is more than 1: it takes a bivector
/// `B S(u)` with `w = C(u)` back to `B`.
///
/// Five times `k(w) = k(v) / v` with `v = sqrt((1 + w) / 2)`, then a series in `1 - v`: `k(1 - y)` is the sum of
/// `2^j (j!)^2 / (2 j + 1)! y^j`.
pub(super) fn slope_of_logarithm<X: Number>(mut w: Element<X>, c: X) -> Element<X> {
    const HALVINGS: usize = 5;
    let mut total = Element {
        a: X::constant(1.0),
        b: X::constant(0.0),
    };
    for _ in 0..HALVINGS {
        let [root, over] = w.shifted(1.0).scaled(0.5).root(c);
        w = root;
        total = total.times(over, c);
    }
    let rest = w.scaled(-1.0).shifted(1.0);
    let series = rest.series(c, 12, |j| {
        let ratios = (1..=j).map(f64::from);
        ratios.map(|i| i / (2.0 * i + 1.0)).product()
    });
    total.times(series, c)
}

fn inverse_factorial(n: u32) -> f64 {
    1.0 / (1..=n).map(f64::from).product::<f64>()
}
