//! Programs with additions before and after them.

use flashcliff_program::ir::{Data, Program, Returned, evaluate, gradient};
use flashcliff_program::spec;

use crate::adjoints::{RUN_TIME, data};
use crate::support::{Random, algebra};

/// The operators of an algebra and their gradients.
fn programs(p: usize, q: usize, r: usize) -> Vec<Program> {
    let own = spec::operators(&algebra(p, q, r)).into_iter();
    let own = own.map(|operator| operator.program);
    let own: Vec<Program> = own.filter(|own| own.saved_row_sums == 0).collect();
    let gradients: Vec<Program> = own.iter().map(gradient).collect();
    [own, gradients].concat()
}

fn sum(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter()
        .zip(other)
        .map(|(one, other)| one + other)
        .collect()
}

#[test]
fn a_program_of_sums_computes_the_same_on_sums_and_returns_them() {
    let mut random = Random(3);
    for program in programs(3, 0, 0).into_iter().chain(programs(1, 1, 1)) {
        let of_sums = program.of_sums();
        assert_eq!(of_sums.validate().is_ok(), program.validate().is_ok());
        let given = data(&of_sums, &mut random);
        let (own, more) = given.inputs.split_at(program.inputs.len());
        let sums = own.iter().zip(more).map(|(one, other)| sum(one, other));
        let summed = Data {
            inputs: sums.collect(),
            params: given.params.clone(),
            row_values: given.row_values.clone(),
            ..given
        };
        let (expected, got) = (
            evaluate(&program, &summed, &RUN_TIME),
            evaluate(&of_sums, &given, &RUN_TIME),
        );
        let (outputs, totals) = got.outputs.split_at(program.outputs.len());
        assert_eq!(outputs, expected.outputs, "{}", program.name);
        assert_eq!(totals, summed.inputs, "{}", program.name);
        assert_eq!(got.sums, expected.sums, "{}", program.name);
        let arguments = program.arguments.len();
        assert_eq!(of_sums.arguments[..arguments], program.arguments);
        assert_eq!(of_sums.results[..program.results.len()], program.results);
    }
}

#[test]
fn an_adding_program_adds_outputs_to_further_arguments() {
    let mut random = Random(4);
    for program in programs(3, 0, 0).into_iter().chain(programs(1, 1, 1)) {
        let adding = program.adding();
        assert_eq!(adding.validate().is_ok(), program.validate().is_ok());
        let given = data(&adding, &mut random);
        let (own, more) = given.inputs.split_at(program.inputs.len());
        let alone = Data {
            inputs: own.to_vec(),
            params: given.params.clone(),
            row_values: given.row_values.clone(),
            ..given
        };
        let (expected, got) = (
            evaluate(&program, &alone, &RUN_TIME),
            evaluate(&adding, &given, &RUN_TIME),
        );
        // Further arguments come in the order of results.
        let order = program.results.iter().filter_map(|result| match result {
            Returned::Output(at) => Some(*at),
            Returned::Sum(_) | Returned::Total(_) => None,
        });
        let order: Vec<usize> = order.collect();
        assert_eq!(order.len(), more.len());
        for (at, more) in order.into_iter().zip(more) {
            let expected = sum(&expected.outputs[at], more);
            assert_eq!(got.outputs[at], expected, "{}", program.name);
        }
        assert_eq!(got.sums, expected.sums, "{}", program.name);
    }
}
