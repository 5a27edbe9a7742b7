//! Compares the derived products with their definitions, computed from the product by sorting.

use std::collections::BTreeSet;

use cayley::{Algebra, GradeSet, ProductKind, Signature, Term};

use crate::support::{Signed, algebras, part, product_by_sorting, scaled};

/// Checks every pair of blades of every signature with p + q + r <= 6.
fn assert_all(kind: ProductKind, definition: impl Fn(&Algebra, usize, usize) -> Signed) {
    let mut products = 0;
    for algebra in algebras(6) {
        for a in 0..algebra.blade_count() {
            for b in 0..algebra.blade_count() {
                let expected = definition(&algebra, a, b);
                let found = algebra.multiply_with(kind, a, b);
                assert_eq!(found, expected, "{} {kind} {a} {b}", algebra.signature());
                products += 1;
            }
        }
    }
    assert_eq!(products, 140_781);
}

/// The part of `ab` whose grade is `grade(gr a, gr b)`.
fn product_part(algebra: &Algebra, a: usize, b: usize, grade: fn(isize, isize) -> isize) -> Signed {
    let (g, h) = (algebra.grade_of(a) as isize, algebra.grade_of(b) as isize);
    part(algebra, product_by_sorting(algebra, a, b), grade(g, h))
}

#[test]
fn geometric_is_the_product() {
    assert_all(ProductKind::Geometric, product_by_sorting);
}

#[test]
fn exterior_is_the_grade_raising_part() {
    assert_all(ProductKind::Exterior, |algebra, a, b| {
        product_part(algebra, a, b, |g, h| g + h)
    });
}

#[test]
fn left_contraction_is_the_part_of_grade_difference() {
    assert_all(ProductKind::LeftContraction, |algebra, a, b| {
        product_part(algebra, a, b, |g, h| h - g)
    });
}

#[test]
fn right_contraction_is_the_part_of_grade_difference() {
    assert_all(ProductKind::RightContraction, |algebra, a, b| {
        product_part(algebra, a, b, |g, h| g - h)
    });
}

#[test]
fn scalar_is_the_part_of_grade_zero() {
    assert_all(ProductKind::Scalar, |algebra, a, b| {
        product_part(algebra, a, b, |_, _| 0)
    });
}

#[test]
fn commutator_is_half_the_difference() {
    assert_all(ProductKind::Commutator, |algebra, a, b| {
        let mut difference = vec![0i32; algebra.blade_count()];
        if let Some((output, sign)) = product_by_sorting(algebra, a, b) {
            difference[output] += i32::from(sign);
        }
        if let Some((output, sign)) = product_by_sorting(algebra, b, a) {
            difference[output] -= i32::from(sign);
        }
        assert!(difference.iter().all(|coefficient| coefficient % 2 == 0));
        let output = difference
            .iter()
            .position(|&coefficient| coefficient != 0)?;
        Some((output, (difference[output] / 2) as i8))
    });
}

/// `(c ∧ a) ∗ b = c ∗ (a ⌋ b)` and `b ∗ (a ∧ c) = (b ⌊ a) ∗ c`: the contractions are adjoint to the
/// exterior product.
#[test]
fn contractions_are_adjoint_to_the_exterior_product() {
    use ProductKind::{Exterior, LeftContraction, RightContraction, Scalar};
    for algebra in algebras(4) {
        let times = |kind, left: Signed, right: Signed| -> Signed {
            let ((left, s), (right, t)) = (left?, right?);
            scaled(algebra.multiply_with(kind, left, right), s * t)
        };
        let blades = || (0..algebra.blade_count()).map(|index| Some((index, 1)));
        for a in blades() {
            for b in blades() {
                let left = times(LeftContraction, a, b);
                let right = times(RightContraction, b, a);
                for c in blades() {
                    assert_eq!(
                        times(Scalar, times(Exterior, c, a), b),
                        times(Scalar, c, left)
                    );
                    assert_eq!(
                        times(Scalar, b, times(Exterior, a, c)),
                        times(Scalar, right, c)
                    );
                }
            }
        }
    }
}

/// `a × (b × c) + b × (c × a) + c × (a × b) = 0`.
#[test]
fn the_commutator_satisfies_the_jacobi_identity() {
    for algebra in algebras(4) {
        let nested = |a: usize, b: usize, c: usize| -> Signed {
            let (inner, sign) = algebra.multiply_with(ProductKind::Commutator, b, c)?;
            scaled(
                algebra.multiply_with(ProductKind::Commutator, a, inner),
                sign,
            )
        };
        let count = algebra.blade_count();
        for a in 0..count {
            for b in 0..count {
                for c in 0..count {
                    let mut sum = vec![0i32; count];
                    for (output, sign) in [nested(a, b, c), nested(b, c, a), nested(c, a, b)]
                        .into_iter()
                        .flatten()
                    {
                        sum[output] += i32::from(sign);
                    }
                    assert!(sum.iter().all(|&coefficient| coefficient == 0));
                }
            }
        }
    }
}

#[test]
fn tables_list_the_non_zero_products_in_order() {
    for algebra in algebras(5) {
        for kind in ProductKind::ALL {
            let mut expected = Vec::new();
            for left in 0..algebra.blade_count() {
                for right in 0..algebra.blade_count() {
                    if let Some((output, sign)) = algebra.multiply_with(kind, left, right) {
                        expected.push(Term {
                            left,
                            right,
                            output,
                            sign,
                        });
                    }
                }
            }
            assert_eq!(algebra.product(kind), expected);
            assert!(expected.is_sorted());
        }
    }
}

#[test]
fn term_counts() {
    let terms = |p, q, r| {
        Algebra::new(Signature::of(p, q, r))
            .product(ProductKind::Geometric)
            .len()
    };
    assert_eq!(terms(0, 0, 0), 1);
    assert_eq!(terms(2, 0, 0), 16);
    assert_eq!(terms(3, 0, 0), 64);
    assert_eq!(terms(3, 0, 1), 192);
    assert_eq!(terms(1, 3, 0), 256);
    assert_eq!(terms(4, 1, 0), 1024);
    // A pair of blades is non-zero if each null vector is in at most one (3 of 4 choices).
    for algebra in algebras(6) {
        let signature = algebra.signature();
        let expected =
            4usize.pow((signature.p() + signature.q()) as u32) * 3usize.pow(signature.r() as u32);
        assert_eq!(algebra.product(ProductKind::Geometric).len(), expected);
        let exterior = algebra.product(ProductKind::Exterior).len();
        assert_eq!(exterior, 3usize.pow(algebra.dim() as u32));
    }
}

#[test]
fn restricted_products_are_the_terms_of_present_grades() {
    for (p, q, r) in [(2, 0, 0), (3, 0, 0), (3, 0, 1), (1, 3, 0), (1, 1, 1)] {
        let algebra = Algebra::new(Signature::of(p, q, r));
        let subsets = || {
            (0..1usize << algebra.grade_count()).map(|bits| {
                let grades: Vec<usize> = (0..algebra.grade_count())
                    .filter(|grade| bits >> grade & 1 == 1)
                    .collect();
                GradeSet::of(&grades)
            })
        };
        for kind in ProductKind::ALL {
            let all = algebra.product(kind);
            for lefts in subsets() {
                for rights in subsets() {
                    let expected: Vec<Term> = all
                        .iter()
                        .copied()
                        .filter(|term| lefts.contains(algebra.grade_of(term.left)))
                        .filter(|term| rights.contains(algebra.grade_of(term.right)))
                        .collect();
                    assert_eq!(algebra.product_between(kind, lefts, rights), expected);
                    let reached: BTreeSet<usize> = expected
                        .iter()
                        .map(|term| algebra.grade_of(term.output))
                        .collect();
                    let reachable = algebra.reachable(kind, lefts, rights);
                    assert!(reachable.iter().eq(reached));
                }
            }
        }
    }
}

#[test]
fn reachable_grades_of_common_products() {
    let algebra = Algebra::new(Signature::of(3, 0, 1));
    let reach = |kind, left: &[usize], right: &[usize]| {
        algebra
            .reachable(kind, GradeSet::of(left), GradeSet::of(right))
            .to_string()
    };
    assert_eq!(reach(ProductKind::Geometric, &[1], &[1]), "0,2");
    assert_eq!(
        reach(ProductKind::Geometric, &[0, 2, 4], &[0, 2, 4]),
        "0,2,4"
    );
    assert_eq!(reach(ProductKind::Geometric, &[4], &[4]), "none");
    assert_eq!(reach(ProductKind::Exterior, &[1], &[2]), "3");
    assert_eq!(reach(ProductKind::Exterior, &[3], &[2]), "none");
    assert_eq!(reach(ProductKind::Regressive, &[3], &[3]), "2");
    assert_eq!(reach(ProductKind::LeftContraction, &[1], &[3]), "2");
    assert_eq!(reach(ProductKind::RightContraction, &[1], &[3]), "none");
    assert_eq!(reach(ProductKind::Commutator, &[2], &[2]), "2");
}
