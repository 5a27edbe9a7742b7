//! The formulas of the operators in f64, one batch element at a time, from the Cayley table alone.
//!
//! * `products` - products, weighted or not, and linear maps.
//! * `norms` - gates, norms and nonlinearities.

mod norms;
mod products;

use cayley::{Algebra, Path, ProductKind, Term};

use crate::Error;

pub use norms::sigmoid;

/// A formula: the inputs of a batch element, and the channels of input and output.
type Row = fn(&Formula<'_>, &[Vec<f64>], usize, usize) -> Vec<f64>;

/// The formula of an operator with the defaults of its options, with the tables of an algebra.
#[derive(Clone, Debug)]
pub struct Formula<'a> {
    row: Row,
    algebra: &'a Algebra,
    /// The terms of the geometric product, with the numbers of their paths.
    terms: Vec<(Term, usize)>,
    paths: Vec<Path>,
}

/// The formulas by name.
fn find(operator: &str) -> Option<Row> {
    Some(match operator {
        "sgp_norm" => |f, i, c, _| {
            let (x, y) = (f.gelu(&i[0], c), f.gelu(&i[1], c));
            f.rms(&f.weighted(&x, &y, &i[2], c), c)
        },
        "fcgp_norm" => |f, i, from, to| {
            let (x, y) = (f.gelu(&i[0], from), f.gelu(&i[1], from));
            f.rms(&f.connected(&x, &y, &i[2], from, to), to)
        },
        "mv_linear" => |f, i, from, to| f.linear(&i[0], &i[1], Some(&i[2]), from, to),
        "mv_linear_sgp_norm" => |f, i, c, _| {
            let y = f.linear(&i[0], &i[1], Some(&i[2]), c, c);
            let (x, y) = (f.gelu(&i[0], c), f.gelu(&y, c));
            f.rms(&f.weighted(&x, &y, &i[3], c), c)
        },
        "grade_norm" => |f, i, c, _| f.grade_norm(&i[0], &i[1], c),
        "steerable_product" => |f, i, c, _| f.steerable(&i[0], &i[1], &i[2], &i[3], &i[4], c),
        "mv_silu" => |f, i, c, _| f.silu(&i[0], &i[1], &i[2], c),
        "mv_layer_norm" => |f, i, c, _| f.layer_norm(&i[0], &i[1], c),
        "product" => |f, i, c, _| f.product(&i[0], &i[1], c),
        "sandwich" => |f, i, c, _| {
            let reversed = f.signed(&i[0], c, |blade| f.algebra.reverse_sign(blade));
            f.product(&f.product(&i[0], &i[1], c), &reversed, c)
        },
        "reverse" => |f, i, c, _| f.signed(&i[0], c, |blade| f.algebra.reverse_sign(blade)),
        "grade_involution" => {
            |f, i, c, _| f.signed(&i[0], c, |blade| f.algebra.grade_involution_sign(blade))
        }
        "clifford_conjugate" => {
            |f, i, c, _| f.signed(&i[0], c, |blade| f.algebra.clifford_conjugate_sign(blade))
        }
        "dual" => |f, i, c, _| f.moved(&i[0], c, |blade| f.algebra.dual(blade)),
        "undual" => |f, i, c, _| f.moved(&i[0], c, |blade| f.algebra.undual(blade)),
        "norm" => |f, i, c, _| f.norm(&i[0], c),
        "grade_norms" => |f, i, c, _| f.grade_norms(&i[0], c),
        "gate" => |f, i, c, _| f.gelu(&i[0], c),
        "grade_rms" => |f, i, c, _| f.rms(&i[0], c),
        _ => return None,
    })
}

impl<'a> Formula<'a> {
    /// The formula of an operator of the table.
    ///
    /// # Errors
    /// [`Error::NoFormula`].
    pub fn new(operator: &'static str, algebra: &'a Algebra) -> Result<Self, Error> {
        let paths = algebra.paths();
        let numbered = |term: Term| {
            let path = algebra.path_of(term);
            let number = paths.iter().position(|p| *p == path);
            (term, number.unwrap_or(usize::MAX))
        };
        let terms = algebra.product(ProductKind::Geometric);
        Ok(Self {
            row: find(operator).ok_or(Error::NoFormula { operator })?,
            algebra,
            terms: terms.into_iter().map(numbered).collect(),
            paths,
        })
    }

    /// The output `[components, to]` of one batch element. Multivectors are `[blades, from]`; parameters have the layout of the operator.
    pub fn row(&self, inputs: &[Vec<f64>], from: usize, to: usize) -> Vec<f64> {
        (self.row)(self, inputs, from, to)
    }
}

#[cfg(test)]
mod tests {
    use cayley::Signature;
    use flashcliff::ops::TABLE;

    use super::*;

    #[test]
    fn every_operator_of_the_table_has_a_formula() {
        let algebra = Algebra::new(Signature::of(2, 0, 0));
        for operator in TABLE {
            Formula::new(operator.name, &algebra).unwrap();
        }
        let error = Formula::new("nothing", &algebra).unwrap_err();
        assert!(error.to_string().contains("nothing: expected a formula"));
    }
}
