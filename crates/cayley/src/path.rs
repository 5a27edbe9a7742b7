//! Grade paths: the grade triples that each carry one weight in a weighted geometric product.

use std::collections::BTreeSet;
use std::fmt;

use crate::{Algebra, GradeSet, ProductKind};

/// A grade triple (left, output, right) of the geometric product.
///
/// Paths compare lexicographically in that order of fields, which is also the order of the weights.
/// A path displays as its three grades, e.g. `121`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Grade of the left operand.
    pub left: usize,
    /// Grade of the output.
    pub output: usize,
    /// Grade of the right operand.
    pub right: usize,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.left, self.output, self.right)
    }
}

impl Algebra {
    /// The grade triples with at least one non-zero geometric term, in lexicographic order.
    ///
    /// ```
    /// use cayley::{Algebra, Signature};
    ///
    /// let algebra = Algebra::new(Signature::new(2, 0, 0)?);
    /// let paths: Vec<_> = algebra.paths().iter().map(ToString::to_string).collect();
    /// assert_eq!(paths.join(" "), "000 011 022 101 110 112 121 202 211 220");
    /// # Ok::<(), cayley::Error>(())
    /// ```
    pub fn paths(&self) -> Vec<Path> {
        let full = GradeSet::full(self.dim());
        self.paths_between(full, full)
    }

    /// The paths whose left and right grades are present, in the order of [`Algebra::paths`].
    pub fn paths_between(&self, left_grades: GradeSet, right_grades: GradeSet) -> Vec<Path> {
        let terms = self.product_between(ProductKind::Geometric, left_grades, right_grades);
        let paths: BTreeSet<Path> = terms.into_iter().map(|term| self.path_of(term)).collect();
        paths.into_iter().collect()
    }
}
