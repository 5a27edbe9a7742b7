//! Plans against candle's graph.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, GradeSet, ProductKind, Signature};
use flashcliff_network::{Axis, Network, Value};

use super::buckets::buckets;
use super::{Objective, ObjectiveOptions, Work};
use crate::layers::transformer::Draws;
use crate::models::{Architecture, Hulls, Model, ModelOptions};
use crate::optim::{Adam, AdamOptions};

const REGRESSION: Architecture = Architecture::Regression { width: 20 };
/// The models that have plans.
const PLANNED: [Architecture; 8] = [
    Architecture::Hulls,
    Architecture::AffineHulls,
    Architecture::Invariants,
    REGRESSION,
    Architecture::Volumes,
    Architecture::Bodies,
    Architecture::Bodies5d,
    Architecture::Forces,
];

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
    let [points, targets] = architecture.shapes(rows);
    let batch = [random(&points, seed), random(&targets, seed + 100)];
    batch.map(|tensor| tensor.to_dtype(dtype).unwrap())
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
    for architecture in PLANNED {
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

/// Each part of a batch is a separate pass and drops by the numbers of this pass. Predictions drop nothing, nor does an objective without
/// numbers.
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
    for architecture in PLANNED {
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
    for architecture in PLANNED {
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

/// The memory has room for the values that the documentation counts and for gradients that live at once, and for
/// little more: sums that operators save, and multiples of 256 bytes.
#[test]
fn buffers_are_those_that_are_counted() {
    let rows = 4;
    let model = Model::new(Architecture::Hulls, 1, DType::F32).unwrap();
    let objective = Objective::new(&model, rows, 1).unwrap();
    let elements = objective.buffer_bytes().unwrap() / 4;
    // The points as multivectors, and the prediction.
    let values = Hulls::saved_elements(rows) + 6 * rows * 16 + rows;
    let activation = 32 * rows * 32;
    assert!(elements >= values, "{elements}, {values}");
    assert!(elements <= values + 4 * activation, "{elements}, {values}");
}

const CHECKPOINTING: ObjectiveOptions = ObjectiveOptions {
    features: super::Features::Model,
    gradient_checkpointing: true,
    loss_scale: None,
    draws: None,
};

#[test]
fn gradients_with_checkpointing_are_the_same_bit_for_bit() {
    for architecture in PLANNED {
        for (dtype, parts) in [(DType::F32, 1), (DType::F32, 3), (DType::F64, 1)] {
            let model = Model::new(architecture, 3, dtype).unwrap();
            let mut kept = Objective::new(&model, 6, parts).unwrap();
            let mut again = Objective::with_options(&model, 6, parts, &CHECKPOINTING).unwrap();
            let bytes = [&kept, &again].map(|objective| objective.buffer_bytes().unwrap());
            // Networks of one block keep what they need.
            match architecture {
                Architecture::AffineHulls => assert_eq!(bytes[1], bytes[0]),
                _ => assert!(bytes[1] < bytes[0], "{architecture:?}: {bytes:?}"),
            }
            for seed in [1, 2] {
                let batch = batch(architecture, 6, seed, dtype);
                let expected = numbers(&model, &mut kept, &batch);
                let got = numbers(&model, &mut again, &batch);
                assert_eq!(got, expected, "{architecture:?}, {dtype:?}, {parts} parts");
            }
        }
    }
}

/// Hulls keep the points in the full algebra and the outputs of four products; two linear maps of one product at a
/// time, and gradients, share memory.
#[test]
fn checkpointing_keeps_the_values_between_blocks() {
    let rows = 4;
    let model = Model::new(Architecture::Hulls, 1, DType::F32).unwrap();
    let objective = Objective::with_options(&model, rows, 1, &CHECKPOINTING).unwrap();
    let elements = objective.buffer_bytes().unwrap() / 4;
    let activation = 32 * rows * 32;
    assert!(elements >= 7 * activation, "{elements}");
    assert!(elements <= 11 * activation, "{elements}");
}

/// Each gradient is in one bucket, after the call that completes it; buckets are of about the same size.
#[test]
fn buckets_are_complete_behind_their_calls() {
    for architecture in PLANNED {
        let model = Model::new(architecture, 3, DType::F32).unwrap();
        let objective = Objective::new(&model, 6, 1).unwrap();
        let Work::Planned(planned) = &objective.work else {
            panic!("no plan");
        };
        let plan = planned.plan();
        let len = |output: &usize| {
            let (shape, _) = plan.tensor(plan.outputs()[*output]).unwrap();
            shape.iter().product::<usize>()
        };
        let all: usize = (1..plan.outputs().len()).map(|at| len(&at)).sum();
        let largest = (1..plan.outputs().len()).map(|at| len(&at)).max().unwrap();
        for most in [1, 2, 4, 100] {
            let buckets = buckets(plan, most);
            assert!((1..=most).contains(&buckets.len()), "{}", buckets.len());
            let (mut behind, mut seen) = (0, Vec::<usize>::new());
            for bucket in &buckets {
                for &output in &bucket.outputs {
                    let call = plan.completed_by(output).unwrap();
                    assert!((behind..=bucket.call).contains(&call));
                    assert!(plan.writes(call).contains(&plan.outputs()[output]));
                }
                let size: usize = bucket.outputs.iter().map(len).sum();
                assert!(
                    size <= all / most + 2 * largest,
                    "{size} of {all} in {most}"
                );
                seen.extend(&bucket.outputs);
                behind = bucket.call + 1;
            }
            seen.sort_unstable();
            assert_eq!(seen, (1..plan.outputs().len()).collect::<Vec<_>>());
        }
        if architecture == Architecture::Hulls {
            assert_eq!(buckets(plan, 4).len(), 4);
        }
    }
}

/// A custom network, with a weight that two maps have and a value that is both factors of a product.
fn own_network() -> (Network, [Value; 2]) {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).unwrap();
    let options = LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::None);
    let linear = ops::mv_linear(algebra, &options).unwrap();
    let head = ops::mv_linear(algebra, &options.clone().with_grades(GradeSet::single(0))).unwrap();
    let product = ops::product(algebra, ProductKind::Geometric, None, None).unwrap();
    let mut network = Network::new();
    let shape = [Axis::Rows, Axis::Fixed(2), Axis::Fixed(3)];
    let points = network.input("points", &shape);
    let target = network.input("target", &[Axis::Rows]);
    let weight = network.parameter("weight", &[2, 2]);
    let last = network.parameter("last", &[1, 2]);
    let x = network.points(points).unwrap();
    let mut x = network.extend_blades(x, 8).unwrap();
    for _ in 0..2 {
        network.block();
        let y = network.operator(&linear, &[x, weight]).unwrap();
        x = network.operator(&product, &[y, y]).unwrap();
    }
    network.block();
    let scalars = network.first_blades(x, 1).unwrap();
    let prediction = network.operator(&head, &[scalars, last]).unwrap();
    (network, [prediction, target])
}

/// The gradients of a custom network agree with differences, with and without checkpointing, in parts too.
#[test]
fn networks_of_ones_own_are_trained() {
    let (network, ends) = own_network();
    let random = |shape: &[usize], seed| random(shape, seed);
    let vars = [random(&[2, 2], 1), random(&[1, 2], 2)].map(|t| Var::from_tensor(&t).unwrap());
    let batch = [random(&[4, 2, 3], 3), random(&[4], 4)];
    let objective = |parts, options: &ObjectiveOptions| {
        Objective::of_network(&network, ends, &vars, 4, parts, options).unwrap()
    };
    let mut own = objective(1, &ObjectiveOptions::default());
    let error = |own: &mut Objective| own.evaluate(&batch).unwrap().to_scalar::<f64>().unwrap();
    let before = error(&mut own);
    let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let gradients = |own: &Objective| {
        vars.clone()
            .map(|var| flat(&own.gradient_of(&var).unwrap().unwrap()))
    };
    let expected = gradients(&own);
    for (var, expected) in vars.iter().zip(&expected) {
        let values = flat(var);
        for (at, expected) in expected.iter().enumerate() {
            let mut moved = |step: f64| {
                let mut values = values.clone();
                values[at] += step;
                let tensor = Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap();
                var.set(&tensor).unwrap();
                error(&mut own)
            };
            let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            moved(0.0);
            assert!(
                (difference - expected).abs() < 1e-7 * (1.0 + expected.abs()),
                "{difference}, {expected}"
            );
        }
    }
    let mut again = objective(1, &CHECKPOINTING);
    assert_eq!(error(&mut again), before);
    assert_eq!(gradients(&again), expected);
    let mut parts = objective(2, &ObjectiveOptions::default());
    assert!((error(&mut parts) - before).abs() < 1e-12 * before);
    for (got, expected) in gradients(&parts).iter().zip(&expected) {
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12 * (1.0 + expected.abs()));
        }
    }
}

#[test]
fn variables_of_another_network_are_refused() {
    let (network, ends) = own_network();
    let var = |shape: &[usize]| Var::from_tensor(&random(shape, 1)).unwrap();
    let refused = |vars: &[Var], options: &ObjectiveOptions| {
        let made = Objective::of_network(&network, ends, vars, 4, 1, options);
        made.unwrap_err().to_string()
    };
    let options = ObjectiveOptions::default();
    let text = refused(&[var(&[2, 2])], &options);
    assert!(text.contains("expected 2 input tensors, got 1"), "{text}");
    let text = refused(&[var(&[2, 2]), var(&[3])], &options);
    assert!(
        text.contains("last: expected shape [1, 2], got [3]"),
        "{text}"
    );
    let narrow = random(&[1, 2], 1).to_dtype(DType::F32).unwrap();
    let text = refused(
        &[var(&[2, 2]), Var::from_tensor(&narrow).unwrap()],
        &options,
    );
    assert!(text.contains("the type of the model"), "{text}");
    let sixteen = ObjectiveOptions {
        features: super::Features::Bf16,
        ..ObjectiveOptions::default()
    };
    let text = refused(&[var(&[2, 2]), var(&[1, 2])], &sixteen);
    assert!(text.contains("expected a GPU"), "{text}");
}

/// A gradient is that of one parameter, so a variable of two parameters would get a part of its gradient alone.
#[test]
fn a_variable_is_that_of_one_parameter() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).unwrap();
    let options = LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::None)
        .with_grades(GradeSet::single(0));
    let linear = ops::mv_linear(algebra, &options).unwrap();
    let mut network = Network::new();
    let x = network.input("x", &[Axis::Rows, Axis::Fixed(1), Axis::Fixed(3)]);
    let target = network.input("target", &[Axis::Rows]);
    let weights = ["first", "second"].map(|name| network.parameter(name, &[1, 1]));
    let mut prediction = network.points(x).unwrap();
    prediction = network.blade_norm(prediction).unwrap();
    for weight in weights {
        prediction = network.operator(&linear, &[prediction, weight]).unwrap();
    }
    let made = |vars: &[Var]| {
        let options = ObjectiveOptions::default();
        Objective::of_network(&network, [prediction, target], vars, 4, 1, &options)
    };
    let [first, second] = [1, 2].map(|seed| Var::from_tensor(&random(&[1, 1], seed)).unwrap());
    made(&[first.clone(), second]).unwrap();
    match made(&[first.clone(), first]) {
        Err(crate::Error::Repeated { got, .. }) => {
            assert_eq!(got, "one variable for `first` and `second`");
        }
        other => panic!("{other:?}"),
    }
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
