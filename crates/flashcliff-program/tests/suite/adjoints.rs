//! Checks `differentiate` by central differences of interpreted programs, and again on its own result.

use cayley::Algebra;
use flashcliff_program::ir::{Data, Program, RunTime, Width, differentiate, evaluate};
use flashcliff_program::spec;

use crate::support::{Random, algebra};

/// A gate with derivatives of every order that differ from one another.
fn gate(order: u8, x: f64) -> f64 {
    (0.7 * x + 0.4 + f64::from(order) * std::f64::consts::FRAC_PI_2).sin()
        * 0.7_f64.powi(order.into())
}

pub(crate) const RUN_TIME: RunTime<'_> = RunTime {
    eps: 0.3,
    gate: &gate,
};

/// Data away from zero, where smooth norms bend within a step of the differences.
pub(crate) fn data(program: &Program, random: &mut Random) -> Data {
    let mut reals = |len| -> Vec<f64> {
        let away = |x: f64| (0.3 + 0.7 * x.abs()).copysign(x);
        random.reals(len, 1.0).into_iter().map(away).collect()
    };
    let (batch, channels) = (2, 3);
    let scalars = 5;
    let count = |width| match width {
        Width::Channels => channels,
        Width::Scalars => scalars,
    };
    Data {
        inputs: program
            .inputs
            .iter()
            .map(|input| reals(input.components.len() * batch * count(input.width)))
            .collect(),
        params: program
            .params
            .iter()
            .map(|p| reals(p.count * count(p.width)))
            .collect(),
        row_values: program.row_values.iter().map(|_| reals(batch)).collect(),
        batch,
        channels,
        scalars,
    }
}

/// Inputs, parameters and row values moved along a direction.
pub(crate) fn moved(at: &Data, direction: &Data, step: f64) -> Data {
    let add = |x: &[Vec<f64>], v: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let one =
            |(x, v): (&Vec<f64>, &Vec<f64>)| x.iter().zip(v).map(|(x, v)| x + step * v).collect();
        x.iter().zip(v).map(one).collect()
    };
    Data {
        inputs: add(&at.inputs, &direction.inputs),
        params: add(&at.params, &direction.params),
        row_values: add(&at.row_values, &direction.row_values),
        ..*at
    }
}

pub(crate) fn dot(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| a * b).sum()
}

/// Checks the adjoint of a program along a random direction. Returns the relative error.
pub(crate) fn check(program: &Program, adjoint: &Program, random: &mut Random) -> f64 {
    let at = data(program, random);
    // The adjoint reads the inputs of the program, then weights for everything that the program computes.
    let whole = data(adjoint, random);
    let (tensors, params) = (program.inputs.len(), program.params.len());
    let rows = program.row_values.len();
    let mut adjoint_data = at.clone();
    adjoint_data
        .inputs
        .extend_from_slice(&whole.inputs[tensors..]);
    adjoint_data
        .params
        .extend_from_slice(&whole.params[params..]);
    adjoint_data
        .row_values
        .extend_from_slice(&whole.row_values[rows..]);
    let loss = |data: &Data| {
        let results = evaluate(program, data, &RUN_TIME);
        dot(&results.outputs, &adjoint_data.inputs[tensors..])
            + dot(&results.sums, &adjoint_data.params[params..])
            + dot(&results.totals, &adjoint_data.row_values[rows..])
    };
    let direction = data(program, random);
    let step = 1e-5;
    let rise = loss(&moved(&at, &direction, step)) - loss(&moved(&at, &direction, -step));
    let want = rise / (2.0 * step);

    let got = evaluate(adjoint, &adjoint_data, &RUN_TIME);
    let sums = dot(&got.sums, &direction.params) + dot(&got.totals, &direction.row_values);
    let total = dot(&got.outputs, &direction.inputs) + sums;
    let size: f64 = got.outputs.iter().flatten().map(|x| x.abs()).sum();
    (total - want).abs() / (size + sums.abs()).max(1e-3)
}

/// The allowed relative error. Rounding is about u / step = 1e-11 of the loss; truncation is step^2 = 1e-10 times third
/// derivatives, which the smooth norm makes large near its kink.
pub(crate) const TOLERANCE: f64 = 1e-6;

fn check_all(algebra: &Algebra, second: bool) {
    let mut random = Random(algebra.blade_count() as u64);
    let mut worst = 0.0_f64;
    for operator in spec::operators(algebra) {
        let mut program = operator.program;
        if second {
            program = differentiate(&program);
        }
        let adjoint = differentiate(&program);
        let off = check(&program, &adjoint, &mut random);
        assert!(
            off <= TOLERANCE,
            "{} of {}: {off:e}",
            program.name,
            algebra.signature()
        );
        worst = worst.max(off);
    }
    println!(
        "{}, second order: {second}, worst relative error {worst:e}",
        algebra.signature()
    );
}

#[test]
fn adjoints_are_derivatives() {
    for (p, q, r) in [(1, 0, 0), (0, 2, 0), (3, 0, 0), (1, 1, 1), (3, 0, 1)] {
        check_all(&algebra(p, q, r), false);
    }
}

#[test]
fn adjoints_of_adjoints_are_second_derivatives() {
    for (p, q, r) in [(1, 0, 0), (2, 0, 0), (0, 1, 1), (3, 0, 0)] {
        check_all(&algebra(p, q, r), true);
    }
}

#[test]
fn a_wrong_adjoint_is_noticed() {
    let algebra = algebra(2, 0, 0);
    let mut random = Random(1);
    let [left, right] = ["geometric_product", "exterior_product"]
        .map(|name| crate::support::operator(&algebra, name).program);
    assert!(check(&left, &differentiate(&left), &mut random) < TOLERANCE);
    assert!(check(&left, &differentiate(&right), &mut random) > 1e-3);
}

/// The factor of a path product may be applied to the gradients of its terms, and its own gradient is the sum of the components of
/// `x` times theirs. Integers make both sides exact.
#[test]
fn the_factor_of_a_path_product_comes_out_of_its_gradients() {
    let mut random = Random(31);
    for algebra in [algebra(2, 0, 0), algebra(3, 0, 1), algebra(1, 3, 0)] {
        for path in algebra.paths() {
            let whole = differentiate(&spec::path_product(&algebra, path));
            let terms = differentiate(&spec::path_terms(&algebra, path));
            // The inputs of a gradient are the inputs of the program and the gradient of its output.
            let mut all = data(&whole, &mut random);
            for input in &mut all.inputs {
                *input = random.integers(input.len());
            }
            let mut without = all.clone();
            let factor = without.inputs.remove(2);
            let whole = evaluate(&whole, &all, &RUN_TIME).outputs;
            let terms = evaluate(&terms, &without, &RUN_TIME).outputs;
            let (grad_factor, grads) = whole.split_last().expect("three gradients");
            let lanes = factor.len();
            for (whole, terms) in grads.iter().zip(&terms) {
                let scaled: Vec<f64> = terms
                    .iter()
                    .enumerate()
                    .map(|(i, g)| g * factor[i % lanes])
                    .collect();
                assert_eq!(whole, &scaled, "{} {path:?}", algebra.signature());
            }
            let mut sums = vec![0.0; lanes];
            for (i, (x, grad)) in all.inputs[0].iter().zip(&terms[0]).enumerate() {
                sums[i % lanes] += x * grad;
            }
            assert_eq!(grad_factor, &sums, "{} {path:?}", algebra.signature());
        }
    }
}

/// Forty squares in a row have as many factors as no memory holds. Their derivative where all of them are 1 is a power of 2.
#[test]
fn squares_of_squares_have_derivatives() {
    let mut p = Program::new("squares", "o = x^(2^40)");
    let mut value = p.input("x", vec!["1".to_owned()])[0];
    for _ in 0..40 {
        value = p.graph.mul(value, value);
    }
    p.output("o", vec!["1".to_owned()], vec![value]);
    let data = Data {
        inputs: vec![vec![1.0]; 2],
        batch: 1,
        channels: 1,
        ..Data::default()
    };
    let found = evaluate(&differentiate(&p), &data, &RUN_TIME);
    assert_eq!(found.outputs, [[2.0_f64.powi(40)]]);
}
