//! Lists of the maps that commute with a group, written by hand, and what is refused.

use cayley::{Algebra, EquivariantMap, Error, Group, Signature};

fn maps(p: usize, q: usize, r: usize, group: Group) -> Vec<EquivariantMap> {
    let algebra = Algebra::new(Signature::of(p, q, r));
    algebra.equivariant_maps(group).expect("it is supported")
}

/// Checks maps against lines such as `2<-1: 5<-2 6<-3`: grades, then blades, with a `-` after negative ones.
fn assert_maps(found: &[EquivariantMap], expected: &[&str]) {
    let lines: Vec<String> = found
        .iter()
        .map(|map| {
            let entries = map.entries.iter().map(|entry| {
                let sign = if entry.sign < 0 { "-" } else { "" };
                format!(" {}<-{}{sign}", entry.output, entry.input)
            });
            format!(
                "{}<-{}:{}",
                map.target,
                map.source,
                entries.collect::<String>()
            )
        })
        .collect();
    assert_eq!(lines, expected);
}

const PROJECTIONS_OF_FOUR_DIMENSIONS: [&str; 5] = [
    "0<-0: 0<-0",
    "1<-1: 1<-1 2<-2 3<-3 4<-4",
    "2<-2: 5<-5 6<-6 7<-7 8<-8 9<-9 10<-10",
    "3<-3: 11<-11 12<-12 13<-13 14<-14",
    "4<-4: 15<-15",
];

/// The nine maps of GATr.
#[test]
fn projective_geometry_of_space() {
    let found = maps(3, 0, 1, Group::Pin);
    let (projections, others) = found.split_at(5);
    assert_maps(projections, &PROJECTIONS_OF_FOUR_DIMENSIONS);
    let expected = [
        "1<-0: 1<-0",
        "2<-1: 5<-2 6<-3 7<-4",
        "3<-2: 11<-8 12<-9 13<-10",
        "4<-3: 15<-14",
    ];
    assert_maps(others, &expected);
}

#[test]
fn projective_geometry_of_space_without_reflections() {
    let found = maps(3, 0, 1, Group::Spin);
    let (pin, others) = found.split_at(9);
    assert_eq!(pin, maps(3, 0, 1, Group::Pin));
    let expected = [
        "4<-0: 15<-0",
        "3<-1: 11<-4- 12<-3 13<-2-",
        "2<-2: 5<-10- 6<-9 7<-8-",
        "1<-3: 1<-14",
        "0<-3: 0<-14",
        "0<-4: 0<-15",
        "1<-4: 1<-15",
    ];
    assert_maps(others, &expected);
}

/// The five and ten maps of L-GATr.
#[test]
fn spacetime() {
    let pin = maps(1, 3, 0, Group::Pin);
    assert_maps(&pin, &PROJECTIONS_OF_FOUR_DIMENSIONS);
    let spin = maps(1, 3, 0, Group::Spin);
    assert_eq!(spin[..5], pin);
    let expected = [
        "4<-0: 15<-0",
        "3<-1: 11<-4 12<-3- 13<-2 14<-1",
        "2<-2: 5<-10- 6<-9 7<-8- 8<-7 9<-6- 10<-5",
        "1<-3: 1<-14- 2<-13- 3<-12 4<-11-",
        "0<-4: 0<-15-",
    ];
    assert_maps(&spin[5..], &expected);
}

#[test]
fn space_and_conformal_geometry() {
    for (p, q, pin, spin) in [(3, 0, 4, 8), (4, 1, 6, 12)] {
        assert_eq!(maps(p, q, 0, Group::Pin).len(), pin);
        assert_eq!(maps(p, q, 0, Group::Spin).len(), spin);
    }
}

/// Spin of one dimension is trivial: every map commutes. In the plane, `x I` turns vectors by a right angle.
#[test]
fn one_and_two_dimensions() {
    let line = ["0<-0: 0<-0", "1<-1: 1<-1", "1<-0: 1<-0", "0<-1: 0<-1"];
    assert_maps(&maps(1, 0, 0, Group::Spin), &line);
    let plane = maps(2, 0, 0, Group::Spin);
    assert_maps(
        &plane[3..],
        &["2<-0: 3<-0", "1<-1: 1<-2- 2<-1", "0<-2: 0<-3-"],
    );
}

#[test]
fn algebras_without_a_list_are_refused() {
    for (p, q, r) in [
        (0, 0, 0),
        (0, 0, 1),
        (0, 0, 2),
        (1, 0, 2),
        (3, 0, 2),
        (5, 0, 3),
    ] {
        let signature = Signature::of(p, q, r);
        for group in Group::ALL {
            let error = Error::NoEquivariantMaps { group, signature };
            assert_eq!(Algebra::new(signature).equivariant_maps(group), Err(error));
        }
    }
    let signature = Signature::of(1, 0, 2);
    let error = Error::NoEquivariantMaps {
        group: Group::Spin,
        signature,
    };
    assert_eq!(
        error.to_string(),
        "expected a signature with p + q >= 1 and r <= 1 to list the maps that commute with spin, \
         found Cl(1,0,2); the projections on single grades commute with it in every algebra"
    );
}

#[test]
fn group_names() {
    for group in Group::ALL {
        assert_eq!(group.name().parse(), Ok(group));
        assert_eq!(group.to_string(), group.name());
    }
    let error = "Pin".parse::<Group>().expect_err("not a name here");
    assert_eq!(
        error.to_string(),
        "expected a group, pin or spin; found `Pin`"
    );
}
