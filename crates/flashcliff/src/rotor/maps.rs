//! The maps of one item, for numbers with and without derivatives.

use cayley::Algebra;

use super::number::Number;
use super::parts::{BLADES, Parts, Product};
use super::ring::{self, Element};

const EVEN: [usize; 3] = [0, 2, 4];
const ODD: [usize; 3] = [1, 3, 5];

/// The products of an algebra.
#[derive(Clone, Debug)]
pub(super) struct Maps {
    grades: Vec<usize>,
    reverse: Vec<i8>,
    /// The bivectors whose square is not zero.
    with_squares: Vec<usize>,
    /// `B B` of a bivector.
    square: Product,
    /// The scalar `Q Q` of a 4-vector.
    square_of_four: Product,
    /// `Q B` of grade 2.
    four_times_bivector: Product,
    /// For even and for odd multivectors.
    parities: [ProductsOfParity; 2],
}

#[derive(Clone, Debug)]
struct ProductsOfParity {
    /// `x reverse(x)`.
    times_reverse: Product,
    /// `Q x`.
    four_times: Product,
    /// `x y` of two multivectors of the parity.
    pair: Product,
    /// `x r` of a multivector of the parity and an even one.
    turned: Product,
}

impl Maps {
    pub(super) fn new(algebra: &Algebra) -> Self {
        let product = |left: &[usize], right: &[usize], kept: &[usize], reverse| {
            Product::new(algebra, left, right, kept, reverse)
        };
        let parity = |own: [usize; 3]| ProductsOfParity {
            times_reverse: product(&own, &own, &[0, 4], true).with_itself(),
            four_times: product(&[4], &own, &own, false),
            pair: product(&own, &own, &EVEN, false),
            turned: product(&own, &EVEN, &own, false),
        };
        let blades = 0..algebra.blade_count();
        let with_squares = blades.clone().filter(|&blade| {
            algebra.grade_of(blade) == 2 && algebra.square_of_blade_norm(blade) != 0
        });
        Self {
            with_squares: with_squares.collect(),
            grades: blades
                .clone()
                .map(|blade| algebra.grade_of(blade))
                .collect(),
            reverse: blades.map(|blade| algebra.reverse_sign(blade)).collect(),
            square: product(&[2], &[2], &[0, 4], false).with_itself(),
            square_of_four: product(&[4], &[4], &[0], false).with_itself(),
            four_times_bivector: product(&[4], &[2], &[2], false),
            parities: [parity(EVEN), parity(ODD)],
        }
    }

    /// The blades of some grades.
    pub(super) fn blades(&self, grade: impl Fn(usize) -> bool) -> Vec<usize> {
        let blades = self.grades.iter().enumerate();
        blades
            .filter(|&(_, &g)| grade(g))
            .map(|(blade, _)| blade)
            .collect()
    }

    fn map<X: Number>(&self, x: &Parts<X>, f: impl Fn(usize, X) -> X) -> Parts<X> {
        let mut result = *x;
        for (blade, value) in result.iter_mut().enumerate().take(self.grades.len()) {
            *value = f(blade, *value);
        }
        result
    }

    fn grade<X: Number>(&self, x: &Parts<X>, grade: usize) -> Parts<X> {
        self.map(x, |blade, value| {
            if self.grades[blade] == grade {
                value
            } else {
                X::constant(0.0)
            }
        })
    }

    fn reversed<X: Number>(&self, x: &Parts<X>) -> Parts<X> {
        self.map(x, |blade, value| {
            if self.reverse[blade] < 0 {
                -value
            } else {
                value
            }
        })
    }

    /// `(a + b Q) x`, with `Q x` given.
    fn scaled<X: Number>(&self, factor: Element<X>, x: &Parts<X>, qx: &Parts<X>) -> Parts<X> {
        self.map(x, |blade, value| factor.a * value + factor.b * qx[blade])
    }

    /// A scalar plus a 4-vector as an element of the ring of the 4-vector, the 4-vector, and its square.
    fn element<X: Number>(&self, x: &Parts<X>) -> (Element<X>, Parts<X>, X) {
        let q = self.grade(x, 4);
        let c = self.square_of_four.of(&q, &q)[0];
        let b = X::constant(1.0);
        (Element { a: x[0], b }, q, c)
    }

    /// `exp(B) = C(u) + B S(u)` with `u = B B`.
    pub(super) fn exp<X: Number>(&self, b: &Parts<X>) -> Parts<X> {
        let (u, q, c) = self.element(&self.square.of(b, b));
        let [cosine, sine] = ring::exponential(u.a, c);
        let mut result = self.scaled(sine, b, &self.four_times_bivector.of(&q, b));
        for (blade, &value) in q.iter().enumerate().take(self.grades.len()) {
            if self.grades[blade] == 4 {
                result[blade] = cosine.b * value;
            }
        }
        result[0] = cosine.a;
        result
    }

    /// `log(R)`, by the square root `normalized(1 + R)` of the normalised `R` where there are 4-vectors.
    pub(super) fn log<X: Number>(&self, r: &Parts<X>) -> Parts<X> {
        if !self.grades.contains(&4) {
            return self.log_of_one_plane(r);
        }
        let mut half = self.normalized(r, 0, false);
        half[0] = half[0] + X::constant(1.0);
        let half = self.normalized(&half, 0, false);
        let (w, q, c) = self.element(&half);
        let bivector = self.grade(&half, 2);
        let slope = ring::slope_of_logarithm(w, c);
        let result = self.scaled(
            slope,
            &bivector,
            &self.four_times_bivector.of(&q, &bivector),
        );
        self.map(&result, |_, value| value.scale(2.0))
    }

    /// `log(R)` of a scalar and a bivector that squares to a scalar.
    fn log_of_one_plane<X: Number>(&self, r: &Parts<X>) -> Parts<X> {
        let bivector = self.grade(r, 2);
        let sizes = self.with_squares.iter().map(|&b| bivector[b].value().abs());
        let scale = ring::power_of_two(sizes.fold(0.0, f64::max));
        let unit = self.map(&bivector, |_, value| value.scale(scale));
        let [s, unit] = [&bivector, &unit].map(|b| self.square.of(b, b)[0]);
        let slope = ring::arc(r[0], s, unit, scale);
        self.map(&bivector, |_, value| slope * value)
    }

    /// `(x reverse(x))^(-1/2) x`. With `signed`, a negative `x reverse(x)` becomes -1.
    pub(super) fn normalized<X: Number>(
        &self,
        x: &Parts<X>,
        parity: usize,
        signed: bool,
    ) -> Parts<X> {
        let products = &self.parities[parity];
        let (mut norm, mut q, c) = self.element(&products.times_reverse.of(x, x));
        if signed && norm.a.value() < 0.0 {
            // A versor has no 4-vector here but for rounding, whose square has any sign. The square stays.
            norm.a = -norm.a;
            q = self.map(&q, |_, value| -value);
        }
        let [_, over] = norm.root(c);
        self.scaled(over, x, &products.four_times.of(&q, x))
    }

    /// `reverse(x) (x reverse(x))^(-1)`.
    pub(super) fn inverse<X: Number>(&self, x: &Parts<X>, parity: usize) -> Parts<X> {
        let products = &self.parities[parity];
        let (norm, q, c) = self.element(&products.times_reverse.of(x, x));
        // The 4-vector does not commute with all of x: reverse(x) r is the reverse of r x.
        let result = self.scaled(norm.inverse(c), x, &products.four_times.of(&q, x));
        self.reversed(&result)
    }

    /// `a exp(t log(reverse(a) b))` of versors, with `-b` in place of `b` if that is nearer.
    pub(super) fn interpolate<X: Number>(
        &self,
        [a, b]: [&Parts<X>; 2],
        t: X,
        parity: usize,
    ) -> Parts<X> {
        let products = &self.parities[parity];
        let [a, b] = [a, b].map(|x| self.normalized(x, parity, true));
        let mut between = products.pair.of(&self.reversed(&a), &b);
        if between[0].value() < 0.0 {
            between = self.map(&between, |_, value| -value);
        }
        let step = self.map(&self.log(&between), |_, value| t * value);
        products.turned.of(&a, &self.exp(&step))
    }

    /// A multivector of zeros.
    pub(super) fn zeros<X: Number>() -> Parts<X> {
        [X::constant(0.0); BLADES]
    }
}
