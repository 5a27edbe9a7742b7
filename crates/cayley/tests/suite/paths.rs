//! Grade paths.

use cayley::{Algebra, GradeSet, Path, ProductKind, Signature};

use crate::support::{algebras, product_by_sorting};

/// Every grade triple, kept if any product of its blades lands in the output grade.
fn paths_by_search(algebra: &Algebra, lefts: GradeSet, rights: GradeSet) -> Vec<Path> {
    let mut paths = Vec::new();
    for left in lefts.iter() {
        for output in 0..algebra.grade_count() {
            for right in rights.iter() {
                let reached = algebra.grade_range(left).any(|a| {
                    algebra.grade_range(right).any(|b| {
                        product_by_sorting(algebra, a, b)
                            .is_some_and(|(c, _)| algebra.grade_of(c) == output)
                    })
                });
                if reached {
                    paths.push(Path {
                        left,
                        output,
                        right,
                    });
                }
            }
        }
    }
    paths
}

#[test]
fn paths_are_the_reached_grade_triples_in_order() {
    for algebra in algebras(6) {
        let full = GradeSet::full(algebra.dim());
        let paths = algebra.paths();
        assert_eq!(paths, paths_by_search(&algebra, full, full));
        assert!(paths.is_sorted());
    }
}

#[test]
fn restricted_paths_are_those_of_present_grades() {
    for (p, q, r) in [(3, 0, 0), (3, 0, 1), (1, 3, 0), (0, 1, 2)] {
        let algebra = Algebra::new(Signature::of(p, q, r));
        let n = algebra.dim();
        let sets = [
            GradeSet::EMPTY,
            GradeSet::full(n),
            GradeSet::even(n),
            GradeSet::odd(n),
            GradeSet::single(n),
            GradeSet::of(&[0, 1]),
        ];
        for lefts in sets {
            for rights in sets {
                let expected = paths_by_search(&algebra, lefts, rights);
                assert_eq!(algebra.paths_between(lefts, rights), expected);
            }
        }
    }
}

#[test]
fn every_term_lies_on_a_path() {
    for algebra in algebras(5) {
        let paths = algebra.paths();
        let mut used = vec![false; paths.len()];
        for term in algebra.product(ProductKind::Geometric) {
            let position = paths.binary_search(&algebra.path_of(term));
            used[position.expect("the term has a path")] = true;
        }
        assert!(used.into_iter().all(|used| used));
    }
}

/// `C(n+3, 3)` without null vectors; fewer in a degenerate algebra.
#[test]
fn path_counts() {
    let count = |signature: Signature| Algebra::new(signature).paths().len();
    for algebra in algebras(6) {
        let signature = algebra.signature();
        let binomial = [1, 4, 10, 20, 35, 56, 84][signature.dim()];
        if signature.r() == 0 {
            assert_eq!(count(signature), binomial, "{signature}");
        } else {
            assert!(count(signature) < binomial, "{signature}");
        }
    }
    assert_eq!(count(Signature::of(1, 0, 0)), 4);
    assert_eq!(count(Signature::of(2, 0, 0)), 10);
    assert_eq!(count(Signature::of(3, 0, 0)), 20);
    assert_eq!(count(Signature::of(3, 0, 1)), 34);
}

/// The weight order of CGENN and flash-clifford in three dimensions.
#[test]
fn paths_in_three_dimensions() {
    let paths: Vec<String> = Algebra::new(Signature::of(3, 0, 0))
        .paths()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        paths.join(" "),
        "000 011 022 033 101 110 112 121 123 132 202 211 213 220 222 231 303 312 321 330"
    );
}

#[test]
fn projective_geometry_lacks_the_square_of_the_pseudoscalar() {
    let degenerate = Algebra::new(Signature::of(3, 0, 1)).paths();
    let missing: Vec<Path> = Algebra::new(Signature::of(4, 0, 0))
        .paths()
        .into_iter()
        .filter(|path| !degenerate.contains(path))
        .collect();
    let square = Path {
        left: 4,
        output: 0,
        right: 4,
    };
    assert_eq!(missing, [square]);
}
