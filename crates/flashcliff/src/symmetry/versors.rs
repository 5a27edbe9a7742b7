//! Versors of an algebra, as reflections one after the other.

use cayley::Algebra;

use super::draws::Draws;

/// The vectors that reflections are taken along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vectors {
    /// All that are not null.
    Any,
    /// Combinations of basis vectors of one square, +1 or -1. Their reflections keep Euclidean lengths.
    OfOneSquare,
}

/// The smallest square of a vector, relative to that of its numbers. Reflections along vectors closer to a null vector
/// stretch so much that rounding shows.
const SHORTEST: f64 = 0.2;

/// A vector that is not null.
struct Reflection {
    vector: Vec<f64>,
    square: f64,
}

impl Reflection {
    fn draw(algebra: &Algebra, vectors: Vectors, draws: &mut Draws) -> Self {
        let squares: Vec<f64> = squares(algebra).collect();
        let signs: Vec<f64> = squares.iter().copied().filter(|s| *s != 0.0).collect();
        loop {
            let sign = signs[draws.below(signs.len())];
            let numbers = squares.iter().map(|&square| match vectors {
                Vectors::OfOneSquare if square != sign => 0.0,
                _ => draws.number(),
            });
            let vector: Vec<f64> = numbers.collect();
            let square: f64 = squares.iter().zip(&vector).map(|(s, x)| s * x * x).sum();
            let length: f64 = vector.iter().map(|x| x * x).sum();
            if square.abs() > SHORTEST * length {
                return Self { vector, square };
            }
        }
    }

    /// The multivector `v (x_even - x_odd) / v`.
    fn apply(&self, algebra: &Algebra, x: &[f64]) -> Vec<f64> {
        let mut left = vec![0.0; x.len()];
        let mut both = vec![0.0; x.len()];
        for (blade, x) in x.iter().enumerate() {
            let x = f64::from(algebra.grade_involution_sign(blade)) * x;
            self.add(&mut left, x, |vector| algebra.multiply(vector, blade));
        }
        for (blade, x) in left.iter().enumerate() {
            self.add(&mut both, x / self.square, |vector| {
                algebra.multiply(blade, vector)
            });
        }
        both
    }

    /// Adds the product of the vector and a number times a blade.
    fn add(&self, to: &mut [f64], number: f64, multiply: impl Fn(usize) -> Option<(usize, i8)>) {
        for (at, component) in self.vector.iter().enumerate() {
            // Vectors are the blades after the scalar.
            if let Some((blade, sign)) = multiply(1 + at) {
                to[blade] += f64::from(sign) * component * number;
            }
        }
    }
}

/// The squares of the basis vectors.
fn squares(algebra: &Algebra) -> impl Iterator<Item = f64> {
    let signature = algebra.signature();
    (0..algebra.dim()).map(move |vector| f64::from(signature.square(vector)))
}

/// How many basis vectors are not null.
pub(super) fn reflecting(algebra: &Algebra) -> usize {
    squares(algebra).filter(|square| *square != 0.0).count()
}

/// A product of reflections along random vectors.
pub(super) struct Versor(Vec<Reflection>);

impl Versor {
    /// A product of so many reflections.
    pub(super) fn draw(
        algebra: &Algebra,
        vectors: Vectors,
        count: usize,
        draws: &mut Draws,
    ) -> Self {
        let draw = |_| Reflection::draw(algebra, vectors, draws);
        Self((0..count).map(draw).collect())
    }

    /// Acts on a tensor `[blades, lanes]`, with the index of each of its blades. These are all blades of some grades, which
    /// versors do not mix with others.
    pub(super) fn apply(&self, algebra: &Algebra, blades: &[usize], x: &[f64]) -> Vec<f64> {
        let lanes = x.len() / blades.len();
        let mut moved = x.to_vec();
        for lane in 0..lanes {
            let mut whole = vec![0.0; algebra.blade_count()];
            for (at, &blade) in blades.iter().enumerate() {
                whole[blade] = x[at * lanes + lane];
            }
            let reflect = |x: Vec<f64>, by: &Reflection| by.apply(algebra, &x);
            let whole = self.0.iter().fold(whole, reflect);
            for (at, &blade) in blades.iter().enumerate() {
                moved[at * lanes + lane] = whole[blade];
            }
        }
        moved
    }
}
