//! The dual and the regressive product.

use cayley::{Algebra, ProductKind, Signature};

use crate::support::{Signed, algebras, scaled};

#[test]
fn undual_inverts_dual() {
    for algebra in algebras(8) {
        for a in 0..algebra.blade_count() {
            let (dual, sign) = algebra.dual(a);
            assert_eq!(scaled(Some(algebra.undual(dual)), sign), Some((a, 1)));
            let (undual, sign) = algebra.undual(a);
            assert_eq!(scaled(Some(algebra.dual(undual)), sign), Some((a, 1)));
        }
    }
}

#[test]
fn a_blade_and_its_complements_span_the_pseudoscalar() {
    for algebra in algebras(8) {
        let pseudoscalar = Some((algebra.blade_count() - 1, 1));
        for a in 0..algebra.blade_count() {
            let exterior = |left, right| algebra.multiply_with(ProductKind::Exterior, left, right);
            let (dual, sign) = algebra.dual(a);
            assert_eq!(scaled(exterior(a, dual), sign), pseudoscalar);
            let (undual, sign) = algebra.undual(a);
            assert_eq!(scaled(exterior(undual, a), sign), pseudoscalar);
        }
    }
}

/// `dual(dual(a)) = (−1)^(g(n−g)) a`.
#[test]
fn the_double_dual_negates_odd_grades_in_even_dimension() {
    for algebra in algebras(8) {
        let n = algebra.dim();
        for a in 0..algebra.blade_count() {
            let g = algebra.grade_of(a);
            let (dual, sign) = algebra.dual(a);
            let twice = scaled(Some(algebra.dual(dual)), sign);
            let expected = if g * (n - g) % 2 == 1 { -1 } else { 1 };
            assert_eq!(twice, Some((a, expected)));
        }
    }
}

/// GATr's dual in `Cl(3,0,1)`: reverse the 16 components, then multiply by these signs.
#[test]
fn the_dual_of_projective_geometry() {
    #[rustfmt::skip]
    const SIGNS: [i8; 16] = [1, -1, 1, -1, 1, 1, -1, 1, 1, -1, 1, -1, 1, -1, 1, 1];
    let algebra = Algebra::new(Signature::of(3, 0, 1));
    let mut written = [0; 16];
    for a in 0..16 {
        let (output, sign) = algebra.dual(a);
        assert_eq!(output, 15 - a);
        written[output] = sign;
    }
    assert_eq!(written, SIGNS);
}

/// GATr writes its join as `dual(dual(x) ∧ dual(y))`. The outer dual is not the inverse of the
/// inner ones, so the join is the regressive product with its odd grades negated.
#[test]
fn the_join_of_projective_geometry_is_regressive_up_to_odd_grades() {
    let algebra = Algebra::new(Signature::of(3, 0, 1));
    for x in 0..16 {
        for y in 0..16 {
            let ((x_dual, s), (y_dual, t)) = (algebra.dual(x), algebra.dual(y));
            let join = algebra
                .multiply_with(ProductKind::Exterior, x_dual, y_dual)
                .map(|(joined, u)| {
                    let (output, v) = algebra.dual(joined);
                    (
                        output,
                        s * t * u * v * algebra.grade_involution_sign(output),
                    )
                });
            assert_eq!(algebra.multiply_with(ProductKind::Regressive, x, y), join);
        }
    }
}

fn regressive(algebra: &Algebra, left: Signed, right: Signed) -> Signed {
    let ((left, s), (right, t)) = (left?, right?);
    let product = algebra.multiply_with(ProductKind::Regressive, left, right);
    scaled(product, s * t)
}

#[test]
fn the_dual_turns_regressive_into_exterior() {
    for algebra in algebras(6) {
        for a in 0..algebra.blade_count() {
            for b in 0..algebra.blade_count() {
                let product = algebra.multiply_with(ProductKind::Regressive, a, b);
                let image = product.and_then(|(c, sign)| scaled(Some(algebra.dual(c)), sign));
                let ((a_dual, s), (b_dual, t)) = (algebra.dual(a), algebra.dual(b));
                let exterior = algebra.multiply_with(ProductKind::Exterior, a_dual, b_dual);
                assert_eq!(image, scaled(exterior, s * t));
            }
        }
    }
}

#[test]
fn the_pseudoscalar_is_the_regressive_identity() {
    for algebra in algebras(8) {
        let pseudoscalar = Some((algebra.blade_count() - 1, 1));
        for a in (0..algebra.blade_count()).map(|a| Some((a, 1))) {
            assert_eq!(regressive(&algebra, pseudoscalar, a), a);
            assert_eq!(regressive(&algebra, a, pseudoscalar), a);
        }
    }
}

#[test]
fn the_regressive_product_is_associative() {
    for algebra in algebras(5) {
        let blades = || (0..algebra.blade_count()).map(|index| Some((index, 1)));
        for a in blades() {
            for b in blades() {
                let ab = regressive(&algebra, a, b);
                for c in blades() {
                    let bc = regressive(&algebra, b, c);
                    assert_eq!(regressive(&algebra, ab, c), regressive(&algebra, a, bc));
                }
            }
        }
    }
}

#[test]
fn regressive_grades_add_up_to_the_dimension() {
    for algebra in algebras(6) {
        for term in algebra.product(ProductKind::Regressive) {
            let (g, h) = (algebra.grade_of(term.left), algebra.grade_of(term.right));
            assert_eq!(algebra.grade_of(term.output) + algebra.dim(), g + h);
        }
    }
}

#[test]
fn duality_does_not_depend_on_the_metric() {
    for algebra in algebras(6) {
        let euclidean = Algebra::new(Signature::of(algebra.dim(), 0, 0));
        for kind in [ProductKind::Exterior, ProductKind::Regressive] {
            assert_eq!(algebra.product(kind), euclidean.product(kind));
        }
        for a in 0..algebra.blade_count() {
            assert_eq!(algebra.dual(a), euclidean.dual(a));
        }
    }
}
