//! Involutions and the quadratic form, over every signature with p + q + r <= 6.

use cayley::Algebra;

use crate::support::{algebras, scaled};

/// Checks `f(ab) = f(a) f(b)`, or `f(b) f(a)` when `reversing`, on all pairs of blades.
fn assert_morphism(sign_of: fn(&Algebra, usize) -> i8, reversing: bool) {
    for algebra in algebras(6) {
        for a in 0..algebra.blade_count() {
            for b in 0..algebra.blade_count() {
                let image = algebra
                    .multiply(a, b)
                    .map(|(output, sign)| (output, sign * sign_of(&algebra, output)));
                let (first, second) = if reversing { (b, a) } else { (a, b) };
                let signs = sign_of(&algebra, a) * sign_of(&algebra, b);
                let product = scaled(algebra.multiply(first, second), signs);
                assert_eq!(image, product, "{} {a} {b}", algebra.signature());
            }
        }
    }
}

#[test]
fn reverse_is_an_antiautomorphism() {
    assert_morphism(Algebra::reverse_sign, true);
}

#[test]
fn grade_involution_is_an_automorphism() {
    assert_morphism(Algebra::grade_involution_sign, false);
}

#[test]
fn clifford_conjugate_is_an_antiautomorphism() {
    assert_morphism(Algebra::clifford_conjugate_sign, true);
}

#[test]
fn involutions_act_on_vectors_as_they_should() {
    for algebra in algebras(8) {
        for vector in algebra.grade_range(1) {
            assert_eq!(algebra.reverse_sign(vector), 1);
            assert_eq!(algebra.grade_involution_sign(vector), -1);
            assert_eq!(algebra.clifford_conjugate_sign(vector), -1);
        }
    }
}

#[test]
fn clifford_conjugate_is_reverse_and_grade_involution() {
    for algebra in algebras(8) {
        for a in 0..algebra.blade_count() {
            let both = algebra.reverse_sign(a) * algebra.grade_involution_sign(a);
            assert_eq!(algebra.clifford_conjugate_sign(a), both);
        }
    }
}

#[test]
fn signs_by_grade() {
    let algebra = Algebra::new(cayley::Signature::of(8, 0, 0));
    let signs = |sign_of: fn(&Algebra, usize) -> i8| -> Vec<i8> {
        (0..algebra.grade_count())
            .map(|grade| sign_of(&algebra, algebra.grade_range(grade).start))
            .collect()
    };
    assert_eq!(
        signs(Algebra::reverse_sign),
        [1, 1, -1, -1, 1, 1, -1, -1, 1]
    );
    assert_eq!(
        signs(Algebra::grade_involution_sign),
        [1, -1, 1, -1, 1, -1, 1, -1, 1]
    );
    assert_eq!(
        signs(Algebra::clifford_conjugate_sign),
        [1, -1, -1, 1, 1, -1, -1, 1, 1]
    );
}

#[test]
fn the_quadratic_form_is_the_scalar_of_reverse_times_self() {
    for algebra in algebras(8) {
        for a in 0..algebra.blade_count() {
            let product = scaled(algebra.multiply(a, a), algebra.reverse_sign(a));
            let expected = match algebra.square_of_blade_norm(a) {
                0 => None,
                sign => Some((0, sign)),
            };
            assert_eq!(product, expected, "{} {a}", algebra.signature());
        }
    }
}

/// The bilinear form `⟨~x y⟩_0` is diagonal on blades.
#[test]
fn distinct_blades_are_orthogonal() {
    for algebra in algebras(6) {
        for a in 0..algebra.blade_count() {
            for b in (0..algebra.blade_count()).filter(|&b| b != a) {
                assert!(algebra.multiply(a, b).is_none_or(|(output, _)| output != 0));
            }
        }
    }
}
