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

/// `C(u)` and `S(u)` of `u = s + Q`, with `C(u) = cosh(sqrt u)` and `S(u) = sinh(sqrt u) / sqrt u`.
///
/// Both are entire functions, and power series where `u` is small. Elsewhere they follow from values at two real numbers.
/// If `c` is large, these are `s + sqrt c` and `s - sqrt c`, whose product is `n = s^2 - c`; their halved sum and
/// difference are the parts of the result. Else they are the `p` and `q` with `sqrt u = sqrt p + sqrt q`, for which
/// `p + q = s` and `4 p q = c`. With `d = p - q = sqrt n`
///
/// ```text
/// C(u) = C(p) C(q) + S(p) S(q) Q / 2
/// S(u) = (p S(p) C(q) - q C(p) S(q)) / d + (C(p) S(q) - S(p) C(q)) / (2 d) Q
/// ```
pub(super) fn exponential<X: Number>(s: X, c: X) -> [Element<X>; 2] {
    if s.value().abs() + c.value().abs().sqrt() <= 1.0 {
        let b = X::constant(1.0);
        return short(Element { a: s, b }, c);
    }
    let n = s * s - c;
    let signed = |root: X| if s.value() < 0.0 { -root } else { root };
    if 4.0 * c.value() > s.value() * s.value() {
        let half = signed(c.sqrt());
        let larger = s + half;
        // The smaller number follows from the product, as the sum may cancel.
        let values = [larger, n / larger].map(of_number);
        return [0, 1].map(|which| {
            let [x, y] = values.map(|pair| pair[which]);
            Element {
                a: (x + y).scale(0.5),
                b: (x - y) / half.scale(2.0),
            }
        });
    }
    let d = signed(n.sqrt());
    let p = (s + d).scale(0.5);
    let q = c / p.scale(4.0);
    let [[c1, s1], [c2, s2]] = [p, q].map(of_number);
    let cosine = Element {
        a: c1 * c2,
        b: (s1 * s2).scale(0.5),
    };
    let sine = Element {
        a: (p / d) * s1 * c2 - (q / d) * s2 * c1,
        b: (c1 * s2 - s1 * c2) / d.scale(2.0),
    };
    [cosine, sine]
}

/// `C(u)` and `S(u)` by their power series, for `u` up to 1.
fn short<X: Number>(u: Element<X>, c: X) -> [Element<X>; 2] {
    let cosine = u.series(c, 9, |k| inverse_factorial(2 * k + 2));
    let sine = u.series(c, 10, |k| inverse_factorial(2 * k + 1));
    [u.times(cosine, c).shifted(1.0), sine]
}

/// `C(u)` and `S(u)` of a real number.
fn of_number<X: Number>(u: X) -> [X; 2] {
    if u.value() < -1.0 {
        let angle = (-u).sqrt();
        let (sin, cos) = angle.value().sin_cos();
        return [angle.through(cos, -sin), angle.through(sin, cos) / angle];
    }
    if u.value() > 1.0 {
        let rapidity = u.sqrt();
        let (sinh, cosh) = (rapidity.value().sinh(), rapidity.value().cosh());
        return [
            rapidity.through(cosh, sinh),
            rapidity.through(sinh, cosh) / rapidity,
        ];
    }
    let zero = X::constant(0.0);
    short(Element { a: u, b: zero }, zero).map(|value| value.a)
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

/// The number that takes the bivector `B` of a rotor `w + B` of any length to its logarithm, NaN if there is none.
///
/// `s` is `B B`; `unit` is that of `scale B`, and tells an angle near `pi` where `B B` has no digits.
pub(super) fn arc<X: Number>(w: X, s: X, unit: X, scale: f64) -> X {
    if !w.value().is_finite() {
        return X::constant(f64::NAN);
    }
    if w.value() > 0.0 && 16.0 * s.value().abs() <= w.value() * w.value() {
        let ratio = Element {
            a: s / (w * w),
            b: X::constant(0.0),
        };
        let series = ratio.series(X::constant(0.0), 13, |j| 1.0 / f64::from(2 * j + 1));
        return series.a / w;
    }
    if unit.value() < 0.0 {
        let length = (-unit).sqrt();
        return (length.atan2(w.scale(scale)) / length).scale(scale);
    }
    let rapidity = s.sqrt();
    // `false` for NaN too.
    if !(s.value() > 0.0 && w.value() > rapidity.value()) {
        return X::constant(f64::NAN);
    }
    let ratio = (w + rapidity) / (w - rapidity);
    ratio.through(ratio.value().ln(), 1.0 / ratio.value()) / rapidity.scale(2.0)
}

/// A power of two that takes the magnitude of a number to 1 up to 2; 1 for zero and for what is not finite.
pub(super) fn power_of_two(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return 1.0;
    }
    (-x.abs().log2().floor().clamp(-1022.0, 1022.0)).exp2()
}

fn inverse_factorial(n: u32) -> f64 {
    1.0 / (1..=n).map(f64::from).product::<f64>()
}
