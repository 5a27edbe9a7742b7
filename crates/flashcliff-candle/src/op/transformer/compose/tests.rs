//! Compares what is composed of candle's operations with what the CPU computes in chunks: values and gradients, on the CPU.

use candle_core::Tensor;

use super::*;
use crate::op::transformer::cases::{cases, close, cross_cases, cross_inputs, inputs, variable};

/// Compares outputs of the same inputs, and the gradients of all that have some.
fn compare(name: &str, inputs: &[Tensor], run: impl Fn(&[Argument]) -> [Tensor; 2]) {
    let arguments: Vec<Argument> = inputs.iter().map(Argument::whole).collect();
    let [whole, composed] = run(&arguments);
    close(&whole, &composed, name);
    let weights = variable(whole.dims(), 0.2).as_detached_tensor();
    let gradients = |output: &Tensor| {
        let sum = (output * &weights).unwrap().sum_all().unwrap();
        sum.backward().unwrap()
    };
    let (expected, got) = (gradients(&whole), gradients(&composed));
    for (at, input) in inputs.iter().enumerate() {
        let (a, b) = (expected.get(input), got.get(input));
        assert_eq!(a.is_some(), input.is_variable(), "{name}: gradient {at}");
        if let Some(a) = a {
            close(a, b.unwrap(), &format!("{name}: gradient {at}"));
        }
    }
}

#[test]
fn stages() {
    for case in cases() {
        compare(&case.name, &inputs(&case), |arguments| {
            let whole = node::apply(&case.stages, arguments).unwrap();
            [whole, case.stages.apply_on_gpu(arguments).unwrap()]
        });
    }
}

#[test]
fn attention_to_another_set() {
    for case in cross_cases() {
        compare(&case.name, &cross_inputs(&case), |arguments| {
            let whole = node::apply(&case.crossing, arguments).unwrap();
            [whole, case.crossing.apply_on_gpu(arguments).unwrap()]
        });
    }
}
