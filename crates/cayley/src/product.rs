//! The geometric product of basis blades and the products derived from it.

use std::fmt;
use std::str::FromStr;

use crate::blade::parity_sign;
use crate::{Algebra, Blade, Error, GradeSet, Path};

/// A bilinear product of multivectors. The [crate] page defines each on basis blades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProductKind {
    /// `ab`.
    Geometric,
    /// `a ∧ b`: spans both arguments, zero if they share a vector.
    Exterior,
    /// `a ∨ b = undual(dual(a) ∧ dual(b))`: the common part of both arguments, if together they span the space.
    Regressive,
    /// `a ⌋ b`: `⟨ab⟩` of grade `gr b − gr a`.
    LeftContraction,
    /// `a ⌊ b`: `⟨ab⟩` of grade `gr a − gr b`.
    RightContraction,
    /// `⟨ab⟩_0`, without a reverse.
    Scalar,
    /// `(ab − ba)/2`.
    Commutator,
}

impl ProductKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [ProductKind; 7] = [
        ProductKind::Geometric,
        ProductKind::Exterior,
        ProductKind::Regressive,
        ProductKind::LeftContraction,
        ProductKind::RightContraction,
        ProductKind::Scalar,
        ProductKind::Commutator,
    ];

    /// Name in snake case, e.g. `left_contraction`.
    pub const fn name(self) -> &'static str {
        match self {
            ProductKind::Geometric => "geometric",
            ProductKind::Exterior => "exterior",
            ProductKind::Regressive => "regressive",
            ProductKind::LeftContraction => "left_contraction",
            ProductKind::RightContraction => "right_contraction",
            ProductKind::Scalar => "scalar",
            ProductKind::Commutator => "commutator",
        }
    }
}

impl fmt::Display for ProductKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ProductKind {
    type Err = Error;

    /// Reads a [`ProductKind::name`].
    fn from_str(text: &str) -> Result<ProductKind, Error> {
        ProductKind::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| Error::UnknownProduct {
                found: text.to_owned(),
            })
    }
}

/// One non-zero entry of a product table: `e_left ∘ e_right` contributes `sign · e_output`.
///
/// Fields are indices into the full basis. Terms compare by (left, right).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// Index of the left blade.
    pub left: usize,
    /// Index of the right blade.
    pub right: usize,
    /// Index of the output blade.
    pub output: usize,
    /// +1 or −1.
    pub sign: i8,
}

impl Algebra {
    /// Geometric product of the blades at two indices: index and sign of the output blade, or
    /// `None` if the blades share a null vector.
    pub fn multiply(&self, left: usize, right: usize) -> Option<(usize, i8)> {
        let (a, b) = (self.blades()[left], self.blades()[right]);
        let shared = a.mask() & b.mask();
        if shared & self.signature().null_mask() != 0 {
            return None;
        }
        let metric = parity_sign((shared & self.signature().negative_mask()).count_ones());
        let output = self.index_of(Blade(a.mask() ^ b.mask()));
        Some((output, a.reordering_sign(b) * metric))
    }

    /// Product of any kind of the blades at two indices: index and sign of the output blade, or
    /// `None` if the product is zero.
    ///
    /// Two basis blades have at most one output blade under every kind.
    pub fn multiply_with(
        &self,
        kind: ProductKind,
        left: usize,
        right: usize,
    ) -> Option<(usize, i8)> {
        let (g, h) = (self.grade_of(left), self.grade_of(right));
        let of_grade = |grade: Option<usize>| {
            self.multiply(left, right)
                .filter(|&(output, _)| Some(self.grade_of(output)) == grade)
        };
        match kind {
            ProductKind::Geometric => self.multiply(left, right),
            // Grades add exactly when no vector is shared.
            ProductKind::Exterior => of_grade(Some(g + h)),
            ProductKind::LeftContraction => of_grade(h.checked_sub(g)),
            ProductKind::RightContraction => of_grade(g.checked_sub(h)),
            ProductKind::Scalar => of_grade(Some(0)),
            // Two blades either commute, and the difference is zero, or anticommute, and half of the difference is the
            // product itself.
            ProductKind::Commutator => self
                .multiply(left, right)
                .filter(|_| self.multiply(left, right) != self.multiply(right, left)),
            ProductKind::Regressive => self.regressive(left, right),
        }
    }

    /// All terms of a product in (left, right) order; zero terms are absent.
    ///
    /// ```
    /// use cayley::{Algebra, ProductKind, Signature};
    ///
    /// let algebra = Algebra::new(Signature::new(3, 0, 1)?);
    /// assert_eq!(algebra.product(ProductKind::Geometric).len(), 192);
    /// assert_eq!(algebra.product(ProductKind::Exterior).len(), 81);
    /// # Ok::<(), cayley::Error>(())
    /// ```
    pub fn product(&self, kind: ProductKind) -> Vec<Term> {
        let full = GradeSet::full(self.dim());
        self.product_between(kind, full, full)
    }

    /// The terms of a product between operands that carry only some grades, in (left, right)
    /// order. Indices are those of the full basis; see [`Algebra::offset_in`] for storage.
    pub fn product_between(
        &self,
        kind: ProductKind,
        left_grades: GradeSet,
        right_grades: GradeSet,
    ) -> Vec<Term> {
        let rights = self.blades_in(right_grades);
        let mut terms = Vec::new();
        for left in self.blades_in(left_grades) {
            for &right in &rights {
                if let Some((output, sign)) = self.multiply_with(kind, left, right) {
                    terms.push(Term {
                        left,
                        right,
                        output,
                        sign,
                    });
                }
            }
        }
        terms
    }

    /// Grades that a product of operands with the given grades can reach.
    ///
    /// ```
    /// use cayley::{Algebra, GradeSet, ProductKind, Signature};
    ///
    /// let algebra = Algebra::new(Signature::new(3, 0, 0)?);
    /// let vector = GradeSet::single(1);
    /// let product = algebra.reachable(ProductKind::Geometric, vector, vector);
    /// assert_eq!(product, GradeSet::of(&[0, 2]));
    /// # Ok::<(), cayley::Error>(())
    /// ```
    pub fn reachable(
        &self,
        kind: ProductKind,
        left_grades: GradeSet,
        right_grades: GradeSet,
    ) -> GradeSet {
        self.product_between(kind, left_grades, right_grades)
            .into_iter()
            .map(|term| GradeSet::single(self.grade_of(term.output)))
            .fold(GradeSet::EMPTY, GradeSet::union)
    }

    /// Grades that the sandwich `x y reverse(x)` can reach, of a versor `x` and an operand `y` with the given grades.
    ///
    /// The result behaves under the reverse like `y`. So among the grades of `x y` times `x`, only those remain whose sign
    /// under the reverse is that of some grade of `y`. A blade of these grades can still be zero for all operands.
    ///
    /// ```
    /// use cayley::{Algebra, GradeSet, Signature};
    ///
    /// let algebra = Algebra::new(Signature::new(3, 0, 0)?);
    /// let [even, vector] = [GradeSet::even(3), GradeSet::single(1)];
    /// assert_eq!(algebra.reachable_by_sandwich(even, vector), vector);
    /// # Ok::<(), cayley::Error>(())
    /// ```
    pub fn reachable_by_sandwich(
        &self,
        versor_grades: GradeSet,
        operand_grades: GradeSet,
    ) -> GradeSet {
        let kind = ProductKind::Geometric;
        let sign = |grade: usize| self.reverse_sign(self.grade_range(grade).start);
        let half = self.reachable(kind, versor_grades, operand_grades);
        let reached = self.reachable(kind, half, versor_grades);
        let kept = reached
            .iter()
            .filter(|&g| operand_grades.iter().any(|o| sign(o) == sign(g)));
        kept.fold(GradeSet::EMPTY, |set, g| set.union(GradeSet::single(g)))
    }

    /// The grade triple of a term.
    pub fn path_of(&self, term: Term) -> Path {
        Path {
            left: self.grade_of(term.left),
            output: self.grade_of(term.output),
            right: self.grade_of(term.right),
        }
    }

    fn regressive(&self, left: usize, right: usize) -> Option<(usize, i8)> {
        let (left, left_sign) = self.dual(left);
        let (right, right_sign) = self.dual(right);
        let (joined, sign) = self.multiply_with(ProductKind::Exterior, left, right)?;
        let (output, output_sign) = self.undual(joined);
        Some((output, left_sign * right_sign * sign * output_sign))
    }
}
