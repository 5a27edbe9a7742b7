//! Operators by name and grades: every compiled one is found, and so is what no build compiles.

use std::collections::BTreeSet;

use cayley::GradeSet;
use flashcliff_program::ir::Node;
use flashcliff_program::operators::{self, ENTRIES, Settings};
use flashcliff_program::spec::{self, Operator};

use crate::support::algebra;

/// Signatures with one norm and with two, with null vectors, and with products that have no result.
const SIGNATURES: [(usize, usize, usize); 6] = [
    (1, 0, 0),
    (0, 0, 1),
    (2, 0, 0),
    (1, 1, 0),
    (3, 0, 1),
    (1, 3, 0),
];

fn nodes(operator: &Operator) -> Vec<Node> {
    let graph = &operator.program.graph;
    graph.ids().map(|id| graph.node(id)).collect()
}

#[test]
fn every_compiled_operator_is_found_by_its_key() {
    for (p, q, r) in SIGNATURES {
        let algebra = algebra(p, q, r);
        let mut keys = BTreeSet::new();
        for operator in spec::operators(&algebra) {
            let name = operator.program.name.as_str();
            let key = (operator.left, operator.right, Some(operator.output));
            let bits = [operator.left, operator.right, operator.output].map(GradeSet::bits);
            let what = format!("{name} {bits:?} of Cl({p},{q},{r})");
            let is_empty = operator.program.outputs.iter().all(|o| o.values.is_empty());
            let found = spec::find(&algebra, name, key.0, key.1, key.2);
            assert_eq!(found.is_none(), is_empty, "{what}");
            if let Some(found) = found {
                assert_eq!(found.program.name, name);
                assert_eq!(found.program.formula, operator.program.formula, "{what}");
                assert_eq!((found.left, found.right, Some(found.output)), key, "{what}");
                assert_eq!(nodes(&found), nodes(&operator), "{what}");
            }
            assert!(keys.insert((name.to_owned(), bits)), "{what} twice");
        }
    }
}

#[test]
fn every_choice_of_every_operator_has_a_program_of_its_list() {
    for (p, q, r) in SIGNATURES {
        let space = algebra(p, q, r);
        for entry in ENTRIES {
            let Some(lanes) = &entry.lanes else { continue };
            let names: Vec<&str> = lanes.names().collect();
            let mut chosen = BTreeSet::new();
            for settings in Settings::choices(&entry.row) {
                match lanes.program(entry, &space, &settings) {
                    Ok(name) => {
                        assert!(names.contains(&name), "{name}");
                        chosen.insert(name);
                    }
                    // Such a choice is an error, which no default is.
                    Err(setting) => assert_ne!(
                        settings.name(setting),
                        Settings::of(&entry.row).name(setting)
                    ),
                }
            }
            assert!(!chosen.is_empty(), "{}", entry.row.name);
        }
    }
}

#[test]
fn inputs_of_programs_are_those_of_rows() {
    let space = algebra(3, 0, 0);
    for operator in spec::lane_operators(&space) {
        let name = operator.program.name.as_str();
        let (entry, settings) = operators::of_program(&space, name).expect("an operator");
        let mut inputs: Vec<&str> = settings.inputs(&entry.row);
        let lanes = operator
            .program
            .inputs
            .iter()
            .map(|input| input.name.as_str());
        let params = operator
            .program
            .params
            .iter()
            .map(|param| param.name.as_str());
        let mut own: Vec<&str> = lanes.chain(params).collect();
        inputs.sort_unstable();
        own.sort_unstable();
        assert_eq!(inputs, own, "{name}");
    }
}

#[test]
fn names_of_operators_and_programs_are_unique() {
    let mut names: Vec<&str> = ENTRIES.iter().map(|entry| entry.row.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let lanes = ENTRIES.iter().filter_map(|entry| entry.lanes.as_ref());
    let mut programs: Vec<&str> = lanes.flat_map(|lanes| lanes.names()).collect();
    let count = programs.len();
    programs.extend([
        "gate_pair",
        "path_product",
        "undo_grade_rms",
        "undo_grade_invariant",
    ]);
    programs.sort_unstable();
    programs.dedup();
    assert_eq!(programs.len(), count + 4);
}

#[test]
fn grades_that_no_build_compiles_are_found_too() {
    let space = algebra(2, 0, 0);
    let [scalars, even] = [GradeSet::single(0), GradeSet::even(2)];
    // The algebra has one norm, so the other is made at run time only.
    let is_compiled = |name: &str| {
        let mut all = spec::operators(&space).into_iter();
        all.any(|operator| operator.program.name == name)
    };
    let found = |name, left, right| spec::find(&space, name, left, right, None);
    assert!(!is_compiled("sgp_invariant") && found("sgp_invariant", even, even).is_some());
    assert!(!is_compiled("grade_invariant") && found("grade_invariant", even, even).is_some());
    let product = found("sgp", scalars, even).expect("a product of any grades");
    assert_eq!(product.output, even);
    // These take full multivectors, have no such path, or do not exist.
    assert!(found("gate", even, even).is_none());
    assert!(found("steerable_product", even, even).is_none());
    assert!(found("path_product", scalars, scalars).is_none());
    assert!(spec::find(&space, "path_product", scalars, scalars, Some(scalars)).is_some());
    assert!(
        spec::find(
            &space,
            "path_product",
            scalars,
            scalars,
            Some(GradeSet::single(1))
        )
        .is_none()
    );
    assert!(found("exterior", even, even).is_none());
}
