//! The order, the grades and the names of the basis blades.

use cayley::{Algebra, Blade, Signature};

use crate::support::algebras;

#[test]
fn blades_stand_in_short_lex_order() {
    for algebra in algebras(8) {
        let key = |blade: &Blade| (blade.grade(), blade.vectors().collect::<Vec<_>>());
        assert!(algebra.blades().is_sorted_by(|a, b| key(a) < key(b)));
        assert_eq!(algebra.blades().len(), 1 << algebra.dim());
        assert_eq!(algebra.blade_count(), 1 << algebra.dim());
    }
}

#[test]
fn blades_order_themselves_like_the_basis() {
    let algebra = Algebra::new(Signature::of(8, 0, 0));
    assert!(algebra.blades().is_sorted_by(|a, b| a < b));
}

#[test]
fn indices_and_blades_correspond() {
    for algebra in algebras(8) {
        for (index, &blade) in algebra.blades().iter().enumerate() {
            assert_eq!(algebra.index_of(blade), index);
            assert_eq!(algebra.grade_of(index), blade.grade());
            assert_eq!(blade.grade(), blade.vectors().count());
        }
        assert_eq!(algebra.find(Blade(1 << algebra.dim())), None);
    }
}

#[test]
fn grade_ranges_partition_the_basis() {
    for algebra in algebras(8) {
        assert_eq!(algebra.grade_count(), algebra.dim() + 1);
        let mut next = 0;
        let mut binomial = 1;
        for grade in 0..algebra.grade_count() {
            let range = algebra.grade_range(grade);
            assert_eq!(range.start, next);
            assert_eq!(range.len(), binomial);
            assert!(range.clone().all(|index| algebra.grade_of(index) == grade));
            next = range.end;
            binomial = binomial * (algebra.dim() - grade) / (grade + 1);
        }
        assert_eq!(next, algebra.blade_count());
        assert!(algebra.grade_range(algebra.grade_count()).is_empty());
        assert!(algebra.grade_range(usize::MAX).is_empty());
    }
}

#[test]
fn the_complement_stands_at_the_mirrored_index() {
    for algebra in algebras(8) {
        let last = algebra.blade_count() - 1;
        for (index, blade) in algebra.blades().iter().enumerate() {
            let complement = Blade(blade.mask() ^ ((1 << algebra.dim()) - 1));
            assert_eq!(algebra.index_of(complement), last - index);
        }
    }
}

#[test]
fn names_start_at_zero_only_with_null_vectors() {
    let names = |p, q, r| -> String {
        let algebra = Algebra::new(Signature::of(p, q, r));
        let names: Vec<_> = (0..algebra.blade_count())
            .map(|index| algebra.blade_name(index))
            .collect();
        names.join(" ")
    };
    assert_eq!(names(0, 0, 0), "1");
    assert_eq!(names(0, 0, 1), "1 e0");
    assert_eq!(names(1, 1, 0), "1 e1 e2 e12");
    assert_eq!(names(3, 0, 0), "1 e1 e2 e3 e12 e13 e23 e123");
    assert_eq!(
        names(3, 0, 1),
        "1 e0 e1 e2 e3 e01 e02 e03 e12 e13 e23 e012 e013 e023 e123 e0123"
    );
}

#[test]
fn names_lead_back_to_indices() {
    for algebra in algebras(6) {
        for index in 0..algebra.blade_count() {
            let name = algebra.blade_name(index);
            assert_eq!(algebra.index_of_name(&name), Ok(index));
        }
    }
}

#[test]
#[should_panic(expected = "lies outside Cl(2,0,0)")]
fn a_foreign_blade_has_no_index() {
    Algebra::new(Signature::of(2, 0, 0)).index_of(Blade(0b100));
}
