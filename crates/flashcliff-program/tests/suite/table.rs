//! Operators by name and grades: every compiled one is found, and so is what no build compiles.

use std::collections::BTreeSet;

use cayley::GradeSet;
use flashcliff_program::ir::Node;
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
fn names_are_those_that_the_library_asks_for() {
    let space = algebra(1, 1, 0);
    let names: BTreeSet<String> = spec::operators(&space)
        .into_iter()
        .map(|operator| operator.program.name)
        .collect();
    let expected = "clifford_conjugate commutator_product dual exterior_product gate gate_pair \
        geometric_product grade_invariant grade_involution grade_norm grade_norms grade_rms left_contraction \
        mv_layer_norm mv_silu_mag2 mv_silu_norm norm path_product regressive_product reverse right_contraction \
        sandwich scalar_product sgp sgp_invariant sgp_rms steerable_product steerable_product_first_order \
        steerable_product_norm steerable_product_norm_first_order undo_grade_invariant undo_grade_rms undual";
    assert_eq!(
        names,
        expected.split_whitespace().map(str::to_owned).collect()
    );
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
