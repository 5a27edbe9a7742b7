//! The maps of one item.

use cayley::Algebra;

use super::Map;
use super::parts::{Parts, graded, mapped, product, reversed, square};
use super::ring::{self, Element, Motions};
use crate::ir::{Graph, Id};

/// The expressions of maps in an algebra.
pub(super) struct Builder<'a> {
    g: &'a mut Graph,
    algebra: &'a Algebra,
    motions: Motions,
}

/// A multivector, and where it is one.
type Found = (Parts, Id);

/// A scalar plus a 4-vector: an element of the ring of the 4-vector, the 4-vector, and its square.
struct Norm {
    element: Element,
    q: Parts,
    c: Id,
}

impl<'a> Builder<'a> {
    pub(super) fn new(g: &'a mut Graph, algebra: &'a Algebra) -> Self {
        let blades = 0..algebra.blade_count();
        let some_square_to = |square: i8| {
            blades.clone().any(|blade| {
                let of_norm = algebra.square_of_blade_norm(blade);
                algebra.grade_of(blade) == 2 && -of_norm == square
            })
        };
        let motions = Motions {
            turns: some_square_to(-1),
            boosts: some_square_to(1),
        };
        Self {
            g,
            algebra,
            motions,
        }
    }

    /// The result of a map, NaN in items that have none. Their gradient is zero.
    pub(super) fn map(mut self, map: Map, inputs: &[Parts]) -> Parts {
        let finite = inputs.iter().flat_map(|input| input.values().copied());
        let finite = self.g.are_finite(finite);
        // No gradient reaches items that are not finite.
        let inputs = inputs.iter();
        let x: Vec<Parts> = inputs
            .map(|input| mapped(input, |value| self.g.damp(finite, value)))
            .collect();
        let (result, exists) = match map {
            Map::Exp => self.exp(&x[0]),
            Map::Log => self.log(&x[0]),
            Map::Inverse(_) => self.inverse(&x[0]),
            Map::Normalized(_) => self.normalized(&x[0], true),
            Map::Between(_) => self.between(&x[0], &x[1]),
            Map::Along(parity) => self.along(parity, &x[0], x[1][&0], &x[2]),
            Map::Interpolate(parity) => self.interpolate(parity, [&x[0], &x[1]], x[2][&0]),
        };
        let exists = self.g.both(finite, exists);
        mapped(&result, |value| self.g.kept(exists, value, f64::NAN))
    }

    /// The square of a 4-vector.
    fn square_of_four(&mut self, q: &Parts) -> Id {
        square(self.g, self.algebra, q, false).0
    }

    /// The scalar plus the 4-vector where a condition holds that depends on both and on the square; a number elsewhere.
    fn norm(
        &mut self,
        (a, q): (Id, Parts),
        condition: impl Fn(&mut Graph, Element, Id) -> Id,
        number: f64,
    ) -> (Norm, Id) {
        let b = self.g.constant(f64::from(u8::from(!q.is_empty())));
        let c = self.square_of_four(&q);
        let exists = condition(self.g, Element { a, b }, c);
        let a = self.g.kept(exists, a, number);
        let q = mapped(&q, |value| self.g.damp(exists, value));
        let c = self.square_of_four(&q);
        let element = Element { a, b };
        (Norm { element, q, c }, exists)
    }

    /// `(a + b Q) x`, of the grades of `x`.
    fn scaled(&mut self, factor: Element, q: &Parts, x: &Parts) -> Parts {
        let mut result = mapped(x, |value| self.g.mul(factor.a, value));
        let algebra = self.algebra;
        let is_kept = |grade| x.keys().any(|&blade| algebra.grade_of(blade) == grade);
        for (blade, value) in product(self.g, algebra, q, x, is_kept) {
            let value = self.g.mul(factor.b, value);
            if let Some(sum) = result.get_mut(&blade) {
                *sum = self.g.add(*sum, value);
            }
        }
        result
    }

    /// `exp(B) = C(u) + B S(u)` with `u = B B`.
    fn exp(&mut self, b: &Parts) -> Found {
        let of_square = square(self.g, self.algebra, b, false);
        let is_there = |g: &mut Graph, u: Element, c| ring::has_exponential(g, u.a, c);
        let (Norm { element, q, c }, exists) = self.norm(of_square, is_there, 0.0);
        let [cosine, sine] = ring::exponential(self.g, self.motions, element, c);
        let mut rotor = self.scaled(sine, &q, b);
        rotor.insert(0, cosine.a);
        for (blade, value) in q {
            rotor.insert(blade, self.g.mul(cosine.b, value));
        }
        (rotor, exists)
    }

    /// `log(R)`, by the square root `normalized(1 + R)` of the normalised `R` where there are 4-vectors.
    fn log(&mut self, r: &Parts) -> Found {
        if graded(self.algebra, r, 4).is_empty() {
            return self.log_of_one_plane(r);
        }
        let (mut half, exists) = self.normalized(r, false);
        half.insert(0, self.g.shifted(half[&0], 1.0));
        let (half, has_root) = self.normalized(&half, false);
        let exists = self.g.both(exists, has_root);
        let half = mapped(&half, |value| self.g.damp(exists, value));
        let of_half = (half[&0], graded(self.algebra, &half, 4));
        let (Norm { element, q, c }, _) = self.norm(of_half, |_, _, _| exists, 1.0);
        let slope = ring::slope_of_logarithm(self.g, element, c).scaled(self.g, 2.0);
        let bivector = graded(self.algebra, &half, 2);
        (self.scaled(slope, &q, &bivector), exists)
    }

    /// `log(R)` of a scalar `w` and a bivector `B` that squares to a scalar `s`, of any length.
    ///
    /// The half of the angle has `w + n` with `n = sqrt(w^2 - s)` in place of `w`. Where `w < 0` this sum would lose its digits: it is
    /// `-s / (n - w)`, and all is in units of the largest part of `B`, since an angle near `pi` has digits where `s` has none.
    fn log_of_one_plane(&mut self, r: &Parts) -> Found {
        let (w, bivector) = (r[&0], graded(self.algebra, r, 2));
        let negative = self.g.below(w, 0.0);
        let mut largest = self.g.constant(0.0);
        for (&blade, &value) in &bivector {
            if self.algebra.square_of_blade_norm(blade) != 0 {
                let size = self.g.magnitude(value);
                largest = self.g.max(size, largest);
            }
        }
        let is_there = self.g.above(largest, 0.0);
        let inverted = self.g.both(negative, is_there);
        let unit = self.g.kept(inverted, largest, 1.0);
        let units = mapped(&bivector, |value| self.g.div(value, unit));
        let s = square(self.g, self.algebra, &units, false).0;
        let g = &mut *self.g;
        let length = g.mul(w, w);
        let (turns, is_more) = (g.below(s, 0.0), g.greater(length, s));
        let exists = g.choose(negative, turns, is_more);
        let sizes = g.are_finite([length, s]);
        let exists = g.both(exists, sizes);
        let (w, s) = (g.kept(exists, w, 1.0), g.damp(exists, s));
        let sign = g.sign_unless(negative);
        let size = g.mul(sign, w);
        let size = g.kept(exists, size, 1.0);
        let (length, area) = (g.mul(w, w), g.mul(unit, unit));
        let square = g.mul(s, area);
        let square = g.sub(length, square);
        let n = g.root(square);
        let sum = g.add(size, n);
        let part = g.mul(s, unit);
        let part = g.div(part, sum);
        let part = g.neg(part);
        let inverted = g.both(inverted, exists);
        let sum = g.choose(inverted, part, sum);
        let slope = ring::arc(g, self.motions, sum, s);
        let slope = g.div(slope, unit);
        let slope = g.scaled(slope, 2.0);
        (mapped(&bivector, |value| g.mul(slope, value)), exists)
    }

    /// `reverse(x) (x reverse(x))^(-1)`.
    fn inverse(&mut self, x: &Parts) -> Found {
        let norm = square(self.g, self.algebra, x, true);
        let (Norm { element, q, c }, exists) = self.norm(norm, |g, n, c| n.has_inverse(g, c), 1.0);
        let over = element.inverse(self.g, c);
        // The 4-vector does not commute with all of x: reverse(x) r is the reverse of r x.
        let result = self.scaled(over, &q, x);
        (reversed(self.g, self.algebra, &result), exists)
    }

    /// `(x reverse(x))^(-1/2) x`. With `signed`, a negative `x reverse(x)` becomes -1.
    fn normalized(&mut self, x: &Parts, signed: bool) -> Found {
        let (mut a, mut q) = square(self.g, self.algebra, x, true);
        if signed {
            // A versor has no 4-vector here but for rounding, whose square has any sign. The square stays.
            let negative = self.g.below(a, 0.0);
            let sign = self.g.sign_unless(negative);
            a = self.g.mul(sign, a);
            q = mapped(&q, |value| self.g.mul(sign, value));
        }
        let (Norm { element, q, c }, exists) = self.norm((a, q), |g, n, c| n.has_root(g, c), 1.0);
        let [_, over] = element.root(self.g, c);
        (self.scaled(over, &q, x), exists)
    }

    /// `log(reverse(a) b)` of normalised versors, with `-b` in place of `b` if that is nearer.
    fn between(&mut self, a: &Parts, b: &Parts) -> Found {
        let back = reversed(self.g, self.algebra, a);
        let mut between = product(self.g, self.algebra, &back, b, |grade| grade % 2 == 0);
        let zero = self.g.constant(0.0);
        let scalar = *between.entry(0).or_insert(zero);
        let negative = self.g.below(scalar, 0.0);
        let sign = self.g.sign_unless(negative);
        let between = mapped(&between, |value| self.g.mul(sign, value));
        self.log(&between)
    }

    /// `a exp(t B)`.
    fn along(&mut self, parity: usize, a: &Parts, t: Id, step: &Parts) -> Found {
        let step = mapped(step, |value| self.g.mul(t, value));
        let (turn, exists) = self.exp(&step);
        let kept = |grade: usize| grade % 2 == parity;
        (product(self.g, self.algebra, a, &turn, kept), exists)
    }

    /// `a exp(t log(reverse(a) b))` of versors, which are normalised.
    fn interpolate(&mut self, parity: usize, [a, b]: [&Parts; 2], t: Id) -> Found {
        let (a, starts) = self.normalized(a, true);
        let (b, ends) = self.normalized(b, true);
        let exists = self.g.both(starts, ends);
        let (step, goes) = self.between(&a, &b);
        if step.is_empty() {
            // Versors of a line: nothing lies between.
            return (a, exists);
        }
        let (result, turns) = self.along(parity, &a, t, &step);
        let exists = self.g.both(exists, goes);
        (result, self.g.both(exists, turns))
    }
}
