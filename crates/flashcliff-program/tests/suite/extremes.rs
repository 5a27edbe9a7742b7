//! Names and grades of every kind: each is an operator or none, never a panic.

use cayley::{Algebra, GradeSet, Signature};
use flashcliff_program::selection;
use flashcliff_program::spec::{find, operators};

#[test]
fn operators_between_any_grades() {
    let sets: Vec<GradeSet> = [0_u16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 0x100, 0x1ff]
        .iter()
        .map(|bits| (0..9).filter(|grade| bits >> grade & 1 == 1).collect())
        .collect();
    for (p, q, r) in [(0, 0, 0), (0, 0, 1), (2, 0, 0), (1, 0, 1)] {
        let algebra = Algebra::new(Signature::of(p, q, r));
        let mut names: Vec<String> = operators(&algebra)
            .into_iter()
            .map(|o| o.program.name)
            .collect();
        names.sort();
        names.dedup();
        names.extend(["", "no_such_operator"].map(str::to_owned));
        for name in &names {
            for &left in &sets {
                for &right in &sets {
                    for output in [None, Some(left), Some(GradeSet::EMPTY)] {
                        let found = find(&algebra, name, left, right, output);
                        assert!(found.is_none_or(|found| !found.output.is_empty()));
                    }
                }
            }
        }
    }
}

#[test]
fn signatures_of_any_text() {
    for text in [
        "",
        ",",
        "1,1",
        "1,1,1,1",
        "-1,0,0",
        "9,0,0",
        "18446744073709551615,1,1",
        "99999999999999999999,0,0",
        "x",
    ] {
        assert!(selection::signature(text).is_err(), "{text}");
    }
}
