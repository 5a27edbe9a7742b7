//! Networks as nodes: what they keep, what they compute again, and what they refuse.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::Module;
use flashcliff::{Algebra, Dtype, Signature};
use flashcliff_network::{Activation, Axis};

use super::*;
use crate::init::Parameters;
use crate::layers::{SteerableGeometricProduct, SteerableLayerOptions};
use crate::op::function::{Array, Function};

const CHANNELS: usize = 4;

fn random(shape: &[usize], phase: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count)
        .map(|at| (phase + 0.7 * at as f64).sin())
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn layer(dtype: DType) -> (SteerableGeometricProduct, Parameters) {
    let algebra = Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
    let parameters = Parameters::seeded(3);
    let builder = parameters.builder(dtype, &Device::Cpu);
    let options = SteerableLayerOptions::default();
    let layer = SteerableGeometricProduct::new(algebra, CHANNELS, options, builder).unwrap();
    (layer, parameters)
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// A sum whose slope differs from element to element.
fn weighted(y: &Tensor) -> Tensor {
    (y * random(y.dims(), 0.3)).unwrap().sum_all().unwrap()
}

/// Forward passes of a layer share their scratch memory, and not what they keep.
#[test]
fn gradients_are_those_of_their_own_forward_pass() {
    let (layer, parameters) = layer(DType::F64);
    let inputs =
        [0.1, 0.2].map(|phase| Var::from_tensor(&random(&[8, 5, CHANNELS], phase)).unwrap());
    let gradients = |x: &Var, y: &Tensor| -> Vec<Vec<f64>> {
        let found = weighted(y).backward().unwrap();
        let variables = parameters.variables().into_iter().map(|(_, var)| var);
        let all = variables.chain([x.clone()]);
        all.map(|var| values(found.get(&var).unwrap())).collect()
    };
    let alone = inputs
        .each_ref()
        .map(|x| gradients(x, &layer.forward(x).unwrap()));
    assert_ne!(alone[0], alone[1]);
    let results = inputs.each_ref().map(|x| layer.forward(x).unwrap());
    for _ in 0..2 {
        let pairs = inputs.iter().zip(&results);
        let got: Vec<_> = pairs.map(|(x, y)| gradients(x, y)).collect();
        assert_eq!(got, alone);
    }
}

/// `2 (silu(x) + y)`.
fn function() -> NetworkFunction {
    let describe = |network: &mut Description| {
        let shape = [Axis::Fixed(2), Axis::Rows, Axis::Fixed(3)];
        let [x, y] = ["x", "y"].map(|name| network.network.features(name, &shape));
        let x = network.network.activation(x, Activation::Silu)?;
        Ok(network.network.scaled_sum([x, y], 2.0)?)
    };
    let node = Node::new("sum", describe).unwrap();
    NetworkFunction {
        shared: node.shared,
        around: None,
    }
}

fn saved(function: &NetworkFunction, rows: usize, wanted: [bool; 2]) -> Arc<Staged<Plan>> {
    let (data, shape) = (vec![0.5_f64; 6 * rows], [2, rows, 3]);
    let array = Array {
        data: &data[..],
        shape: &shape,
    };
    let mut output = vec![0.0; 6 * rows];
    let saved = function.forward(&[array; 2], &mut output, &wanted);
    saved.unwrap().staged
}

/// The gradient of a sum is one of each side that is wanted, and needs nothing; that of the activation needs its input, which the host has.
#[test]
fn what_is_not_wanted_is_not_computed() {
    let function = function();
    for (wanted, gradients) in [
        ([false, false], 0),
        ([false, true], 1),
        ([true, false], 2),
        ([true, true], 3),
    ] {
        let staged = saved(&function, 4, wanted);
        let written = staged
            .plan
            .calls(1)
            .map(|call| staged.plan.writes(call).len());
        assert_eq!(written.sum::<usize>(), gradients, "{wanted:?}");
        assert_eq!(staged.plan.kept_bytes(), 0);
    }
}

#[test]
fn a_plan_is_made_once() {
    let function = function();
    let first = saved(&function, 4, [true; 2]);
    assert!(Arc::ptr_eq(&first, &saved(&function, 4, [true; 2])));
    for other in [
        saved(&function, 5, [true; 2]),
        saved(&function, 4, [true, false]),
    ] {
        assert!(!Arc::ptr_eq(&first, &other));
    }
    assert_eq!(first.plan.types(), [Dtype::F64; 2]);
}

#[test]
fn other_shapes_types_and_numbers_of_tensors_are_refused() {
    let (layer, _) = layer(DType::F32);
    let error = |x: &Tensor| layer.forward(x).unwrap_err().to_string();
    let wide = random(&[8, 5, CHANNELS], 0.1);
    assert!(error(&wide).contains("steerable_product: expected input 1 of type F64"));
    let narrow = wide.to_dtype(DType::F16).unwrap();
    assert!(error(&narrow).contains("expected input 0 of type F32 or F64, got F16"));
    let flat = random(&[8, CHANNELS], 0.1).to_dtype(DType::F32).unwrap();
    let expected = "steerable_product: x: expected shape [8, batch, 4], got [8, 4]";
    assert!(error(&flat).contains(expected));
    let function = Arc::new(function());
    let x = random(&[2, 4, 3], 0.1);
    let refused = node::apply(&function, &[Argument::whole(&x)]);
    assert!(matches!(
        refused,
        Err(Error::InputCount {
            expected: 2,
            got: 1,
            ..
        })
    ));
    let y = random(&[2, 5, 3], 0.1);
    let refused = node::apply(&function, &[&x, &y].map(Argument::whole));
    assert!(matches!(refused, Err(Error::Shape { got, .. }) if got == [2, 5, 3]));
}
