//! The metric-free dual: right and left complements.

use crate::{Algebra, Blade};

impl Algebra {
    /// The dual, or right complement: the index and sign with `e_a ∧ dual(e_a) = I`.
    ///
    /// In `Cl(3,0,1)` this is the dual that projective-geometry networks use (GATr): the 16
    /// components are reversed and multiplied by the signs
    /// `+ | − + − + | + − + + − + | − + − + | +` at their new places.
    ///
    /// In odd dimension the dual is its own inverse; in even dimension applying it twice negates
    /// the odd grades, so [`Algebra::undual`] differs from it there. GATr's join is
    /// `dual(dual(x) ∧ dual(y))` with the dual outside too: it is the regressive product with the
    /// odd grades of the result negated.
    pub fn dual(&self, index: usize) -> (usize, i8) {
        let (blade, complement) = self.with_complement(index);
        (self.index_of(complement), blade.reordering_sign(complement))
    }

    /// The inverse of [`Algebra::dual`], or left complement: the index and sign with
    /// `undual(e_a) ∧ e_a = I`.
    pub fn undual(&self, index: usize) -> (usize, i8) {
        let (blade, complement) = self.with_complement(index);
        (self.index_of(complement), complement.reordering_sign(blade))
    }

    fn with_complement(&self, index: usize) -> (Blade, Blade) {
        let blade = self.blades()[index];
        let pseudoscalar = (1 << self.dim()) - 1;
        (blade, Blade(blade.mask() ^ pseudoscalar))
    }
}
