//! Gradients of gradients, where candle keeps the graph of gradients.
//!
//! It asks the environment once in a process, so each test runs itself again with the variable.

mod kept;
#[path = "common/nodes.rs"]
mod nodes;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::Module;
use flashcliff::ops::{self, LinearOptions, SteerableOptions};
use flashcliff::{Algebra, Bias, Dims, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::{SteerableGeometricProduct, SteerableLayerOptions};
use flashcliff_candle::{Error, functional as f, op};
use flashcliff_program::operators::{ENTRIES, Settings};
use flashcliff_program::reference::{Basis, evaluate};

use kept::{KEEP, keeps};
use nodes::{Case, Cases, algebra, numbers};

fn scalar(tensor: &Tensor) -> f64 {
    tensor.sum_all().unwrap().to_scalar().unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn dot(x: &Tensor, y: &Tensor) -> Tensor {
    (x * y).unwrap().sum_all().unwrap()
}

fn cases(of: &[fn(&mut Cases)]) -> Vec<Case> {
    let mut cases = Cases::new(&Device::Cpu, DType::F64);
    of.iter().for_each(|add| add(&mut cases));
    cases.all()
}

/// How the errors of cases begin that have first derivatives alone.
const REFUSED: [(&str, &str); 3] = [
    (
        "a learned mask",
        "block: attention gradient, of its mask too: ",
    ),
    ("recomputed", "recomputed: "),
    ("L-GATr, recomputed", "recomputed: "),
];

/// An energy, with operations of candle before and after the node.
fn energy(case: &Case) -> Tensor {
    let out = case.output(|x| x * 1.1);
    let weights = numbers(out.dims(), 1.3);
    dot(&out.sin().unwrap(), &weights)
}

/// The gradients of the energy by the first tensors.
fn gradients(case: &Case, count: usize) -> Vec<Tensor> {
    let by = case.vars[..count].iter();
    let by: Vec<&Tensor> = by.map(|(_, var)| var.as_tensor()).collect();
    op::gradients(&energy(case), &by).unwrap()
}

/// A number made of the gradients by the first tensors.
fn loss(case: &Case, count: usize) -> Tensor {
    let gradients = gradients(case, count);
    let terms = gradients.iter().enumerate();
    let terms = terms.map(|(at, own)| dot(own, &numbers(own.dims(), 2.0 + at as f64)));
    terms.reduce(|sum, more| (sum + more).unwrap()).unwrap()
}

/// The difference of fourth order of a number, where a tensor moves along a change of it.
fn difference(var: &Var, along: &Tensor, step: f64, number: impl Fn() -> f64) -> f64 {
    let before = var.as_tensor().copy().unwrap();
    let moved = |by: f64| {
        let to = (&before + (along * by).unwrap()).unwrap();
        var.set(&to).unwrap();
        number()
    };
    let across = |step: f64| moved(step) - moved(-step);
    let found = (8.0 * across(step) - across(2.0 * step)) / (12.0 * step);
    var.set(&before).unwrap();
    found
}

/// Compares the gradients of a loss with differences, by each tensor along a change of it.
fn assert_differences(case: &Case, count: usize) {
    let found = loss(case, count).backward().unwrap();
    let mut largest = 0.0_f64;
    for (name, var) in &case.vars {
        let along = numbers(var.dims(), 5.0);
        // Norms and gates turn sharply near zero, where some channels start.
        let want = difference(var, &along, 1e-6, || scalar(&loss(case, count)));
        let got = match found.get(var) {
            Some(gradient) => scalar(&(gradient * &along).unwrap()),
            None => 0.0,
        };
        largest = largest.max(got.abs());
        assert!(
            (got - want).abs() <= 1e-7 * (1.0 + got.abs()),
            "{}, {count}: by {name} {got}, by differences {want}",
            case.name
        );
    }
    assert!(largest > 1e-3, "{}: {largest}", case.name);
}

/// Compares losses on the gradients by the first tensor, and by all where there are not very many.
fn assert_orders(of: &[fn(&mut Cases)]) {
    for case in cases(of) {
        if let Some((_, start)) = REFUSED.iter().find(|(name, _)| *name == case.name) {
            let error = loss(&case, 1).backward().unwrap_err().to_string();
            assert!(error.starts_with(start), "{}: {error}", case.name);
            assert!(error.contains("no second derivatives"), "{error}");
            continue;
        }
        assert_differences(&case, 1);
        if case.vars.len() < 100 {
            assert_differences(&case, case.vars.len());
        }
    }
}

#[test]
fn losses_on_forces_of_transformers_have_the_gradients_of_differences() {
    if keeps("losses_on_forces_of_transformers_have_the_gradients_of_differences") {
        assert_orders(&[nodes::transformers, nodes::learned_mask]);
    }
}

#[test]
fn losses_on_forces_of_layers_have_the_gradients_of_differences() {
    if keeps("losses_on_forces_of_layers_have_the_gradients_of_differences") {
        assert_orders(&[nodes::layers, nodes::steps, nodes::others]);
    }
}

#[test]
fn losses_on_forces_of_operators_have_the_gradients_of_differences() {
    if keeps("losses_on_forces_of_operators_have_the_gradients_of_differences") {
        assert_orders(&[nodes::operators, nodes::maps_of_rotors]);
    }
}

#[test]
fn losses_on_forces_of_models_have_the_gradients_of_differences() {
    if keeps("losses_on_forces_of_models_have_the_gradients_of_differences") {
        assert_orders(&[nodes::models, nodes::bodies]);
    }
}

/// The Hessian by all tensors is symmetric.
#[test]
fn second_derivatives_are_symmetric() {
    if !keeps("second_derivatives_are_symmetric") {
        return;
    }
    let all = cases(&[nodes::transformers, nodes::layers]).into_iter();
    for case in all.filter(|case| !REFUSED.iter().any(|(name, _)| *name == case.name)) {
        let changes = [7.0, 11.0].map(|phase| {
            let own = case.vars.iter().enumerate();
            let own = own.map(|(at, (_, var))| numbers(var.dims(), phase + at as f64));
            own.collect::<Vec<Tensor>>()
        });
        let along = |first: &[Tensor], then: &[Tensor]| -> f64 {
            let gradients = gradients(&case, case.vars.len());
            let pairs = gradients.iter().zip(first);
            let slopes = pairs.map(|(own, change)| dot(own, change));
            let slope = slopes.reduce(|sum, more| (sum + more).unwrap()).unwrap();
            let found = slope.backward().unwrap();
            let own = case.vars.iter().zip(then);
            let own =
                own.filter_map(|((_, var), change)| Some(scalar(&dot(found.get(var)?, change))));
            own.sum()
        };
        let [u, v] = &changes;
        let (one, other) = (along(u, v), along(v, u));
        assert!(
            (one - other).abs() <= 1e-9 * one.abs().max(1.0) && one.abs() > 1e-2,
            "{}: {one}, {other}",
            case.name
        );
    }
}

/// The layer as operators of candle's graph, each with its own derivatives.
#[test]
fn gradients_of_gradients_are_those_of_operators() {
    if !keeps("gradients_of_gradients_are_those_of_operators") {
        return;
    }
    let a = algebra(3, 0, 0);
    let parameters = Parameters::seeded(3);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let layer = SteerableGeometricProduct::new(a, 2, SteerableLayerOptions::default(), vb).unwrap();
    let of = |name: &str| {
        let all = parameters.variables().into_iter();
        let mut own = all.filter(|(own, _)| own == name);
        own.next().unwrap().1
    };
    let linear = |bias| {
        let options = LinearOptions::default().with_per_grade(true);
        ops::mv_linear(a, &options.with_bias(bias)).unwrap()
    };
    let composed = |x: &Tensor| -> Result<Tensor> {
        let [right, left, bias] = [
            "linear_right.weight",
            "linear_left.weight",
            "linear_left.bias",
        ]
        .map(of);
        let right = op::apply(&linear(Bias::None), &[x, &right])?;
        let bias = bias.flatten_all()?;
        let left = op::apply(&linear(Bias::Scalar), &[x, &left, &bias])?;
        let options = SteerableOptions::default()
            .with_first_order(true)
            .with_normalize(true);
        let product = ops::steerable_product(a, &options).unwrap();
        let [weight, norm] = ["weight", "normalization.a"].map(of);
        op::apply(&product, &[x, &right, &weight, &norm, &left])
    };
    let x = Var::from_tensor(&numbers(&[8, 3, 2], 0.4)).unwrap();
    let variables = parameters.variables().into_iter().map(|(_, var)| var);
    let variables: Vec<Var> = [x.clone()].into_iter().chain(variables).collect();
    let second = |out: Tensor| {
        let forces = op::gradients(&out.sin().unwrap().sum_all().unwrap(), &[&x]).unwrap();
        let found = forces[0]
            .sqr()
            .unwrap()
            .sum_all()
            .unwrap()
            .backward()
            .unwrap();
        let own = variables.iter();
        own.map(|var| {
            found
                .get(var)
                .unwrap()
                .flatten_all()
                .unwrap()
                .to_vec1::<f64>()
                .unwrap()
        })
        .collect::<Vec<_>>()
    };
    let one = second(layer.forward(&x).unwrap());
    let other = second(composed(&x).unwrap());
    for (one, other) in one.iter().zip(&other) {
        let scale = other.iter().fold(0.0_f64, |scale, x| scale.max(x.abs()));
        for (one, other) in one.iter().zip(other) {
            assert!((one - other).abs() <= 1e-12 * scale, "{one}, {other}");
        }
    }
}

/// The third derivative along three changes beside differences of the second.
#[test]
fn third_derivatives_are_those_of_differences() {
    if !keeps("third_derivatives_are_those_of_differences") {
        return;
    }
    let all = cases(&[nodes::layers, nodes::steps, nodes::transformers]).into_iter();
    for case in all.filter(|case| !REFUSED.iter().any(|(name, _)| *name == case.name)) {
        let x = &case.vars[0].1;
        let [u, v, w] = [3.0, 4.0, 5.0].map(|phase| numbers(x.dims(), phase));
        let along = |of: &Tensor, change: &Tensor| {
            let found = op::gradients(of, &[x]);
            found.map(|found| dot(&found[0], change))
        };
        let second = || along(&along(&energy(&case), &u).unwrap(), &v).unwrap();
        let got = scalar(&along(&second(), &w).unwrap());
        let want = difference(x, &w, 1e-5, || scalar(&second()));
        assert!(
            (got - want).abs() <= 1e-7 * (1.0 + got.abs()) && got.abs() > 1e-4,
            "{}: {got}, {want}",
            case.name
        );
    }
}

/// The reference of an operator computes in f64 from its formula, as this test of candle does.
#[test]
fn values_are_those_of_the_references() {
    for (p, q, r) in [(3, 0, 0), (1, 1, 1)] {
        let signature = Signature::new(p, q, r).unwrap();
        let (algebra, basis) = (Algebra::new(signature).unwrap(), Basis::new(signature));
        for entry in ENTRIES {
            let name = entry.row.name;
            let operator = ops::by_name(algebra, name, &[]).unwrap();
            let dims = Dims {
                batch: 3,
                in_channels: 2,
                out_channels: if entry.row.output.contains("out") {
                    4
                } else {
                    2
                },
                scalar_channels: 0,
            };
            let inputs = operator.inputs().iter().enumerate();
            let inputs = inputs.map(|(at, input)| numbers(&input.shape(&dims), at as f64));
            let inputs: Vec<Tensor> = inputs.collect();
            let borrowed: Vec<&Tensor> = inputs.iter().collect();
            let output = op::apply(&operator, &borrowed).unwrap();
            let numbers: Vec<Vec<f64>> = inputs.iter().map(values).collect();
            let sizes = [dims.batch, dims.in_channels, dims.out_channels];
            let want = evaluate(entry, &Settings::of(&entry.row), &basis, sizes, &numbers);
            let got = values(&output);
            assert_eq!(got.len(), want.len(), "{name}");
            let scale = want.iter().fold(0.0_f64, |scale, x| scale.max(x.abs()));
            assert!(scale > 0.0, "{name} gives nothing");
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() <= 1e-12 * scale, "{name}: {got}, {want}");
            }
        }
    }
}

#[test]
fn third_derivatives_are_there() {
    if !keeps("third_derivatives_are_there") {
        return;
    }
    // The energy |x|^3 of a vector: its third derivative along the vector itself is 6 |x|^3.
    let x = Var::from_tensor(&numbers(&[8, 1, 1], 0.4)).unwrap();
    let along = x.as_tensor().detach();
    let norm = f::norm(algebra(3, 0, 0), &x).unwrap();
    let mut value = norm.powf(3.0).unwrap().sum_all().unwrap();
    let expected = 6.0 * scalar(&value);
    for _ in 0..3 {
        let gradient = op::gradients(&value, &[&x]).unwrap().remove(0);
        value = (gradient * &along).unwrap().sum_all().unwrap();
    }
    let got = scalar(&value);
    assert!(
        (got - expected).abs() <= 1e-9 * expected.abs(),
        "{got}, {expected}"
    );
}

#[test]
fn gradients_of_what_does_not_matter_are_zeros() {
    if !keeps("gradients_of_what_does_not_matter_are_zeros") {
        return;
    }
    let [x, other] = [0.1, 0.2].map(|phase| Var::from_tensor(&numbers(&[8, 2, 1], phase)).unwrap());
    let energy = f::norm(algebra(3, 0, 0), &x).unwrap().sum_all().unwrap();
    let gradients = op::gradients(&energy, &[&other, &x]).unwrap();
    assert_eq!(scalar(&gradients[0].abs().unwrap()), 0.0);
    assert!(scalar(&gradients[1].abs().unwrap()) > 0.0);
}

#[test]
fn without_the_graph_it_is_an_error_that_says_what_to_set() {
    if std::env::var_os(KEEP).is_some() {
        return;
    }
    let x = Var::from_tensor(&numbers(&[8, 2, 1], 0.1)).unwrap();
    let energy = f::norm(algebra(3, 0, 0), &x).unwrap().sum_all().unwrap();
    let error = op::gradients(&energy, &[&x]).unwrap_err().to_string();
    assert!(
        error.contains(&Error::DetachedGradients.to_string()),
        "{error}"
    );
    assert!(error.contains(KEEP), "{error}");
}
