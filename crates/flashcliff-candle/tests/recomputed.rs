//! Functions that run again in the backward pass: the gradients of the plain graph, and runs that differ.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Channels, Geometry, Mask, Scope, Sequences, Tokens,
};
use flashcliff_candle::models::{Architecture, Gatr, GatrOptions, Model};
use flashcliff_candle::objective::{Objective, ObjectiveOptions};
use flashcliff_candle::op::recomputed;

use common::{disturb, random, values};

fn var(shape: &[usize], seed: u64, dtype: DType) -> Var {
    Var::from_tensor(&random(shape, seed).to_dtype(dtype).unwrap()).unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    values(tensor).into_iter().map(f64::to_bits).collect()
}

/// The bits of the gradients of variables.
fn gradients_of(gradients: &GradStore, variables: &[Var]) -> Vec<Vec<u64>> {
    let of = |var: &Var| bits(gradients.get(var).expect("a gradient"));
    variables.iter().map(of).collect()
}

/// `x + tanh(x w0 w1 ...) gate`, by candle's operations.
fn block(inputs: &[Tensor], weights: &[Var]) -> Result<Tensor> {
    let mut h = inputs[0].clone();
    for weight in weights {
        h = h.matmul(weight)?.tanh()?;
    }
    &inputs[0] + h.broadcast_mul(&inputs[1])?
}

/// Two blocks and a loss, plain or not, for so many weights of a block.
fn network(weights: usize, dtype: DType, again: bool) -> (Vec<u64>, Vec<Vec<u64>>) {
    let make = |seed: u64| -> Vec<Var> {
        let of = |at: usize| var(&[5, 5], seed + at as u64, dtype);
        (0..weights).map(of).collect()
    };
    let (first, second) = (make(1), make(21));
    let (x, gate) = (var(&[7, 5], 41, dtype), var(&[5], 42, dtype));
    let mut h = x.as_tensor().clone();
    for weights in [&first, &second] {
        let own = weights.clone();
        h = match again {
            true => recomputed(&[&h, &gate], move |inputs| block(inputs, &own)).unwrap(),
            false => block(&[h.clone(), gate.as_tensor().clone()], &own).unwrap(),
        };
    }
    let loss = h.sqr().unwrap().mean_all().unwrap();
    let all: Vec<Var> = [first, second, vec![x, gate]].concat();
    (bits(&h), gradients_of(&loss.backward().unwrap(), &all))
}

#[test]
fn gradients_are_those_of_the_plain_graph_bit_for_bit() {
    // The node has 2 to 9 arguments that lead to variables.
    for weights in 0..8 {
        for dtype in [DType::F32, DType::F64] {
            let plain = network(weights, dtype, false);
            assert_eq!(network(weights, dtype, true), plain, "{weights} {dtype:?}");
        }
    }
    // The comparison is of numbers that are not all alike.
    let (_, plain) = network(2, DType::F64, false);
    assert!(plain.windows(2).all(|pair| pair[0] != pair[1]));
}

/// A function that counts its runs.
fn counted(
    runs: &Arc<AtomicUsize>,
    function: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
) -> impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static {
    let runs = runs.clone();
    move |inputs| {
        runs.fetch_add(1, Ordering::SeqCst);
        function(inputs)
    }
}

#[test]
fn a_function_runs_again_only_for_a_backward_pass() {
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = || runs.swap(0, Ordering::SeqCst);
    let (w, x) = (var(&[2, 2], 1, DType::F64), random(&[3, 2], 2));
    let product = |w: &Tensor| {
        let w = w.clone();
        counted(&runs, move |inputs| inputs[0].matmul(&w))
    };
    let plain = recomputed(&[&x], product(&w.as_detached_tensor())).unwrap();
    assert!(!plain.track_op());
    assert_eq!(seen(), 1);
    let out = recomputed(&[&x], product(&w)).unwrap();
    assert_eq!(bits(&out), bits(&plain));
    assert_eq!(seen(), 1);
    let loss = out.sqr().unwrap().sum_all().unwrap();
    // A graph may be gone through twice.
    let [first, second] = [(); 2].map(|()| {
        let gradients = loss.backward().unwrap();
        assert_eq!(seen(), 1);
        gradients_of(&gradients, std::slice::from_ref(&w))
    });
    assert_eq!(first, second);
}

/// The gradients of `2 f(x, y) w`, where `f` is recomputed or not.
fn around(
    again: bool,
    function: impl Fn(&[Tensor], &Var) -> Result<Tensor> + Send + Sync + 'static,
) -> Vec<Vec<f64>> {
    let dtype = DType::F64;
    let [x, y, w] = [1, 2, 3].map(|seed| var(&[4, 4], seed, dtype));
    let held = w.clone();
    let function = move |inputs: &[Tensor]| function(inputs, &held);
    // An input that leads to a variable, and is not contiguous.
    let (x_seen, y_seen) = (x.t().unwrap(), (y.as_tensor() * 2.0).unwrap());
    let out = match again {
        true => recomputed(&[&x_seen, &y_seen], function),
        false => function(&[x_seen, y_seen]),
    };
    let sum = (out.unwrap().flatten_all().unwrap() * 3.0).unwrap();
    // The variables also have their own uses.
    let others = (x.sqr().unwrap() + (y.as_tensor() + w.sqr().unwrap()).unwrap()).unwrap();
    let sum = (sum.sum_all().unwrap() + others.sum_all().unwrap()).unwrap();
    let gradients = sum.backward().unwrap();
    [x, y, w]
        .map(|var| values(gradients.get(&var).unwrap()))
        .to_vec()
}

#[test]
fn functions_may_do_anything_with_their_inputs() {
    type Case = fn(&[Tensor], &Var) -> Result<Tensor>;
    let cases: [(&str, Case); 9] = [
        ("an input", |x, _| Ok(x[0].clone())),
        ("a variable", |_, w| Ok(w.as_tensor().clone())),
        ("a part in the middle", |x, w| {
            (&x[0] * w.as_tensor())?.narrow(0, 1, 2)
        }),
        ("the first part", |x, w| {
            (&x[0] * w.as_tensor())?.narrow(0, 0, 2)
        }),
        ("a transposed tensor", |x, w| x[1].matmul(w)?.t()),
        ("one input twice", |x, _| &x[0] * &x[0]),
        ("no variable", |x, _| x[0].matmul(&x[1])),
        ("no input", |_, w| w.exp()),
        ("a function within", |x, w| {
            let (w, y) = (w.clone(), x[1].clone());
            // It holds the variable and a tensor that leads to one.
            recomputed(&[&x[0]], move |x| x[0].matmul(&w)?.mul(&y)?.sin())
        }),
    ];
    for (name, case) in cases {
        let (plain, again) = (around(false, case), around(true, case));
        for (plain, again) in plain.iter().zip(&again) {
            for (plain, again) in plain.iter().zip(again) {
                let error = (plain - again).abs();
                assert!(
                    error <= 1e-14 * plain.abs().max(1.0),
                    "{name}: {plain}, {again}"
                );
            }
        }
    }
}

#[test]
fn a_second_run_that_differs_is_an_error() {
    let x = var(&[4, 4], 1, DType::F64);
    let failure = |function: fn(&Tensor, usize) -> Result<Tensor>| {
        let runs = AtomicUsize::new(0);
        let function = move |inputs: &[Tensor]| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            function(&inputs[0], run)
        };
        let out = recomputed(&[&x], function).unwrap();
        out.sum_all().unwrap().backward().unwrap_err().to_string()
    };
    let shape = failure(|x, run| x.narrow(0, 0, 2 + run));
    assert!(
        shape.contains("an output of shape [2, 4], got [3, 4]"),
        "{shape}"
    );
    let other = failure(|x, run| match run {
        0 => Ok(x.clone()),
        _ => x.matmul(&var(&[4, 4], 2, DType::F64)),
    });
    assert!(other.contains("the variables of the first run"), "{other}");
    let own = failure(|x, run| match run {
        0 => Ok(x.clone()),
        _ => candle_core::bail!("planted"),
    });
    assert!(own.contains("planted"), "{own}");
}

/// Output and gradients of a network of blocks within a scope, of all parameters, the input and the reference of
/// joins, and the gradients of all.
fn of_network(
    geometry: Geometry,
    dtype: DType,
    scope: &Scope,
    again: bool,
) -> ((Vec<u64>, Vec<Vec<u64>>), GradStore) {
    let options = GatrOptions {
        blocks: 3,
        attention: AttentionOptions {
            heads: 2,
            ..AttentionOptions::default()
        },
        ..GatrOptions::new(
            Channels::new(2, 3),
            Channels::new(1, 2),
            Channels::new(4, 6),
        )
    };
    let parameters = Parameters::seeded(5);
    let vb = parameters.builder(dtype, &Device::Cpu);
    let net = Gatr::over(geometry, options.clone(), vb).unwrap();
    disturb(&parameters, 11);
    let net = net.with_gradient_checkpointing(again);
    let (samples, items) = match scope {
        Scope::Within(_) => (1, 15),
        _ => (5, 3),
    };
    let width = options.input.width();
    let x = var(&[samples, items, width], 7, dtype);
    let reference = var(&[samples, items], 8, dtype);
    let tokens = Tokens::from_packed(x.as_tensor().clone(), options.input).unwrap();
    let with = geometry.join.then_some(reference.as_tensor());
    let out = net.forward_within(&tokens, with, scope).unwrap();
    let loss = out.packed().sin().unwrap().sum_all().unwrap();
    let mut variables: Vec<Var> = parameters.variables().into_iter().map(|(_, v)| v).collect();
    variables.push(x);
    if geometry.join {
        variables.push(reference);
    }
    let gradients = loss.backward().unwrap();
    let found = (bits(out.packed()), gradients_of(&gradients, &variables));
    (found, gradients)
}

#[test]
fn blocks_of_transformers_give_the_same_bits() {
    let algebra = |p, q, r| Algebra::new(Signature::new(p, q, r).unwrap()).unwrap();
    let shown = random(&[5, 1, 3, 3], 3).ge(0.0).unwrap();
    for geometry in [
        Geometry::of(algebra(3, 0, 1)),
        Geometry::of(algebra(1, 3, 0)),
    ] {
        for dtype in [DType::F32, DType::F64] {
            let bias = var(&[5, 2, 3, 3], 4, dtype);
            let scopes = [
                Scope::Sample,
                Scope::Masked(Mask::additive(&bias).unwrap()),
                Scope::Masked(Mask::boolean(&shown, dtype).unwrap()),
                Scope::Within(Sequences::new(&[0, 4, 4, 15]).unwrap()),
            ];
            for scope in &scopes {
                let [(plain, all), (again, all_again)] =
                    [false, true].map(|again| of_network(geometry, dtype, scope, again));
                assert!(again == plain, "{geometry:?}, {dtype:?}, {scope:?}");
                // Each block adds to the gradient of a mask, in an order that may be another one.
                let [found, again] = [&all, &all_again].map(|all| all.get(&bias).map(values));
                let learns = matches!(scope, Scope::Masked(mask) if mask.added().track_op());
                assert_eq!([found.is_some(), again.is_some()], [learns; 2]);
                let pairs = found.iter().flatten().zip(again.iter().flatten());
                let bound = if dtype == DType::F32 { 1e-5 } else { 1e-14 };
                for (found, again) in pairs {
                    assert!((found - again).abs() < bound * (1.0 + found.abs()));
                }
            }
        }
    }
}

/// Objectives of gravity: the same losses and gradients, and the option that says so.
#[test]
fn gravity_trains_with_the_same_bits() {
    for (dtype, parts) in [(DType::F32, 1), (DType::F32, 2), (DType::F64, 1)] {
        let model = Model::new(Architecture::Gravity, 3, dtype).unwrap();
        let of = |shape: &[usize], seed| random(shape, seed).to_dtype(dtype).unwrap();
        let batch = [of(&[4, 4, 7], 1), of(&[4, 12], 2)];
        let [plain, again] = [false, true].map(|gradient_checkpointing| {
            let options = ObjectiveOptions {
                gradient_checkpointing,
                ..ObjectiveOptions::default()
            };
            let mut objective = Objective::with_options(&model, 4, parts, &options).unwrap();
            let loss = objective.evaluate(&batch).unwrap();
            let variables = model.parameters().variables();
            let of = |(_, var): &(String, Var)| {
                bits(&objective.gradient_of(var).unwrap().expect("a gradient"))
            };
            (bits(&loss), variables.iter().map(of).collect::<Vec<_>>())
        });
        assert!(plain == again, "{dtype:?}, {parts} parts");
    }
}
