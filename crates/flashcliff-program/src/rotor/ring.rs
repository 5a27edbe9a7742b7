//! Functions of `a + b Q` with `Q Q = c`.
//!
//! In up to five dimensions the square of a bivector is `s + Q` with a scalar `s` and a 4-vector `Q` that commutes with the
//! bivector and whose square is a scalar `c`. Functions of bivectors are functions of such elements, which form a
//! commutative ring: the complex numbers for `c < 0`, the dual numbers for `c = 0`, pairs of real numbers for `c > 0`.
//!
//! Nothing divides by `c`, so zero is not a special case. Below four dimensions `b` and `c` are the constant 0, and fold away.

use crate::ir::{Function, Graph, Id};

/// `a + b Q`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) a: Id,
    pub(super) b: Id,
}

/// What bivectors of an algebra do: turn, if some square to -1, and boost, if some square to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Motions {
    pub(super) turns: bool,
    pub(super) boosts: bool,
}

/// The largest `|u|` of an exponential: that of a rotation by 2^28, beyond which kernels have no sine.
const LARGEST: f64 = 18_014_398_509_481_984.0;
/// The largest rapidity whose exponential is a number.
const LARGEST_RAPIDITY: f64 = 709.78;
/// How many times the logarithm takes a square root.
const HALVINGS: usize = 5;

impl Element {
    pub(super) fn shifted(self, g: &mut Graph, number: f64) -> Self {
        let a = g.shifted(self.a, number);
        Self { a, ..self }
    }

    pub(super) fn scaled(self, g: &mut Graph, factor: f64) -> Self {
        let [a, b] = [self.a, self.b].map(|x| g.scaled(x, factor));
        Self { a, b }
    }

    fn times(self, g: &mut Graph, other: Self, c: Id) -> Self {
        let squares = g.mul(self.b, other.b);
        let [aa, cbb] = [g.mul(self.a, other.a), g.mul(c, squares)];
        let [ab, ba] = [g.mul(self.a, other.b), g.mul(self.b, other.a)];
        Self {
            a: g.add(aa, cbb),
            b: g.add(ab, ba),
        }
    }

    /// The sum of `coefficient(k) self^k` for `k` below `terms`.
    fn series(self, g: &mut Graph, c: Id, terms: u32, coefficient: impl Fn(u32) -> f64) -> Self {
        let zero = g.constant(0.0);
        let mut sum = Self { a: zero, b: zero };
        for k in (0..terms).rev() {
            sum = self.times(g, sum, c).shifted(g, coefficient(k));
        }
        sum
    }

    fn choose(g: &mut Graph, condition: Id, yes: Self, no: Self) -> Self {
        Self {
            a: g.choose(condition, yes.a, no.a),
            b: g.choose(condition, yes.b, no.b),
        }
    }

    /// Whether there is no 4-vector.
    fn is_scalar(self, g: &Graph) -> bool {
        g.constant_value(self.b) == Some(0.0)
    }

    /// `self` times its conjugate. A scalar stands for itself.
    pub(super) fn norm(self, g: &mut Graph, c: Id) -> Id {
        if self.is_scalar(g) {
            return self.a;
        }
        let [square, other] = [self.a, self.b].map(|x| g.mul(x, x));
        let part = g.mul(c, other);
        g.sub(square, part)
    }

    /// Where there is an inverse.
    pub(super) fn has_inverse(self, g: &mut Graph, c: Id) -> Id {
        let norm = self.norm(g, c);
        let (is_finite, size) = (g.are_finite([norm]), g.magnitude(norm));
        let is_there = g.above(size, f64::MIN_POSITIVE);
        g.both(is_finite, is_there)
    }

    /// `1 / self`: the conjugate over the product with it.
    pub(super) fn inverse(self, g: &mut Graph, c: Id) -> Self {
        let norm = self.norm(g, c);
        if self.is_scalar(g) {
            let one = g.constant(1.0);
            return Self {
                a: g.div(one, norm),
                ..self
            };
        }
        let [a, b] = [self.a, self.b].map(|x| g.div(x, norm));
        Self { a, b: g.neg(b) }
    }

    /// Where there is a principal square root with an inverse. Where the scalar is negative, only complex numbers have a root, and only off
    /// the real axis.
    pub(super) fn has_root(self, g: &mut Graph, c: Id) -> Id {
        let norm = self.norm(g, c);
        let positive = g.above(self.a, 0.0);
        let complex = g.below(c, 0.0);
        let off_axis = g.max(positive, complex);
        let (is_finite, is_positive) = (g.are_finite([norm]), g.above(norm, 0.0));
        let is_there = g.both(is_finite, is_positive);
        g.both(is_there, off_axis)
    }

    /// The principal square root and its inverse, for elements that have them.
    ///
    /// With `n = sqrt(a^2 - c b^2)` and `r = sqrt((a + n) / 2)` the root is `r + b / (2 r) Q`. Where `a < 0`, the sum `a + n`
    /// would lose its digits; it is `-c b^2 / (n - a)`.
    pub(super) fn root(self, g: &mut Graph, c: Id) -> [Self; 2] {
        if self.is_scalar(g) {
            return self.root_of_positive(g, c);
        }
        let negative = g.below(self.a, 0.0);
        let sign = g.sign_unless(negative);
        let size = g.mul(sign, self.a);
        let n = self.length(g, c);
        let sum = g.add(size, n);
        let mean = g.scaled(sum, 0.5);
        let square = g.mul(self.b, self.b);
        let part = g.mul(c, square);
        let beside = g.scaled(sum, -2.0);
        let small = g.div(part, beside);
        let square = g.choose(negative, small, mean);
        self.root_from(g, n, square)
    }

    /// [`Self::root`] where `a > 0`.
    fn root_of_positive(self, g: &mut Graph, c: Id) -> [Self; 2] {
        if self.is_scalar(g) {
            let root = g.root(self.a);
            let one = g.constant(1.0);
            let over = g.div(one, root);
            return [root, over].map(|a| Self { a, ..self });
        }
        let n = self.length(g, c);
        let sum = g.add(self.a, n);
        let square = g.scaled(sum, 0.5);
        self.root_from(g, n, square)
    }

    /// The root of [`Self::norm`].
    fn length(self, g: &mut Graph, c: Id) -> Id {
        let norm = self.norm(g, c);
        g.root(norm)
    }

    /// The root and its inverse from `n` and the square of `r`.
    fn root_from(self, g: &mut Graph, n: Id, square: Id) -> [Self; 2] {
        let r = g.root(square);
        let twice = g.scaled(r, 2.0);
        let rest = g.div(self.b, twice);
        let [a, b] = [r, rest].map(|x| g.div(x, n));
        let over = Self { a, b: g.neg(b) };
        [Self { a: r, b: rest }, over]
    }
}

/// `C(u)` and `S(u)` by their power series, for `u` up to 1.
fn short(g: &mut Graph, u: Element, c: Id) -> [Element; 2] {
    let cosine = u.series(g, c, 9, |k| inverse_factorial(2 * k + 2));
    let sine = u.series(g, c, 10, |k| inverse_factorial(2 * k + 1));
    [u.times(g, cosine, c).shifted(g, 1.0), sine]
}

/// `C(u)` and `S(u)` of a real number.
fn of_number(g: &mut Graph, motions: Motions, u: Id) -> [Id; 2] {
    let (turns, boosts) = (g.below(u, -1.0), g.above(u, 1.0));
    let far = g.add(turns, boosts);
    let near = g.not(far);
    let zero = g.constant(0.0);
    let a = g.kept(near, u, 0.0);
    let parts = short(g, Element { a, b: zero }, zero);
    let mut result = parts.map(|part| g.damp(near, part.a));
    let mut add = |g: &mut Graph, condition: Id, values: [Id; 2]| {
        for (sum, value) in result.iter_mut().zip(values) {
            let chosen = g.damp(condition, value);
            *sum = g.add(*sum, chosen);
        }
    };
    if motions.turns {
        let positive = g.neg(u);
        let square = g.kept(turns, positive, 1.0);
        let angle = g.root(square);
        let [cos, sin] = [Function::Cos, Function::Sin].map(|of| g.call(of, angle));
        let sin = g.div(sin, angle);
        add(g, turns, [cos, sin]);
    }
    if motions.boosts {
        let square = g.kept(boosts, u, 1.0);
        let rapidity = g.root(square);
        let growing = g.call(Function::Exp, rapidity);
        let one = g.constant(1.0);
        let falling = g.div(one, growing);
        let (sum, difference) = (g.add(growing, falling), g.sub(growing, falling));
        let [cosh, sinh] = [sum, difference].map(|x| g.scaled(x, 0.5));
        let sinh = g.div(sinh, rapidity);
        add(g, boosts, [cosh, sinh]);
    }
    result
}

/// Where `C(u)` and `S(u)` of `u = s + Q` are numbers.
pub(super) fn has_exponential(g: &mut Graph, s: Id, c: Id) -> Id {
    let size = g.magnitude(c);
    let root = g.root(size);
    let size = g.magnitude(s);
    let size = g.add(size, root);
    // The square of the real part of `sqrt u`.
    let square = g.mul(s, s);
    let norm = g.sub(square, c);
    let norm = g.magnitude(norm);
    let norm = g.root(norm);
    let sum = g.add(s, norm);
    let turned = g.scaled(sum, 0.5);
    let real = g.add(s, root);
    let complex = g.below(c, 0.0);
    let growth = g.choose(complex, turned, real);
    let is_short = g.below(size, LARGEST);
    let is_number = g.below(growth, LARGEST_RAPIDITY * LARGEST_RAPIDITY);
    g.both(is_short, is_number)
}

/// `C(u)` and `S(u)` of `u = s + b Q` with `b` 1, or 0 where there are no 4-vectors: `C(u) = cosh(sqrt u)` and
/// `S(u) = sinh(sqrt u) / sqrt u`.
///
/// Both are entire functions, and power series where `u` is small. Elsewhere they follow from values at two real numbers.
pub(super) fn exponential(g: &mut Graph, motions: Motions, u: Element, c: Id) -> [Element; 2] {
    if u.is_scalar(g) {
        return of_number(g, motions, u.a).map(|a| Element { a, ..u });
    }
    let size = g.magnitude(c);
    let root = g.root(size);
    let size = g.magnitude(u.a);
    let size = g.add(size, root);
    let far = g.above(size, 1.0);
    let near = g.not(far);
    let own = Element {
        a: g.kept(near, u.a, 0.0),
        ..u
    };
    let of_four = g.kept(near, c, 0.0);
    let small = short(g, own, of_four);
    let large = of_pair(g, motions, u.a, c, far);
    [0, 1].map(|which: usize| Element::choose(g, far, large[which], small[which]))
}

/// `C(u)` and `S(u)` of `u = s + Q` where a condition holds, from values at two real numbers.
///
/// If `c` is large, these are `s + sqrt c` and `s - sqrt c`, whose product is `n = s^2 - c`; their halved sum and
/// difference are the parts of the result. Else they are the `p` and `q` with `sqrt u = sqrt p + sqrt q`, for which
/// `p + q = s` and `4 p q = c`. With `d = p - q = sqrt n`
///
/// ```text
/// C(u) = C(p) C(q) + S(p) S(q) Q / 2
/// S(u) = (p S(p) C(q) - q C(p) S(q)) / d + (C(p) S(q) - S(p) C(q)) / (2 d) Q
/// ```
fn of_pair(g: &mut Graph, motions: Motions, s: Id, c: Id, far: Id) -> [Element; 2] {
    let square = g.mul(s, s);
    let n = g.sub(square, c);
    let four = g.scaled(c, 4.0);
    let wide = g.greater(four, square);
    let apart = g.both(far, wide);
    let split = g.sub(far, apart);
    let negative = g.below(s, 0.0);
    let sign = g.sign_unless(negative);
    let signed = |g: &mut Graph, condition: Id, square: Id| {
        let square = g.kept(condition, square, 1.0);
        let root = g.root(square);
        g.mul(sign, root)
    };
    let (half, d) = (signed(g, apart, c), signed(g, split, n));
    // The smaller of two numbers follows from the product, as their sum may cancel.
    let sum = g.add(s, d);
    let p = g.scaled(sum, 0.5);
    let p = g.kept(split, p, 1.0);
    let sum = g.add(s, half);
    let larger = g.choose(apart, sum, p);
    let quarter = g.scaled(c, 0.25);
    let quarter = g.damp(split, quarter);
    let product = g.choose(apart, n, quarter);
    let smaller = g.div(product, larger);
    let ([c1, s1], [c2, s2]) = (
        of_number(g, motions, larger),
        of_number(g, motions, smaller),
    );
    let wide = of_sum(g, [c1, s1], [c2, s2], half);
    // Zeros keep the factors from growing where the other formula counts.
    let [p, q] = [larger, smaller].map(|x| {
        let own = g.damp(split, x);
        g.div(own, d)
    });
    let products = [[c1, c2], [s1, s2], [s1, c2], [c1, s2]];
    let [cc, ss, sc, cs] = products.map(|[x, y]| g.mul(x, y));
    let (first, second) = (g.mul(p, sc), g.mul(q, cs));
    let difference = g.sub(cs, sc);
    let slope = g.div(difference, d);
    let cosine = Element {
        a: cc,
        b: g.scaled(ss, 0.5),
    };
    let sine = Element {
        a: g.sub(first, second),
        b: g.scaled(slope, 0.5),
    };
    let [cosine, sine] = [(wide[0], cosine), (wide[1], sine)]
        .map(|(wide, narrow)| Element::choose(g, apart, wide, narrow));
    [cosine, sine]
}

/// The functions of `s + Q` from those at `s + half` and `s - half`.
fn of_sum(g: &mut Graph, first: [Id; 2], second: [Id; 2], half: Id) -> [Element; 2] {
    [0, 1].map(|which: usize| {
        let (x, y) = (first[which], second[which]);
        let (sum, difference) = (g.add(x, y), g.sub(x, y));
        let slope = g.div(difference, half);
        Element {
            a: g.scaled(sum, 0.5),
            b: g.scaled(slope, 0.5),
        }
    })
}

/// `k(w) = arccos(w) / sqrt(1 - w^2)`, and `arcosh(w) / sqrt(w^2 - 1)` where `w` is more than 1: it takes a bivector
/// `B S(u)` with `w = C(u)` back to `B`.
///
/// Five times `k(w) = k(v) / v` with `v = sqrt((1 + w) / 2)`, then a series in `1 - v`: `k(1 - y)` is the sum of
/// `2^j (j!)^2 / (2 j + 1)! y^j`. The scalar of `w`, which is that of a principal root, is not negative.
pub(super) fn slope_of_logarithm(g: &mut Graph, mut w: Element, c: Id) -> Element {
    let mut total: Option<Element> = None;
    for _ in 0..HALVINGS {
        let half = w.shifted(g, 1.0).scaled(g, 0.5);
        let [root, over] = half.root_of_positive(g, c);
        w = root;
        total = Some(match total {
            Some(total) => total.times(g, over, c),
            None => over,
        });
    }
    let rest = w.scaled(g, -1.0).shifted(g, 1.0);
    let series = rest.series(g, c, 12, |j| {
        let ratios = (1..=j).map(f64::from);
        ratios.map(|i| i / (2.0 * i + 1.0)).product()
    });
    match total {
        Some(total) => total.times(g, series, c),
        None => series,
    }
}

/// `artanh(sqrt(s) / w) / sqrt(s)` for `w > 0` and `w^2 > s`: of a rotor `w + B` with `B B = s`, the factor from `B` to the logarithm.
///
/// It is twice the one of `w + sqrt(w^2 - s)` with the same `s`, which has half of the angle. Angles up to a right
/// one and rapidities up to 10, beyond which `w^2 - s` of the double has no digits, are halved until a series takes
/// them.
pub(super) fn arc(g: &mut Graph, motions: Motions, w: Id, s: Id) -> Id {
    let (halvings, terms) = if motions.boosts { (6, 10) } else { (4, 8) };
    let mut total = w;
    for _ in 0..halvings {
        let square = g.mul(total, total);
        let square = g.sub(square, s);
        let root = g.root(square);
        total = g.add(total, root);
    }
    let square = g.mul(total, total);
    let ratio = g.div(s, square);
    let zero = g.constant(0.0);
    let ratio = Element { a: ratio, b: zero };
    let series = ratio.series(g, zero, terms, |j| 1.0 / f64::from(2 * j + 1));
    let slope = g.div(series.a, total);
    g.scaled(slope, f64::from(1 << halvings))
}

fn inverse_factorial(n: u32) -> f64 {
    1.0 / (1..=n).map(f64::from).product::<f64>()
}
