//! Compares composed functions with those that the CPU computes as a whole: values and gradients, on the CPU.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::Module;
use flashcliff::{Algebra, Signature};

use super::*;
use crate::init::Parameters;
use crate::layers::{PointEmbedding, SteerableGeometricProduct, SteerableLayerOptions};

pub(in crate::op::gpu) fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

pub(in crate::op::gpu) fn variable(shape: &[usize], phase: f64) -> Var {
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
pub(in crate::op::gpu) fn compare<F>(function: &Arc<F>, variables: &[Var], shapes: &[&[usize]])
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
fn embedding() {
    for (vectors, blades) in [(1, 2), (3, 8), (5, 32)] {
        let function = Arc::new(EmbedVectors { vectors, blades });
        let (v, bias) = (variable(&[vectors, 3, 4], 0.1), variable(&[1, 4, 1], 0.2));
        compare(&function, &[v, bias], &[&[vectors, 3, 4], &[4]]);
    }
}

#[test]
fn an_embedding_of_other_vectors_is_refused() {
    let function = Arc::new(EmbedVectors {
        vectors: 3,
        blades: 8,
    });
    let (v, bias) = (variable(&[2, 3, 4], 0.1), variable(&[4], 0.2));
    let arguments = [Argument::whole(&v), Argument::whole(&bias)];
    let error = function.apply_on_gpu(&arguments).unwrap_err().to_string();
    assert!(
        error.contains("[3, batch, channels]") && error.contains("[2, 3, 4]"),
        "{error}"
    );
}

#[test]
fn norm_over_blades() {
    compare(
        &Arc::new(BladeNorm),
        &[variable(&[8, 3, 4], 0.1)],
        &[&[8, 3, 4]],
    );
}

#[test]
fn the_gradient_of_a_norm_is_zero_where_the_norm_is() {
    let x = Var::from_slice(&[3.0, 0.0, 4.0, 0.0], (2, 1, 2), &Device::Cpu).unwrap();
    let norm = Arc::new(BladeNorm);
    let norm = norm.apply_on_gpu(&[Argument::whole(&x)]).unwrap();
    assert_eq!(norm.to_vec2::<f64>().unwrap(), [[5.0, 0.0]]);
    let gradients = norm.sum_all().unwrap().backward().unwrap();
    let expected = Tensor::new(&[[[0.6, 0.0]], [[0.8, 0.0]]], &Device::Cpu).unwrap();
    close(gradients.get(&x).unwrap(), &expected, "gradient");
}

#[test]
fn steerable_layers() {
    for (first_order, normalization_init) in [
        (true, Some(0.2)),
        (true, None),
        (false, Some(0.2)),
        (false, None),
    ] {
        let options = SteerableLayerOptions {
            first_order,
            normalization_init,
        };
        let parameters = Parameters::seeded(3);
        let builder = parameters.builder(DType::F64, &Device::Cpu);
        let layer = SteerableGeometricProduct::new(algebra(3, 0, 0), 4, options, builder).unwrap();
        let x = variable(&[8, 5, 4], 0.4);
        let mut arguments = vec![Argument::whole(&x)];
        arguments.extend(layer.parameters());
        let composed = layer.function().apply_on_gpu(&arguments).unwrap();
        let whole = layer.forward(&x).unwrap();
        close(&whole, &composed, "output");
        let (expected, got) = (weighted(&whole), weighted(&composed));
        let (expected, got) = (expected.backward().unwrap(), got.backward().unwrap());
        for (name, var) in parameters
            .variables()
            .into_iter()
            .chain([("x".to_owned(), x)])
        {
            close(expected.get(&var).unwrap(), got.get(&var).unwrap(), &name);
        }
    }
}

#[test]
fn trunk() {
    let algebra = algebra(2, 0, 0);
    let parameters = Parameters::seeded(5);
    let builder = parameters.builder(DType::F64, &Device::Cpu);
    let embedding = PointEmbedding::new(algebra, 3, 4, builder.pp(0)).unwrap();
    let layers: Vec<SteerableGeometricProduct> = (1..3)
        .map(|i| {
            let options = SteerableLayerOptions::default();
            SteerableGeometricProduct::new(algebra, 4, options, builder.pp(i)).unwrap()
        })
        .collect();
    let trunk = Arc::new(Trunk {
        embedding: embedding.function().clone(),
        layers: layers
            .iter()
            .map(|layer| layer.function().clone())
            .collect(),
    });
    let points = variable(&[6, 3, 2], 0.5);
    let run = |composed: bool| {
        let vectors = embedding.vectors(&points).unwrap();
        let mut arguments = vec![Argument::whole(&vectors), embedding.bias()];
        for layer in &layers {
            arguments.extend(layer.parameters());
        }
        let output = match composed {
            true => trunk.apply_on_gpu(&arguments),
            false => node::apply(&trunk, &arguments),
        };
        let output = output.unwrap();
        let gradients = weighted(&output).backward().unwrap();
        (output, gradients)
    };
    let ((whole, expected), (composed, got)) = (run(false), run(true));
    close(&whole, &composed, "output");
    for (name, var) in parameters
        .variables()
        .into_iter()
        .chain([("points".to_owned(), points)])
    {
        close(expected.get(&var).unwrap(), got.get(&var).unwrap(), &name);
    }
}
