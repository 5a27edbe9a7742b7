//! Arguments of every kind: grades of no algebra, sets above the dimension, counts that overflow. Functions whose
//! documentation names no panic have none.

use cayley::{Algebra, Blade, Error, GradeSet, Group, ProductKind, Signature};

const KINDS: [ProductKind; 7] = [
    ProductKind::Geometric,
    ProductKind::Exterior,
    ProductKind::Regressive,
    ProductKind::LeftContraction,
    ProductKind::RightContraction,
    ProductKind::Scalar,
    ProductKind::Commutator,
];
const SIZES: [usize; 9] = [0, 1, 2, 8, 9, 255, 1 << 40, usize::MAX - 1, usize::MAX];

fn sets() -> Vec<GradeSet> {
    let all = (0..1_u16 << 9).step_by(7);
    all.map(|bits| (0..9).filter(|grade| bits >> grade & 1 == 1).collect())
        .collect()
}

#[test]
fn signatures_of_any_counts() {
    for p in SIZES {
        for q in SIZES {
            for r in SIZES {
                let made = Signature::new(p, q, r);
                let fits = p.saturating_add(q).saturating_add(r) <= Signature::MAX_DIM;
                assert_eq!(made.is_ok(), fits, "{p} {q} {r}");
                let text = format!("{p},{q},{r}");
                assert_eq!(text.parse::<Signature>().is_ok(), fits, "{text}");
            }
        }
    }
    for text in [
        "",
        ",",
        ",,",
        "cl",
        "Cl(",
        "cl999",
        "-1,0,0",
        "99999999999999999999,0,0",
        "\u{663},0,0",
    ] {
        assert!(text.parse::<Signature>().is_err(), "{text}");
    }
}

#[test]
fn grades_of_any_number() -> Result<(), Error> {
    for signature in [(0, 0, 0), (3, 0, 0), (1, 1, 1), (0, 0, 3)] {
        let algebra = Algebra::new(Signature::new(signature.0, signature.1, signature.2)?);
        for grade in SIZES {
            let inside = grade <= algebra.dim();
            assert_eq!(algebra.grade_range(grade).is_empty(), !inside);
            assert_eq!(algebra.invariant_form(grade).signs().is_empty(), !inside);
            assert!(!GradeSet::EMPTY.contains(grade));
            assert_eq!(
                GradeSet::try_of(&[grade]).is_ok(),
                grade <= Signature::MAX_DIM
            );
        }
        for mask in [0, 1, 7, 8, 1 << 8, u16::MAX] {
            let found = algebra.find(Blade(mask));
            assert_eq!(found.is_some(), usize::from(mask) < algebra.blade_count());
            let _ = (
                Blade(mask).grade(),
                Blade(mask).reordering_sign(Blade(u16::MAX)),
            );
        }
        let _ = [Group::Pin, Group::Spin].map(|group| algebra.equivariant_maps(group));
    }
    Ok(())
}

#[test]
fn sets_above_the_dimension() -> Result<(), Error> {
    let algebra = Algebra::new(Signature::new(1, 1, 1)?);
    for left in sets() {
        let _ = (
            algebra.check_grades(left),
            algebra.blades_in(left),
            left.blade_count(&algebra),
        );
        for blade in 0..algebra.blade_count() {
            let _ = algebra.offset_in(left, blade);
        }
        for right in sets().into_iter().step_by(5) {
            for kind in KINDS {
                let terms = algebra.product_between(kind, left, right);
                let reached = algebra.reachable(kind, left, right);
                assert_eq!(terms.is_empty(), reached.is_empty());
            }
            let _ = algebra.paths_between(left, right);
        }
    }
    Ok(())
}

#[test]
fn sets_are_made_of_lists_and_show_their_grades() {
    assert_eq!(GradeSet::from([2, 0, 2]), GradeSet::of(&[0, 2]));
    assert_eq!((1..=3).collect::<GradeSet>(), GradeSet::of(&[1, 2, 3]));
    assert_eq!(format!("{:?}", GradeSet::from([2, 0])), "GradeSet(0,2)");
    assert_eq!(
        format!("{:?}", Some(GradeSet::EMPTY)),
        "Some(GradeSet(none))"
    );
}
