//! Counts the tensors that candle makes in a training step. candle numbers them one after the other in a process, so this is the only
//! test of its program.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions};

/// The number of the next tensor.
fn next() -> usize {
    let tensor = Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap();
    let text = format!("{:?}", tensor.id());
    let digits = text.trim_matches(|c: char| !c.is_ascii_digit());
    digits.parse().expect("TensorId(number)")
}

/// The tensors of a later step, with the optimiser.
fn tensors(objective: &mut Objective, adam: &mut Adam, batch: &[Tensor]) -> usize {
    let mut count = 0;
    for _ in 0..3 {
        let before = next();
        let loss = objective.evaluate(batch).unwrap();
        adam.objective_step(objective, &loss).unwrap();
        count = next() - before - 1;
    }
    count
}

#[test]
fn a_planned_step_makes_a_few_tensors() {
    let points = Tensor::ones((4, 16, 5), DType::F32, &Device::Cpu).unwrap();
    let batch = [points, Tensor::ones(4, DType::F32, &Device::Cpu).unwrap()];
    let model = Model::new(Architecture::Hulls, 1, DType::F32).unwrap();
    let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
    let mut planned = Objective::new(&model, 4, 1).unwrap();
    let mut graph = Objective::through_graph(&model, 4, 1).unwrap();
    let [planned, graph] =
        [&mut planned, &mut graph].map(|objective| tensors(objective, &mut adam, &batch));
    println!("{planned} tensors without a graph, {graph} through candle's");
    // The loss, and what the optimiser reads of it.
    assert!((1..=4).contains(&planned), "{planned}");
    assert!(graph > 100, "{graph}");
}
