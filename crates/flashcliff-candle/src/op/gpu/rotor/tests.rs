//! Compares the composed layer of versors with the core's, values and gradients, on the CPU.

use std::sync::Arc;

use candle_core::{Device, Tensor, Var};
use flashcliff::rotor::Parity;
use flashcliff::{Algebra, GradeSet, Signature};

use super::*;
use crate::op::node;

const SIGNATURES: [(usize, usize, usize); 8] = [
    (1, 0, 0),
    (2, 0, 0),
    (3, 0, 0),
    (3, 0, 1),
    (1, 3, 0),
    (2, 2, 0),
    (4, 1, 0),
    (0, 1, 2),
];

fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

fn variable(shape: &[usize], phase: f64) -> Var {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (phase + 0.7 * i as f64).sin()).collect();
    Var::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// A sum whose slope differs from element to element.
fn weighted(output: &Tensor) -> Tensor {
    let weights = variable(output.dims(), 0.3);
    (output * weights.as_detached_tensor())
        .unwrap()
        .sum_all()
        .unwrap()
}

fn close(a: &Tensor, b: &Tensor, what: &str) {
    assert_eq!(a.dims(), b.dims(), "{what}");
    let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    for (a, b) in values(a).into_iter().zip(values(b)) {
        assert!(
            (a - b).abs() <= 1e-12 * (1.0 + a.abs()),
            "{what}: {a} and {b}"
        );
    }
}

/// Compares output and gradients of both ways to compute a function.
fn compare<F>(function: &Arc<F>, variables: &[Var], shapes: &[&[usize]])
where
    F: Function<f32> + Function<f64> + OnGpu,
{
    let arguments: Vec<Argument> = variables
        .iter()
        .zip(shapes)
        .map(|(variable, shape)| Argument::shaped(variable, shape))
        .collect();
    let whole = node::apply(function, &arguments).unwrap();
    let composed = function.apply_on_gpu(&arguments).unwrap();
    close(&whole, &composed, "output");
    let expected = weighted(&whole).backward().unwrap();
    let got = weighted(&composed).backward().unwrap();
    for (i, variable) in variables.iter().enumerate() {
        let (a, b) = (expected.get(variable), got.get(variable));
        close(a.unwrap(), b.unwrap(), &format!("gradient {i}"));
    }
}

#[test]
fn layers_are_those_of_the_core() {
    for (p, q, r) in SIGNATURES {
        for parity in [Parity::Even, Parity::Odd] {
            for grades in [None, Some(GradeSet::of(&[1])), Some(GradeSet::of(&[0, 1]))] {
                let act = Arc::new(Act::new(algebra(p, q, r), parity, grades).unwrap());
                let [versor, blades] = act.action.blade_counts();
                let shapes: [&[usize]; 3] = [&[blades, 4, 2], &[versor, 3, 2], &[3, 2]];
                let inputs = [0, 1, 2].map(|i| variable(shapes[i], 0.3 + i as f64));
                compare(&act, &inputs, &shapes);
            }
        }
    }
}

#[test]
fn other_shapes_are_refused() {
    let algebra = algebra(3, 0, 0);
    let act = Act::new(algebra, Parity::Even, None).unwrap();
    let x = variable(&[8, 2, 3], 0.0);
    let versors = variable(&[4, 2, 2], 0.0);
    let weight = variable(&[2, 3], 0.0);
    let arguments = [&x, &versors, &weight].map(|x| Argument::whole(x));
    for done in [
        node::apply(&Arc::new(act), &arguments),
        Arc::new(Act::new(algebra, Parity::Even, None).unwrap()).apply_on_gpu(&arguments),
    ] {
        assert_eq!(
            done.unwrap_err().to_string(),
            "action: `versors`: expected shape [4, out, in = 3], got [4, 2, 2]"
        );
    }
}
