//! The axioms of a Clifford algebra, over every signature with p + q + r <= 6.

use cayley::{Algebra, Blade};

use crate::support::{Signed, algebras, product_by_sorting, scaled, signatures};

#[test]
fn the_range_is_complete() {
    let dims: Vec<usize> = signatures(6).iter().map(|s| s.dim()).collect();
    let total = |factors: usize| -> usize { dims.iter().map(|&n| 1 << (n * factors)).sum() };
    assert_eq!(dims.len(), 84);
    assert_eq!(total(2), 140_781, "blade products");
    assert_eq!(total(3), 8_095_129, "associativity triples");
}

#[test]
fn one_is_the_identity() {
    for algebra in algebras(8) {
        for a in 0..algebra.blade_count() {
            assert_eq!(algebra.multiply(0, a), Some((a, 1)));
            assert_eq!(algebra.multiply(a, 0), Some((a, 1)));
        }
    }
}

#[test]
fn vectors_square_to_the_metric() {
    for algebra in algebras(8) {
        let signature = algebra.signature();
        let mut squares = [0; 3];
        for (position, vector) in algebra.grade_range(1).enumerate() {
            let square = algebra.multiply(vector, vector);
            let expected = match signature.square(position) {
                0 => None,
                sign => Some((0, sign)),
            };
            assert_eq!(square, expected, "{signature} vector {position}");
            // The order is null first, then positive, then negative.
            squares[match square {
                None => 0,
                Some((_, 1)) => 1,
                Some(_) => 2,
            }] += 1;
        }
        assert_eq!(squares, [signature.r(), signature.p(), signature.q()]);
    }
}

#[test]
fn distinct_vectors_anticommute() {
    for algebra in algebras(8) {
        for a in algebra.grade_range(1) {
            for b in algebra.grade_range(1).filter(|&b| b != a) {
                let product = algebra.multiply(a, b);
                assert!(product.is_some_and(|(output, _)| algebra.grade_of(output) == 2));
                assert_eq!(product, scaled(algebra.multiply(b, a), -1));
            }
        }
    }
}

#[test]
fn a_blade_is_the_ordered_product_of_its_vectors() {
    for algebra in algebras(8) {
        for (index, blade) in algebra.blades().iter().enumerate() {
            let product = blade
                .vectors()
                .map(|vector| algebra.index_of(Blade(1 << vector)))
                .try_fold((0, 1), |(left, sign), vector| {
                    scaled(algebra.multiply(left, vector), sign)
                });
            assert_eq!(product, Some((index, 1)), "{}", algebra.signature());
        }
    }
}

#[test]
fn products_equal_sorting_by_exchanges() {
    let mut products = 0;
    for algebra in algebras(6) {
        for a in 0..algebra.blade_count() {
            for b in 0..algebra.blade_count() {
                let expected = product_by_sorting(&algebra, a, b);
                assert_eq!(algebra.multiply(a, b), expected, "{}", algebra.signature());
                products += 1;
            }
        }
    }
    assert_eq!(products, 140_781);
}

#[test]
fn the_product_is_associative() {
    let mut triples = 0;
    for algebra in algebras(6) {
        let count = algebra.blade_count();
        let table = table(&algebra);
        let multiply = |a: usize, b: usize| table[a * count + b];
        for a in 0..count {
            for b in 0..count {
                let ab = multiply(a, b);
                for c in 0..count {
                    let left = ab.and_then(|(d, sign)| scaled(multiply(d, c), sign));
                    let right = multiply(b, c).and_then(|(d, sign)| scaled(multiply(a, d), sign));
                    assert_eq!(left, right, "{} ({a} {b}) {c}", algebra.signature());
                    triples += 1;
                }
            }
        }
    }
    assert_eq!(triples, 8_095_129);
}

/// In dimensions 7 and 8 the third factor is a vector. With blades being ordered products of their
/// vectors, this determines the whole table by induction on the grade of the right factor.
#[test]
fn the_product_with_a_vector_is_associative_in_seven_and_eight_dimensions() {
    let mut signatures = 0;
    for algebra in algebras(8).filter(|algebra| algebra.dim() > 6) {
        signatures += 1;
        let count = algebra.blade_count();
        let table = table(&algebra);
        let multiply = |a: usize, b: usize| table[a * count + b];
        for a in 0..count {
            for b in 0..count {
                let ab = multiply(a, b);
                for c in algebra.grade_range(1) {
                    let left = ab.and_then(|(d, sign)| scaled(multiply(d, c), sign));
                    let right = multiply(b, c).and_then(|(d, sign)| scaled(multiply(a, d), sign));
                    assert_eq!(left, right, "{} ({a} {b}) {c}", algebra.signature());
                }
            }
        }
    }
    assert_eq!(signatures, 36 + 45);
}

/// All products of an algebra, row by row.
fn table(algebra: &Algebra) -> Vec<Signed> {
    let count = algebra.blade_count();
    (0..count * count)
        .map(|pair| algebra.multiply(pair / count, pair % count))
        .collect()
}
