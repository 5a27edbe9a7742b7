//! The products that rotors need, as lists of terms between blades.

use cayley::{Algebra, ProductKind};

use super::number::Number;

/// The blades of five dimensions.
pub(super) const BLADES: usize = 32;

/// A multivector by blade.
pub(super) type Parts<X> = [X; BLADES];

/// A term of a product.
#[derive(Clone, Copy, Debug)]
struct Term {
    left: usize,
    right: usize,
    output: usize,
    factor: f64,
}

/// A product between some grades.
#[derive(Clone, Debug)]
pub(super) struct Product(Vec<Term>);

impl Product {
    /// The parts with the grades `kept` of the product of `left` and `right`, the latter reversed if asked.
    pub(super) fn new(
        algebra: &Algebra,
        left: &[usize],
        right: &[usize],
        kept: &[usize],
        reverse_right: bool,
    ) -> Self {
        let grade = |blade: usize| algebra.grade_of(blade);
        let terms = algebra.product(ProductKind::Geometric).into_iter();
        let terms = terms.filter(|term| {
            left.contains(&grade(term.left))
                && right.contains(&grade(term.right))
                && kept.contains(&grade(term.output))
        });
        let term = |term: cayley::Term| {
            let reverse = if reverse_right {
                algebra.reverse_sign(term.right)
            } else {
                1
            };
            Term {
                left: term.left,
                right: term.right,
                output: term.output,
                factor: f64::from(term.sign * reverse),
            }
        };
        Self(terms.map(term).collect())
    }

    /// The product of a multivector with itself: its terms `x_i x_k` and `x_k x_i` are one, or none.
    pub(super) fn with_itself(self) -> Self {
        let mut joined: Vec<Term> = Vec::new();
        for term in self.0 {
            let (left, right) = (term.left.min(term.right), term.left.max(term.right));
            let same = |t: &&mut Term| (t.left, t.right, t.output) == (left, right, term.output);
            match joined.iter_mut().find(same) {
                Some(known) => known.factor += term.factor,
                None => joined.push(Term {
                    left,
                    right,
                    ..term
                }),
            }
        }
        joined.retain(|term| term.factor != 0.0);
        Self(joined)
    }

    /// The product of two multivectors.
    pub(super) fn of<X: Number>(&self, x: &Parts<X>, y: &Parts<X>) -> Parts<X> {
        let mut result = [X::constant(0.0); BLADES];
        for term in &self.0 {
            let product = (x[term.left] * y[term.right]).scale(term.factor);
            result[term.output] = result[term.output] + product;
        }
        result
    }
}
