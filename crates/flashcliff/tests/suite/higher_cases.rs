//! Operators with numbers for their inputs, for tests of derivatives on any device.

use flashcliff::{Algebra, Dims, Element, Operator, Tensor};

use crate::cases::{Spec, all_operators, main_of};
use crate::random::Random;
use flashcliff_program::reference::Basis;

/// The operators of an algebra, with all options or with the options of a layer.
pub(crate) fn operators(algebra: Algebra, all: bool) -> Vec<(Spec, Operator)> {
    let basis = Basis::new(algebra.signature());
    let specs = match all {
        true => all_operators(&basis),
        false => main_of(&basis),
    };
    let made = specs.into_iter().map(|spec| {
        let op = spec.operator(algebra).expect("an operator");
        (spec, op)
    });
    made.collect()
}

/// Numbers for the inputs of an operator, away from zero, where norms bend within a step.
pub(crate) fn numbers(op: &Operator, dims: &Dims, random: &mut Random) -> Vec<Vec<f64>> {
    let away = |x: f64| (0.3 + 0.7 * x.abs()).copysign(x);
    let specs = op.inputs().iter();
    specs
        .map(|spec| {
            let len = spec.shape(dims).iter().product();
            random.reals(len).into_iter().map(away).collect()
        })
        .collect()
}

/// All outputs of an operator on the CPU.
pub(crate) fn results<T: Element>(
    op: &Operator,
    dims: &Dims,
    inputs: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let data: Vec<Vec<T>> = inputs
        .iter()
        .map(|values| values.iter().map(|&x| T::from_f64(x)).collect())
        .collect();
    let shapes: Vec<Vec<usize>> = op.inputs().iter().map(|spec| spec.shape(dims)).collect();
    let tensors: Vec<Tensor<'_, T>> = data
        .iter()
        .zip(&shapes)
        .map(|(data, shape)| Tensor::new(data, shape).expect("the shape fits"))
        .collect();
    let results = op.results(&tensors).expect("the call fits");
    let wide = |values: Vec<T>| values.into_iter().map(T::to_f64).collect();
    results.into_iter().map(wide).collect()
}
