//! Signs that depend on one blade alone: the involutions and the quadratic form.

use crate::Algebra;
use crate::blade::parity_sign;

impl Algebra {
    /// Sign of the reverse, `(−1)^(g(g−1)/2)`: the order of the vectors is turned around.
    pub fn reverse_sign(&self, index: usize) -> i8 {
        let grade = self.grade_of(index) as u32;
        parity_sign(grade * grade.saturating_sub(1) / 2)
    }

    /// Sign of the grade involution, `(−1)^g`: every vector is negated.
    pub fn grade_involution_sign(&self, index: usize) -> i8 {
        parity_sign(self.grade_of(index) as u32)
    }

    /// Sign of the Clifford conjugate, `(−1)^(g(g+1)/2)`: reverse and grade involution together.
    pub fn clifford_conjugate_sign(&self, index: usize) -> i8 {
        let grade = self.grade_of(index) as u32;
        parity_sign(grade * (grade + 1) / 2)
    }

    /// Coefficient of the blade in the quadratic form `q(x) = ⟨~x x⟩_0`: the product of the squares of its vectors. It
    /// is 0 if one of them is null.
    pub fn square_of_blade_norm(&self, index: usize) -> i8 {
        self.blades()[index]
            .vectors()
            .map(|vector| self.signature().square(vector))
            .product()
    }
}
