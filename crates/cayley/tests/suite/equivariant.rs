//! The maps that commute with a group, over every supported signature with p + q + r <= 6.

use cayley::{Algebra, EquivariantMap, Group, Signature};

use crate::commutant::{Images, equations, generators, rank};
use crate::support::{Signed, algebras, scaled};

fn is_supported(signature: Signature) -> bool {
    signature.p() + signature.q() >= 1 && signature.r() <= 1
}

/// Every supported algebra of up to six dimensions with both groups and their maps.
pub(crate) fn cases() -> impl Iterator<Item = (Algebra, Group, Vec<EquivariantMap>)> {
    let supported = algebras(6).filter(|algebra| is_supported(algebra.signature()));
    supported.flat_map(|algebra| {
        Group::ALL.map(|group| {
            let maps = algebra.equivariant_maps(group).expect("it is supported");
            (algebra.clone(), group, maps)
        })
    })
}

fn images(algebra: &Algebra, map: &EquivariantMap) -> Images {
    let mut images = vec![None; algebra.blade_count()];
    for entry in &map.entries {
        assert_eq!(images[entry.input], None, "a blade is read once");
        images[entry.input] = Some((entry.output, entry.sign));
    }
    images
}

fn apply(images: &Images, value: Signed) -> Signed {
    value.and_then(|(index, sign)| scaled(images[index], sign))
}

fn commute(a: &Images, b: &Images) -> bool {
    (0..a.len()).all(|blade| apply(a, b[blade]) == apply(b, a[blade]))
}

#[test]
fn maps_commute_with_the_generators_of_the_group() {
    for (algebra, group, maps) in cases() {
        for generator in generators(&algebra, group) {
            for map in &maps {
                let what = format!("{} {group} {map:?}", algebra.signature());
                assert!(commute(&images(&algebra, map), &generator), "{what}");
            }
        }
    }
}

#[test]
fn maps_are_independent_and_as_many_as_the_solutions() {
    for (algebra, group, maps) in cases() {
        let generators = generators(&algebra, group);
        for source in 0..algebra.grade_count() {
            for target in 0..algebra.grade_count() {
                let unknowns =
                    algebra.grade_range(source).len() * algebra.grade_range(target).len();
                let solutions = unknowns - rank(equations(&algebra, &generators, source, target));
                let found = maps
                    .iter()
                    .filter(|map| (map.source, map.target) == (source, target));
                let what = format!("{} {group} {target} <- {source}", algebra.signature());
                assert_eq!(found.count(), solutions, "{what}");
            }
        }
        let rows = maps.iter().map(|map| {
            let entries = map.entries.iter();
            entries
                .map(|e| ((e.output, e.input), i64::from(e.sign)))
                .collect()
        });
        assert_eq!(rank(rows), maps.len(), "{} {group}", algebra.signature());
    }
}

/// The entries are where the grades say, and in order.
#[test]
fn entries_lie_between_the_grades_of_their_map() {
    for (algebra, _, maps) in cases() {
        for map in &maps {
            assert!(map.entries.is_sorted() && !map.entries.is_empty());
            for entry in &map.entries {
                let grades = (
                    algebra.grade_of(entry.input),
                    algebra.grade_of(entry.output),
                );
                assert_eq!(grades, (map.source, map.target));
                assert_eq!(entry.sign.abs(), 1);
            }
        }
    }
}

#[test]
fn counts() {
    for (algebra, group, maps) in cases() {
        let n = algebra.dim();
        let expected = match (group, algebra.signature().r()) {
            (Group::Pin, 0) => n + 1,
            (Group::Pin, _) => 2 * n + 1,
            (Group::Spin, 0) => 2 * n + 2,
            (Group::Spin, _) => 3 * n + 4,
        };
        assert_eq!(maps.len(), expected, "{} {group}", algebra.signature());
    }
}

#[test]
fn any_other_sign_breaks_a_map() {
    let mut mutants = 0;
    for (algebra, group, maps) in cases() {
        let generators = generators(&algebra, group);
        for map in maps.iter().filter(|map| map.entries.len() > 1) {
            for position in 0..map.entries.len() {
                let mut mutant = map.clone();
                mutant.entries[position].sign *= -1;
                let mutant = images(&algebra, &mutant);
                let survives = generators
                    .iter()
                    .all(|generator| commute(&mutant, generator));
                assert!(!survives, "{} {group} {map:?}", algebra.signature());
                mutants += 1;
            }
        }
    }
    assert!(mutants > 1000, "{mutants}");
}
