//! Compares what is composed of candle's operations with what the CPU computes in chunks: values and gradients, on the CPU.

use candle_core::{Device, Var};

use super::*;

fn variable(shape: &[usize], phase: f64) -> Var {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (phase + 0.7 * i as f64).sin()).collect();
    Var::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn close(a: &Tensor, b: &Tensor, what: &str) {
    assert_eq!(a.dims(), b.dims(), "{what}");
    let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let largest = values(a).into_iter().fold(1.0, |l: f64, x| l.max(x.abs()));
    for (a, b) in values(a).into_iter().zip(values(b)) {
        assert!((a - b).abs() <= 1e-11 * largest, "{what}: {a} and {b}");
    }
}

/// Compares output and gradients of both ways, for samples that make several chunks.
fn compare(name: &'static str, stages: Vec<Stage>) {
    const TOKENS: [usize; 2] = [19, 3];
    let stages = Arc::new(Stages::new(name, stages));
    let mut variables = vec![variable(&[19, 3, stages.input().width()], 0.1)];
    if stages.has_joins {
        variables.push(variable(&TOKENS, 0.4));
    }
    for (at, shape) in stages.shapes.iter().enumerate() {
        variables.push(variable(shape, 0.3 + at as f64));
    }
    let arguments: Vec<Argument> = variables.iter().map(|v| Argument::whole(v)).collect();
    let whole = node::apply(&stages, &arguments).unwrap();
    let composed = stages.apply_on_gpu(&arguments).unwrap();
    close(&whole, &composed, name);
    let weights = variable(whole.dims(), 0.2).as_detached_tensor();
    let gradients = |output: &Tensor| {
        let sum = (output * &weights).unwrap().sum_all().unwrap();
        sum.backward().unwrap()
    };
    let (expected, got) = (gradients(&whole), gradients(&composed));
    for (at, variable) in variables.iter().enumerate() {
        let (a, b) = (expected.get(variable), got.get(variable));
        close(a.unwrap(), b.unwrap(), &format!("{name}: gradient {at}"));
    }
}

fn linear(from: Channels, to: Vec<Channels>) -> Stage {
    Stage::Linear(Linear::new(from, to).unwrap())
}

const FROM: Channels = Channels::new(2, 3);

#[test]
fn linear_layers() {
    let to = || vec![Channels::new(1, 2), Channels::new(3, 1)];
    compare("both", vec![linear(FROM, to())]);
    let without = Channels::new(2, 0);
    compare("no scalar inputs", vec![linear(without, to())]);
    compare("neither", vec![linear(without, vec![without])]);
}

#[test]
fn norms_and_gates() {
    compare("norm", vec![Stage::Norm(Norm::new(FROM).unwrap())]);
    compare("gate", vec![Stage::Gated(Gated::new(FROM).unwrap())]);
}

#[test]
fn products_and_joins() {
    let factors = Linear::beside_scalars(FROM, vec![2; 4]).unwrap();
    let products = Products::new(2, FROM.scalars).unwrap();
    let out = linear(Channels::new(4, FROM.scalars), vec![FROM]);
    let stages = vec![Stage::Linear(factors), Stage::Products(products), out];
    compare("bilinear", vec![Stage::Residual(stages)]);
}

#[test]
fn attention() {
    for (heads, shared) in [(2, true), (2, false), (1, true)] {
        let attention = Attention::new(heads, Channels::new(2, 3), shared);
        let parts = linear(FROM, attention.parts().into());
        let out = linear(attention.output(), vec![FROM]);
        let stages = vec![parts, Stage::Attention(attention), out];
        compare("attention", vec![Stage::Residual(stages)]);
    }
    let attention = Attention::new(2, Channels::new(1, 0), true);
    compare(
        "attention without scalars",
        vec![Stage::Attention(attention)],
    );
}
