//! Grade sets and storage restricted to them.

use cayley::{Error, GradeSet};

use crate::support::algebras;

fn subsets(max_grade: usize) -> impl Iterator<Item = GradeSet> {
    (0..1usize << (max_grade + 1)).map(move |bits| {
        let grades: Vec<usize> = (0..=max_grade).filter(|g| bits >> g & 1 == 1).collect();
        GradeSet::of(&grades)
    })
}

#[test]
fn sets_hold_what_they_were_given() {
    for (bits, set) in subsets(8).enumerate() {
        assert_eq!(usize::from(set.bits()), bits);
        assert_eq!(set.len(), set.iter().count());
        assert_eq!(set.is_empty(), bits == 0);
        assert!(set.iter().all(|grade| set.contains(grade)));
        assert!((0..20).filter(|&grade| set.contains(grade)).eq(set.iter()));
    }
}

#[test]
fn set_operations_act_grade_by_grade() {
    for a in subsets(4) {
        for b in subsets(4) {
            for grade in 0..=8 {
                let (in_a, in_b) = (a.contains(grade), b.contains(grade));
                assert_eq!(a.union(b).contains(grade), in_a || in_b);
                assert_eq!(a.intersection(b).contains(grade), in_a && in_b);
                assert_eq!(a.difference(b).contains(grade), in_a && !in_b);
            }
            assert_eq!(a.is_subset(b), a.iter().all(|grade| b.contains(grade)));
        }
    }
}

#[test]
fn named_sets() {
    for dim in 0..=8 {
        assert!(GradeSet::full(dim).iter().eq(0..=dim));
        assert!(GradeSet::even(dim).iter().eq((0..=dim).step_by(2)));
        assert!(GradeSet::odd(dim).iter().eq((1..=dim).step_by(2)));
        assert!(GradeSet::single(dim).iter().eq([dim]));
    }
    assert_eq!(GradeSet::default(), GradeSet::EMPTY);
    assert_eq!(GradeSet::of(&[2, 0, 2]), GradeSet::of(&[0, 2]));
}

#[test]
fn text_leads_back_to_the_set() {
    for set in subsets(8) {
        assert_eq!(set.to_string().parse(), Ok(set));
    }
    assert_eq!(" 2, 0 ".parse(), Ok(GradeSet::of(&[0, 2])));
    assert_eq!(GradeSet::of(&[3, 1]).to_string(), "1,3");
    assert_eq!(GradeSet::EMPTY.to_string(), "none");
}

#[test]
fn offsets_number_the_blades_of_the_set() {
    for algebra in algebras(5) {
        for set in subsets(algebra.dim()) {
            let blades = algebra.blades_in(set);
            assert!(blades.is_sorted_by(|a, b| a < b));
            assert_eq!(set.blade_count(&algebra), blades.len());
            for index in 0..algebra.blade_count() {
                let expected = blades.iter().position(|&blade| blade == index);
                assert_eq!(algebra.offset_in(set, index), expected);
                assert_eq!(expected.is_some(), set.contains(algebra.grade_of(index)));
            }
        }
    }
}

#[test]
fn grades_above_the_dimension_are_empty_and_reported() {
    for algebra in algebras(3) {
        let (n, set) = (algebra.dim(), GradeSet::of(&[0, 5]));
        assert_eq!(set.blade_count(&algebra), 1);
        assert_eq!(algebra.blades_in(set), [0]);
        let error = Error::GradeOutOfRange { grade: 5, max: n };
        assert_eq!(algebra.check_grades(set), Err(error));
        assert_eq!(algebra.check_grades(GradeSet::full(n)), Ok(()));
    }
}
