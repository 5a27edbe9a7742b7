//! Plans against candle's graph.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, ProductKind, Signature};

use super::cpu::OnCpu;
use super::plan::{Activation, Builder, Plan, ValueId};
use super::planned::Part;
use super::{Objective, ObjectiveOptions};
use crate::layers::transformer::Draws;
use crate::models::{Architecture, Hulls, Model, ModelOptions};
use crate::optim::{Adam, AdamOptions};

const REGRESSION: Architecture = Architecture::Regression { width: 20 };

fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let data: Vec<f64> = (0..shape.iter().product()).map(|_| next()).collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

fn batch(architecture: Architecture, rows: usize, seed: u64, dtype: DType) -> [Tensor; 2] {
    let points = random(&[rows, architecture.points(), architecture.dim()], seed);
    let targets = match architecture.targets() {
        1 => random(&[rows], seed + 100),
        targets => random(&[rows, targets], seed + 100),
    };
    [points, targets].map(|tensor| tensor.to_dtype(dtype).unwrap())
}

/// The error and all gradients, in the order of the parameters.
fn numbers(model: &Model, objective: &mut Objective, batch: &[Tensor]) -> Vec<Vec<f64>> {
    let wide = |tensor: &Tensor| {
        let tensor = tensor.to_dtype(DType::F64).unwrap();
        tensor.flatten_all().unwrap().to_vec1::<f64>().unwrap()
    };
    let mut all = vec![wide(&objective.evaluate(batch).unwrap())];
    for (name, var) in model.parameters().variables() {
        let gradient = objective.gradient_of(&var).unwrap();
        all.push(wide(&gradient.unwrap_or_else(|| panic!("{name}"))));
    }
    all
}

/// Fails unless all tensors agree to a part of their largest element.
fn assert_near(got: &[Vec<f64>], expected: &[Vec<f64>], bound: f64) {
    assert_eq!(got.len(), expected.len());
    for (tensor, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.len(), expected.len());
        let largest = expected.iter().fold(1e-12_f64, |m, x| m.max(x.abs()));
        for (got, expected) in got.iter().zip(expected) {
            let error = (got - expected).abs();
            assert!(
                error <= bound * largest,
                "tensor {tensor}: expected {expected}, got {got}"
            );
        }
    }
}

#[test]
fn a_plan_gives_the_numbers_of_the_graph() {
    for architecture in [Architecture::Hulls, REGRESSION, Architecture::Volumes] {
        for (dtype, bound) in [(DType::F64, 1e-12), (DType::F32, 1e-4)] {
            let model = Model::new(architecture, 3, dtype).unwrap();
            let mut planned = Objective::new(&model, 6, 1).unwrap();
            let mut graph = Objective::through_graph(&model, 6, 1).unwrap();
            assert!(planned.is_planned() && !graph.is_planned());
            for seed in [1, 2] {
                let batch = batch(architecture, 6, seed, dtype);
                let got = numbers(&model, &mut planned, &batch);
                assert_near(&got, &numbers(&model, &mut graph, &batch), bound);
                // Rectifiers of the regression may all be off. The volume depends on no scalar of the last layer.
                let moves = |tensor: &Vec<f64>| tensor.iter().any(|&x| x != 0.0);
                assert!(architecture != Architecture::Hulls || got.iter().all(moves));
            }
        }
    }
}

/// A model without a plan goes through the graph.
#[test]
fn other_models_go_through_the_graph() {
    let model = Model::new(Architecture::Gravity, 3, DType::F64).unwrap();
    let mut objective = Objective::new(&model, 4, 1).unwrap();
    assert!(!objective.is_planned());
    let batch = batch(Architecture::Gravity, 4, 1, DType::F64);
    let got = numbers(&model, &mut objective, &batch);
    let difference = (model.forward(&batch[0]).unwrap() - &batch[1]).unwrap();
    let loss = difference.sqr().unwrap().mean_all().unwrap();
    assert_eq!(got[0], [loss.to_scalar::<f64>().unwrap()]);
    // A step keeps no tensor of the graph.
    let (_, var) = model.parameters().variables().swap_remove(0);
    let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
    assert!(objective.gradient_of(&var).unwrap().is_some());
    adam.objective_step(&mut objective, &loss).unwrap();
    assert!(objective.gradient_of(&var).unwrap().is_none());
}

/// Each part of a batch drops by the numbers of its own pass. Predictions drop nothing, nor does an objective without numbers.
#[test]
fn networks_with_dropout_take_numbers_for_each_part() {
    let options = ModelOptions { dropout: Some(0.3) };
    let make = |architecture, options| {
        Model::with_options(architecture, options, 3, DType::F64, &Device::Cpu)
    };
    let model = make(Architecture::Gravity, options).unwrap();
    let batch = batch(Architecture::Gravity, 4, 1, DType::F64);
    let draws = || Draws::new(5, &Device::Cpu).unwrap();
    let error = |draws: Option<Draws>, parts| {
        let options = ObjectiveOptions {
            draws,
            ..ObjectiveOptions::default()
        };
        let mut objective = Objective::with_options(&model, 4, parts, &options).unwrap();
        let error = objective.evaluate(&batch).unwrap();
        error.to_scalar::<f64>().unwrap()
    };
    let own = draws();
    let got = [error(Some(own.clone()), 2), error(Some(own.clone()), 2)];
    assert_eq!(own.passes().unwrap(), 4);
    let by_hand = draws();
    let of_half = |half: usize| {
        let of = |tensor: &Tensor| tensor.narrow(0, 2 * half, 2).unwrap();
        let draw = by_hand.draw().unwrap();
        let losses = model.losses(&of(&batch[0]), &of(&batch[1]), Some(&draw));
        losses.unwrap().error.to_scalar::<f64>().unwrap()
    };
    let expected = [(); 2].map(|()| (of_half(0) + of_half(1)) / 2.0);
    for (got, expected) in got.iter().zip(expected) {
        assert!((got / expected - 1.0).abs() < 1e-12, "{got}, {expected}");
    }
    assert_ne!(got[0], got[1]);

    let predicted = (model.forward(&batch[0]).unwrap() - &batch[1]).unwrap();
    let predicted = predicted.sqr().unwrap().mean_all().unwrap();
    assert_eq!(error(None, 1), predicted.to_scalar::<f64>().unwrap());

    let wrong = |architecture, p| {
        let options = ModelOptions { dropout: Some(p) };
        make(architecture, options).unwrap_err().to_string()
    };
    assert!(wrong(Architecture::Hulls, 0.3).contains("the network has no dropout"));
    assert!(wrong(Architecture::Gravity, 1.0).contains("dropout"));
}

/// Numbers that the batch before left in the buffers do not matter.
#[test]
fn bits_depend_on_the_batch_alone() {
    for architecture in [Architecture::Hulls, REGRESSION, Architecture::Volumes] {
        let model = Model::new(architecture, 3, DType::F32).unwrap();
        let batches = [1, 2].map(|seed| batch(architecture, 6, seed, DType::F32));
        for parts in [1, 3] {
            let mut objective = Objective::new(&model, 6, parts).unwrap();
            let first = numbers(&model, &mut objective, &batches[0]);
            let second = numbers(&model, &mut objective, &batches[1]);
            assert_ne!(first, second);
            assert_eq!(numbers(&model, &mut objective, &batches[0]), first);
            let mut fresh = Objective::new(&model, 6, parts).unwrap();
            assert_eq!(numbers(&model, &mut fresh, &batches[1]), second);
        }
    }
}

#[test]
fn parts_give_the_numbers_of_the_whole_batch() {
    for architecture in [Architecture::Hulls, REGRESSION, Architecture::Volumes] {
        let model = Model::new(architecture, 3, DType::F64).unwrap();
        let batch = batch(architecture, 12, 1, DType::F64);
        let mut whole = Objective::new(&model, 12, 1).unwrap();
        let expected = numbers(&model, &mut whole, &batch);
        for parts in [2, 3, 12] {
            let mut objective = Objective::new(&model, 12, parts).unwrap();
            let got = numbers(&model, &mut objective, &batch);
            assert_near(&got, &expected, 1e-12);
            let mut graph = Objective::through_graph(&model, 12, parts).unwrap();
            assert_near(&numbers(&model, &mut graph, &batch), &expected, 1e-12);
        }
    }
}

#[test]
fn batches_are_checked() {
    let model = Model::new(REGRESSION, 3, DType::F32).unwrap();
    let error = |rows, parts| {
        Objective::new(&model, rows, parts)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    for (rows, parts) in [(4, 3), (4, 0), (0, 1)] {
        assert!(error(rows, parts).contains("divides the rows"));
    }
    let mut objective = Objective::new(&model, 4, 1).unwrap();
    let [points, targets] = batch(REGRESSION, 4, 1, DType::F32);
    let wide = points.to_dtype(DType::F64).unwrap();
    let short = targets.narrow(0, 0, 3).unwrap();
    let cases: [(&[Tensor], &str); 4] = [
        (
            std::slice::from_ref(&points),
            "expected 2 input tensors, got 1",
        ),
        (
            &[targets.clone(), targets.clone()],
            "points: expected shape [4, 2, 5]",
        ),
        (
            &[points.clone(), short],
            "targets: expected shape [4], got [3]",
        ),
        (
            &[wide, targets.clone()],
            "input 0 of type the type of the model, got F64",
        ),
    ];
    for (batch, expected) in cases {
        let text = objective.evaluate(batch).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
    // A view is copied first.
    let turned = points.permute((1, 2, 0)).unwrap().contiguous().unwrap();
    let turned = turned.permute((2, 0, 1)).unwrap();
    let same = objective.evaluate(&[points, targets.clone()]).unwrap();
    let again = objective.evaluate(&[turned, targets]).unwrap();
    assert_eq!(
        same.to_scalar::<f32>().unwrap(),
        again.to_scalar::<f32>().unwrap()
    );
}

/// The buffers of values are those that the documentation counts; gradients take the room of those that live at once.
#[test]
fn buffers_are_those_that_are_counted() {
    let rows = 4;
    let model = Model::new(Architecture::Hulls, 1, DType::F32).unwrap();
    let plan = model.plan(rows).unwrap().unwrap();
    let [values, gradients] = plan.elements();
    // The points as multivectors, and the prediction.
    let ends = 6 * rows * 16 + rows;
    assert_eq!(values, Hulls::saved_elements(rows) + ends);
    let activation = 32 * rows * 32;
    assert!(
        gradients <= 4 * activation + 4 * rows * 32 + rows,
        "{gradients}"
    );
    assert!(gradients >= 4 * activation);
}

const CHECKPOINTING: ObjectiveOptions = ObjectiveOptions {
    features: super::Features::Model,
    gradient_checkpointing: true,
    loss_scale: None,
    draws: None,
};

#[test]
fn gradients_with_checkpointing_are_the_same_bit_for_bit() {
    for architecture in [Architecture::Hulls, REGRESSION, Architecture::Volumes] {
        for (dtype, parts) in [(DType::F32, 1), (DType::F32, 3), (DType::F64, 1)] {
            let model = Model::new(architecture, 3, dtype).unwrap();
            let mut kept = Objective::new(&model, 6, parts).unwrap();
            let mut again = Objective::with_options(&model, 6, parts, &CHECKPOINTING).unwrap();
            let bytes = [&kept, &again].map(|objective| objective.buffer_bytes().unwrap());
            assert!(bytes[1] < bytes[0], "{architecture:?}: {bytes:?}");
            for seed in [1, 2] {
                let batch = batch(architecture, 6, seed, dtype);
                let expected = numbers(&model, &mut kept, &batch);
                let got = numbers(&model, &mut again, &batch);
                assert_eq!(got, expected, "{architecture:?}, {dtype:?}, {parts} parts");
            }
        }
    }
}

/// Hulls keep the points in the full algebra and the outputs of four products. Two linear maps of one product at a time share memory, in
/// which the points and the perceptron have room too.
#[test]
fn checkpointing_keeps_the_values_between_blocks() {
    let rows = 4;
    let model = Model::new(Architecture::Hulls, 1, DType::F32).unwrap();
    let plan = model.plan(rows).unwrap().unwrap();
    let [values, gradients] = plan.elements();
    let plan = plan.checkpointed();
    let activation = 32 * rows * 32;
    // The last activation of the perceptron has the type of the model, which is another one where features have 16 bits.
    let last = rows * 32;
    assert_eq!(
        plan.elements(),
        [(5 + 2) * activation + last + rows, gradients]
    );
    let embedded = 6 * rows * 16;
    assert_eq!(values, 13 * activation + embedded + 3 * last + rows);
    // The points, and two linear maps of each product. The perceptron is the last block, whose values are still there.
    let again: Vec<usize> = (0..plan.nodes.len())
        .flat_map(|at| plan.blocks.again(at).to_vec())
        .collect();
    assert_eq!(again.len(), 1 + 4 * 2);
    assert!(again.iter().all(|&at| at < plan.nodes.len() - 4));
    // A step in f32: values and gradients.
    let objective = Objective::with_options(&model, rows, 1, &CHECKPOINTING).unwrap();
    let elements = plan.elements()[0] + gradients;
    assert_eq!(objective.buffer_bytes(), Some(4 * elements));
}

/// Each parameter is in one bucket, behind the node that its gradient comes from; buckets are of about the same size.
#[test]
fn buckets_are_complete_behind_their_nodes() {
    for architecture in [Architecture::Hulls, REGRESSION, Architecture::Volumes] {
        let model = Model::new(architecture, 3, DType::F32).unwrap();
        let plan = model.plan(6).unwrap().unwrap();
        let len = |parameter: &usize| plan.parameters[*parameter].elem_count();
        let all: usize = (0..plan.parameters.len()).map(|at| len(&at)).sum();
        let largest = (0..plan.parameters.len()).map(|at| len(&at)).max().unwrap();
        for most in [1, 2, 4, 100] {
            let buckets = plan.buckets(most);
            assert!((1..=most).contains(&buckets.len()), "{}", buckets.len());
            let mut behind = plan.nodes.len();
            let mut seen: Vec<usize> = Vec::new();
            for bucket in &buckets {
                // A node reads the parameter, and the node is of the backward pass up to this bucket and after the last.
                for &parameter in &bucket.parameters {
                    let id = plan.parameters[parameter].id();
                    let reads = |at: &usize| {
                        plan.nodes[*at].inputs.iter().any(|input| {
                            matches!(plan.values[input.value.0].holder, super::plan::Holder::Parameter(at)
                                if plan.parameters[at].id() == id)
                        })
                    };
                    assert!((bucket.node..behind).any(|at| reads(&at)));
                }
                let size: usize = bucket.parameters.iter().map(len).sum();
                assert!(
                    size <= all / most + 2 * largest,
                    "{size} of {all} in {most}"
                );
                seen.extend(&bucket.parameters);
                behind = bucket.node;
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..plan.parameters.len()).collect::<Vec<_>>());
        }
    }
    let model = Model::new(Architecture::Hulls, 3, DType::F32).unwrap();
    let plan = model.plan(6).unwrap().unwrap();
    assert_eq!(plan.buckets(4).len(), 4);
}

fn line() -> Algebra {
    Algebra::new(Signature::of(3, 0, 0)).unwrap()
}

/// A network of two values that one linear map and `product` read.
fn forked(product: ProductKind, twice: bool) -> Option<Plan> {
    let algebra = line();
    let (rows, channels) = (3, 2);
    let options = LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::None);
    let linear = Arc::new(ops::mv_linear(algebra, &options).unwrap());
    let weights = [1, 2].map(|seed| {
        let weight = random(&[channels, channels], seed);
        Var::from_tensor(&weight).unwrap()
    });
    let mut plan = Builder::new(rows);
    let shape = vec![8, rows, channels];
    let matrix = vec![channels, channels];
    let points = plan.points(channels, 7, 0);
    let x = plan
        .operator(
            &linear,
            &[(points, shape.clone())],
            &[(&weights[0], matrix.clone())],
            0,
        )
        .unwrap();
    let weight = &weights[usize::from(!twice)];
    let y = plan
        .operator(&linear, &[(x, shape.clone())], &[(weight, matrix)], 0)
        .unwrap();
    let product = Arc::new(ops::product(algebra, product, None, None).unwrap());
    let z = plan
        .operator(&product, &[(y, shape.clone()), (x, shape)], &[], 0)
        .unwrap();
    let end: ValueId = plan.norm(z, 8, channels);
    let last = Var::from_tensor(&random(&[1, channels], 9)).unwrap();
    let head = candle_nn::Linear::new(last.as_tensor().clone(), None);
    let end = plan.activation(end, channels, Activation::Silu);
    let end = plan.linear(algebra, end, &head).unwrap();
    plan.finish(end)
}

#[test]
fn plans_that_would_lose_a_gradient_are_refused() {
    assert!(forked(ProductKind::Geometric, false).is_some());
    // One weight of two maps would have the gradient of one of them.
    assert!(forked(ProductKind::Geometric, true).is_none());
    // A product cannot add to a gradient.
    let algebra = line();
    let mut plan = Builder::new(3);
    let shape = vec![8, 3, 2];
    let points = plan.points(2, 7, 0);
    let options = LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::None);
    let linear = Arc::new(ops::mv_linear(algebra, &options).unwrap());
    let weight = Var::from_tensor(&random(&[2, 2], 1)).unwrap();
    let weight = [(weight.as_tensor(), vec![2, 2])];
    let x = plan
        .operator(&linear, &[(points, shape.clone())], &weight, 0)
        .unwrap();
    let product = Arc::new(ops::product(algebra, ProductKind::Geometric, None, None).unwrap());
    let square = plan
        .operator(&product, &[(x, shape.clone()), (x, shape)], &[], 0)
        .unwrap();
    let norm = plan.norm(square, 8, 2);
    let last = Var::from_tensor(&random(&[1, 2], 9)).unwrap();
    let head = candle_nn::Linear::new(last.as_tensor().clone(), None);
    let end = plan.linear(algebra, norm, &head).unwrap();
    assert!(plan.finish(end).is_none());
}

/// A value of which only the first blade is used has a gradient of 0 in the rest, also in a buffer that held another gradient.
#[test]
fn the_rest_of_a_gradient_is_cleared() {
    let algebra = line();
    let (rows, channels) = (3, 2);
    let options = LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::None);
    let linear = Arc::new(ops::mv_linear(algebra, &options).unwrap());
    let mut plan = Builder::new(rows);
    let shape = vec![8, rows, channels];
    let mut values = vec![plan.points(channels, 7, 0)];
    for seed in 1..4 {
        let weight = Var::from_tensor(&random(&[channels, channels], seed)).unwrap();
        let weight = [(weight.as_tensor(), vec![channels, channels])];
        let x = [(values[seed as usize - 1], shape.clone())];
        values.push(plan.operator(&linear, &x, &weight, 0).unwrap());
    }
    // The scalar of a product depends on all blades, so the gradient of the first map fills the buffer of that of the product.
    let product = Arc::new(ops::product(algebra, ProductKind::Geometric, None, None).unwrap());
    let factors = [(values[3], shape.clone()), (values[2], shape)];
    let x = plan.operator(&product, &factors, &[], 0).unwrap();
    let last = Var::from_tensor(&random(&[1, channels], 9)).unwrap();
    let head = candle_nn::Linear::new(last.as_tensor().clone(), None);
    let end = plan.linear(algebra, x, &head).unwrap();
    let plan = plan.finish(end).unwrap();

    let batch = [random(&[rows, channels, 7], 5), random(&[rows], 6)];
    let mut cpu = OnCpu::<f64>::new(&plan);
    let mut gradients = || {
        let part = Part {
            scale: 1.0,
            adds: false,
        };
        cpu.run((&plan, super::operations::Reports(None)), &batch, part, 1.0)
            .unwrap();
        (0..4).map(|at| cpu.gradient(at).to_vec()).collect()
    };
    let first: Vec<Vec<f64>> = gradients();
    assert!(first.iter().flatten().any(|&g| g != 0.0));
    assert_eq!(gradients(), first);
}

#[test]
fn a_batch_that_does_not_fit_is_refused_with_the_largest_that_does() {
    let model = Model::new(Architecture::Hulls, 3, DType::F32).unwrap();
    // Some hundred kilobytes for each of 2^30 samples.
    let error = Objective::new(&model, 1 << 30, 1).unwrap_err();
    let crate::Error::Core(flashcliff::Error::OutOfMemory { wanted, .. }) = &error else {
        panic!("{error}");
    };
    assert!(*wanted > 1 << 40, "{wanted}");
    let text = error.to_string();
    for part in ["training hulls", "1073741824", "batch"] {
        assert!(text.contains(part), "{text}");
    }
    // Parts need less.
    let parts = Objective::new(&model, 1 << 30, 1 << 26).unwrap();
    assert!(parts.is_planned());
}
