//! Gradients, and what they and results do not depend on.

use candle_core::{DType, Tensor, Var};
use flashcliff_candle::layers::transformer::Tokens;

use crate::common::{random, values};
use crate::{input, network, options};

/// The sum of the output times fixed numbers.
fn loss(out: &Tokens) -> Tensor {
    let weights = random(out.packed().dims(), 41);
    let weights = weights.to_dtype(out.packed().dtype()).unwrap();
    (out.packed() * weights).unwrap().sum_all().unwrap()
}

fn number(loss: &Tensor) -> f64 {
    values(loss)[0]
}

#[test]
fn gradients_are_central_differences() {
    for multi_query in [true, false] {
        let (net, parameters) = network(multi_query, DType::F64);
        let channels = options(multi_query).input;
        let x = Var::from_tensor(input(channels, 23).packed()).unwrap();
        // The input counts for the reference of joins too.
        let run = || {
            let tokens = Tokens::from_packed(x.as_tensor().clone(), channels).unwrap();
            loss(&net.forward(&tokens).unwrap())
        };
        let gradients = run().backward().unwrap();
        let mut variables = parameters.variables();
        variables.push(("input".to_owned(), x.clone()));
        for (name, var) in variables {
            let gradient = values(gradients.get(&var).unwrap());
            let start = values(&var);
            let stride = (start.len() / 2).max(1);
            let largest = gradient.iter().fold(0.0_f64, |l, g| l.max(g.abs()));
            for index in (start.len() / 3..start.len()).step_by(stride) {
                let at = |by: f64| {
                    let mut moved = start.clone();
                    moved[index] += by;
                    let moved = Tensor::from_vec(moved, var.dims(), var.device()).unwrap();
                    var.set(&moved).unwrap();
                    number(&run())
                };
                let step = 1e-4;
                // Fourth order.
                let near = at(step) - at(-step);
                let far = at(2.0 * step) - at(-2.0 * step);
                let expected = (8.0 * near - far) / (12.0 * step);
                let start = Tensor::from_vec(start.clone(), var.dims(), var.device()).unwrap();
                var.set(&start).unwrap();
                let error = (gradient[index] - expected).abs();
                assert!(
                    error <= 1e-6 * largest.max(1e-2),
                    "{name}[{index}]: got {}, expected {expected}",
                    gradient[index]
                );
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let (net, parameters) = network(true, DType::F32);
    let channels = options(true).input;
    let x = input(channels, 3).packed().to_dtype(DType::F32).unwrap();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| {
            let tokens = Tokens::from_packed(x.clone(), channels).unwrap();
            let out = net.forward(&tokens).unwrap();
            let gradients = loss(&out).backward().unwrap();
            let variables = parameters.variables();
            let of = variables
                .iter()
                .map(|(_, var)| values(gradients.get(var).unwrap()));
            (values(out.packed()), of.collect::<Vec<_>>())
        })
    };
    let one = run(1);
    for threads in [1, 2, 3] {
        assert_eq!(run(threads), one, "{threads}");
    }
}

#[test]
fn a_sample_does_not_depend_on_others() {
    let (net, _) = network(true, DType::F64);
    let channels = options(true).input;
    let x = input(channels, 3);
    let all = values(net.forward(&x).unwrap().packed());
    let first = x.packed().narrow(0, 4, 1).unwrap();
    let alone = net
        .forward(&Tokens::from_packed(first, channels).unwrap())
        .unwrap();
    let alone = values(alone.packed());
    let there = &all[4 * alone.len()..5 * alone.len()];
    for (a, b) in alone.iter().zip(there) {
        assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{a} {b}");
    }
}

#[test]
fn no_samples_are_no_tokens() {
    let (net, parameters) = network(true, DType::F64);
    let channels = options(true).input;
    let none = Tensor::zeros(
        (0, 3, channels.width()),
        DType::F64,
        &candle_core::Device::Cpu,
    );
    let x = Tokens::from_packed(none.unwrap(), channels).unwrap();
    let reference = Tensor::zeros((0, 3), DType::F64, &candle_core::Device::Cpu).unwrap();
    let out = net.forward_with(&x, &reference).unwrap();
    assert_eq!(out.packed().dims(), [0, 3, options(true).output.width()]);
    let gradients = out.packed().sum_all().unwrap().backward().unwrap();
    for (name, var) in parameters.variables() {
        let gradient = gradients.get(&var).unwrap_or_else(|| panic!("{name}"));
        assert!(values(gradient).iter().all(|&g| g == 0.0), "{name}");
    }
}
