//! The invariant form by which a grade is normalised.

use crate::Algebra;

/// The signs with which the squares of the coefficients of one grade enter its invariant norm.
///
/// The form is `<x reverse(x)>_0`, up to a common sign. Every versor leaves it unchanged. Blades with a null vector do
/// not contribute to it. If no other blade is left, the pseudoscalar alone still has an invariant: a versor can only
/// change its sign, so its own square serves. See [`Algebra::invariant_form`].
///
/// ```
/// use cayley::{Algebra, Signature};
///
/// let spacetime = Algebra::new(Signature::new(1, 3, 0)?);
/// assert_eq!(spacetime.invariant_form(1).signs(), [1, -1, -1, -1]);
///
/// let projective = Algebra::new(Signature::new(3, 0, 1)?);
/// assert_eq!(projective.invariant_form(1).signs(), [0, 1, 1, 1]); // e0 is null
/// assert_eq!(projective.invariant_form(4).signs(), [1]); // the pseudoscalar
/// # Ok::<(), cayley::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InvariantForm {
    signs: Vec<i8>,
}

impl InvariantForm {
    /// A sign for each blade of the grade, in basis order; 0 for blades that are left out.
    pub fn signs(&self) -> &[i8] {
        &self.signs
    }

    /// Whether no blade is left: the grade has no invariant norm. Only algebras with two null vectors
    /// or more have such grades.
    pub fn is_zero(&self) -> bool {
        self.signs.iter().all(|&sign| sign == 0)
    }

    /// Whether all squares are added, so that the form is never negative.
    pub fn is_definite(&self) -> bool {
        self.signs.iter().all(|&sign| sign >= 0)
    }

    /// Whether the form is the sum of the squares of all coefficients, the Euclidean norm.
    pub fn is_euclidean(&self) -> bool {
        self.signs.iter().all(|&sign| sign == 1)
    }
}

impl Algebra {
    /// The invariant form of a grade. If all signs are negative, the form is returned with positive signs: `-q` has the
    /// magnitude of `q`.
    pub fn invariant_form(&self, grade: usize) -> InvariantForm {
        let blades = self.grade_range(grade);
        let mut signs: Vec<i8> = blades
            .map(|blade| self.square_of_blade_norm(blade))
            .collect();
        if signs.iter().all(|&sign| sign <= 0) {
            signs.iter_mut().for_each(|sign| *sign = -*sign);
        }
        if signs == [0] {
            signs = vec![1];
        }
        InvariantForm { signs }
    }

    /// Whether the invariant norm of every grade is the Euclidean one: the metric is definite.
    pub fn has_euclidean_norms(&self) -> bool {
        (0..self.grade_count()).all(|grade| self.invariant_form(grade).is_euclidean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signature;

    fn algebra(p: usize, q: usize, r: usize) -> Algebra {
        Algebra::new(Signature::new(p, q, r).unwrap())
    }

    #[test]
    fn norms_of_definite_metrics_are_euclidean_and_no_others() {
        for p in 0..=3 {
            for q in 0..=3 {
                for r in 0..=2 {
                    if (1..=6).contains(&(p + q + r)) {
                        // In one dimension the null vector is its own pseudoscalar.
                        let definite = r == 0 && (p == 0 || q == 0);
                        let single = p + q + r == 1;
                        let found = algebra(p, q, r).has_euclidean_norms();
                        assert_eq!(found, definite || single, "{p} {q} {r}");
                    }
                }
            }
        }
    }

    #[test]
    fn grades_of_mixed_sign_are_indefinite() {
        let spacetime = algebra(1, 3, 0);
        let definite: Vec<bool> = (0..=4)
            .map(|grade| spacetime.invariant_form(grade).is_definite())
            .collect();
        assert_eq!(definite, [true, false, false, false, true]);
    }

    #[test]
    fn only_two_null_vectors_leave_a_grade_without_a_norm() {
        let with_one = algebra(2, 0, 1);
        assert!((0..=3).all(|grade| !with_one.invariant_form(grade).is_zero()));
        // In grade 2 of Cl(1, 0, 2), each of the blades holds a null vector.
        let with_two = algebra(1, 0, 2);
        assert!(with_two.invariant_form(2).is_zero());
        assert!(!with_two.invariant_form(3).is_zero());
    }
}
