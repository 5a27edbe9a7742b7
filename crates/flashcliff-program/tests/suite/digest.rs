//! The digest of a program: what changes it, and what does not.

use std::collections::BTreeMap;

use flashcliff_program::ir::{Function, Program, Uniform, differentiate};
use flashcliff_program::spec;

use crate::support::algebra;

fn labels(count: usize) -> Vec<String> {
    (0..count).map(|k| format!("c{k}")).collect()
}

/// A program with every kind of part: `o = x / sqrt(mean(x^2) + eps) w`, by way of a cut.
fn example(change: impl Fn(&mut Program)) -> Program {
    let mut program = Program::new("example", "o = ...");
    let x = program.input("x", labels(2));
    let w = program.param("w", 2);
    let square = program.graph.mul(x[0], x[0]);
    let sum = program.row_sum(square);
    let inverse = program.graph.uniform(Uniform::InvChannels);
    let mean = program.graph.mul(sum, inverse);
    let eps = program.graph.uniform(Uniform::Eps);
    let padded = program.graph.add(mean, eps);
    let root = program.graph.call(Function::Sqrt, padded);
    let kept = program.cut(vec![x[0], x[1]]);
    let mut values = Vec::new();
    for (x, w) in kept.into_iter().zip(w) {
        let scaled = program.graph.div(x, root);
        values.push(program.graph.mul(scaled, w));
    }
    program.output("o", labels(2), values);
    change(&mut program);
    program
}

#[test]
fn names_do_not_count() {
    let plain = example(|_| {}).digest();
    let renamed = example(|program| {
        program.name = "other".to_owned();
        program.formula = String::new();
        program.inputs[0].name = "left".to_owned();
        program.inputs[0].components = labels(2).into_iter().rev().collect();
        program.params[0].name = "weight".to_owned();
        program.outputs[0].tensor.name = "result".to_owned();
    });
    assert_eq!(renamed.digest(), plain);
    let gradients = [&renamed, &example(|_| {})].map(|program| differentiate(program).digest());
    assert_eq!(gradients[0], gradients[1]);
}

/// A part of a program, and what changes it.
type Change = (&'static str, fn(&mut Program));

#[test]
fn every_part_counts() {
    let changes: [Change; 12] = [
        ("an expression", |p| {
            p.graph.constant(3.0);
        }),
        ("another expression", |p| {
            p.graph.constant(4.0);
        }),
        ("the size of an input", |p| {
            p.inputs[0].components.push("c2".to_owned())
        }),
        ("an input", |p| {
            p.input("y", labels(1));
        }),
        ("the size of a parameter", |p| p.params[0].count += 1),
        ("a parameter", |p| {
            p.param("v", 1);
        }),
        ("the order of arguments", |p| p.arguments.reverse()),
        ("the order of an output", |p| p.outputs[0].values.reverse()),
        ("an output", |p| p.outputs.push(p.outputs[0].clone())),
        ("the order of a cut", |p| p.cuts[0].reverse()),
        ("saved sums", |p| p.saved_row_sums = 1),
        ("a sum over channels", |p| p.row_sums.push(p.row_sums[0])),
    ];
    let mut found = BTreeMap::from([(example(|_| {}).digest(), "nothing")]);
    for (what, change) in changes {
        let before = found.insert(example(change).digest(), what);
        assert_eq!(before, None, "{what}");
    }
    let gradient = differentiate(&example(|_| {}));
    let mut other = gradient.clone();
    other.results.reverse();
    assert_ne!(other.digest(), gradient.digest());
}

#[test]
fn a_digest_is_the_same_on_every_machine() {
    assert_eq!(
        example(|_| {}).digest().to_string(),
        "b68714c0d2d4f55e032f1f3bc952531d"
    );
}

#[test]
fn operators_with_one_digest_are_one_program() {
    // The steerable product without options is `sgp`, and reversion is the identity on the line.
    let algebra = algebra(2, 0, 0);
    let mut found: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for operator in spec::operators(&algebra) {
        let digest = operator.program.digest();
        found.entry(digest).or_default().push(operator.program.name);
    }
    let twins: Vec<_> = found
        .into_values()
        .filter(|names| names.len() > 1)
        .collect();
    assert!(
        twins.iter().any(|names| names.contains(&"sgp".to_owned())),
        "{twins:?}"
    );
}
