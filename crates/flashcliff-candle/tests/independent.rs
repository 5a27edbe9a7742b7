//! Gradients by parameters that no result depends on.

mod common;
mod kept;

use candle_core::{DType, Device, Module};
use candle_nn::{VarBuilder, VarMap};
use common::{random, values};
use flashcliff_candle::models::Bodies;

/// The parameters that only the last scalars depend on, and the bias on the scalar of a vector.
const IDLE: [&str; 9] = [
    "model.3.mes_norm.scalar_norm.bias",
    "model.3.mes_norm.scalar_norm.weight",
    "model.3.update_model_s.0.bias",
    "model.3.update_model_s.0.weight",
    "model.3.update_model_s.2.bias",
    "model.3.update_model_s.2.weight",
    "model.3.update_norm_s.bias",
    "model.3.update_norm_s.weight",
    "projection.bias",
];

/// Nothing reads the last scalars of MVN's network: the gradients of what makes them are zeros, and all others are there.
fn check() {
    let parameters = VarMap::new();
    let vb = VarBuilder::from_varmap(&parameters, DType::F64, &Device::Cpu);
    let model = Bodies::with_neurons(vb).unwrap();
    let positions = model.forward(&random(&[2, 5, 7], 3)).unwrap();
    let gradients = positions.sqr().unwrap().sum_all().unwrap();
    let gradients = gradients.backward().unwrap();
    let all = parameters.data().lock().unwrap();
    let mut idle: Vec<&str> = Vec::new();
    for (name, var) in all.iter() {
        let gradient = gradients.get(var.as_tensor()).unwrap();
        assert_eq!(gradient.dims(), var.dims(), "{name}");
        let gradient = values(gradient);
        assert!(gradient.iter().all(|own| own.is_finite()), "{name}");
        if gradient.iter().all(|own| *own == 0.0) {
            idle.push(name);
        }
    }
    idle.sort_unstable();
    assert_eq!(idle, IDLE);
}

#[test]
fn gradients_of_what_nothing_reads_are_zeros() {
    check();
}

#[test]
fn they_are_where_candle_keeps_the_graph() {
    if kept::keeps("they_are_where_candle_keeps_the_graph") {
        check();
    }
}
