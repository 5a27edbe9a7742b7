//! Objectives: the numbers of the CPU, the bits of eager steps when captured, and the nodes of a captured step.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::capture::{Capture, Feed, Step};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::layers::transformer::Draws;
use flashcliff_candle::models::{Architecture, Model, ModelOptions};
use flashcliff_candle::objective::{Features, Objective, ObjectiveOptions};
use flashcliff_candle::optim::{Adam, AdamOptions, LossScaleOptions};
use flashcliff_candle::precision::{self, Precision};

use crate::compare::{assert_close, values};
use crate::models::{ALL, data};
use crate::trials::{Tests, gpu};

const ROWS: usize = 12;
const STEPS: usize = 20;

pub(crate) fn add(tests: &mut Tests) {
    for architecture in ALL.into_iter().filter(|own| own.has_plan()) {
        let name = architecture.name();
        tests.add(format!("objective::{name}::numbers"), move || {
            for (dtype, bound) in [(DType::F64, 1e-10), (DType::F32, 1e-3)] {
                for parts in [1, 3] {
                    numbers(architecture, dtype, bound, parts);
                }
            }
        });
        tests.add(
            format!("objective::{name}::bits_are_those_of_eager_steps"),
            move || {
                for parts in [1, 3] {
                    captured(architecture, parts);
                }
            },
        );
        tests.add(format!("objective::{name}::checkpointing"), move || {
            for capture in [Capture::Off, Capture::Auto] {
                for parts in [1, 3] {
                    checkpointed(architecture, parts, capture, Features::Model);
                }
            }
            for features in [Features::Bf16, Features::F16] {
                checkpointed(architecture, 1, Capture::Auto, features);
            }
        });
    }
    tests.add("objective::gravity::checkpointing", || {
        for capture in [Capture::Off, Capture::Auto] {
            for parts in [1, 3] {
                checkpointed(Architecture::Gravity, parts, capture, Features::Model);
            }
        }
    });
    tests.add("objective::gravity::dropout", dropped);
    tests.add("objective::gravity::checkpointing::memory", gravity_memory);
    tests.add("objective::checkpointing::memory", checkpointed_memory);
    tests.add("objective::nodes", nodes);
    tests.add("objective::counted_memory", counted_memory);
    tests.add("objective::precision", rounding);
    tests.add("objective::batches_that_do_not_fit", too_large);
}

/// The buffers of 2^30 samples of the hulls network are more than a GPU has.
fn too_large() {
    let model = Model::on_device(Architecture::Hulls, 3, DType::F32, gpu()).unwrap();
    let error = Objective::new(&model, 1 << 30, 1).unwrap_err().to_string();
    for part in [
        "training hulls",
        "GiB of memory",
        "the largest batch that fits is",
    ] {
        assert!(error.contains(part), "{error}");
    }
    // Nothing was taken, so the next ones find their room.
    Objective::new(&model, 1024, 1).unwrap();
}

/// Error and gradients agree with candle's graph on the CPU in `f64`, for two batches one after the other.
fn numbers(architecture: Architecture, dtype: DType, bound: f64, parts: usize) {
    let here = Model::new(architecture, 5, DType::F64).unwrap();
    let there = Model::on_device(architecture, 5, dtype, gpu()).unwrap();
    let mut expected = Objective::through_graph(&here, ROWS, 1).unwrap();
    let mut got = Objective::new(&there, ROWS, parts).unwrap();
    assert!(got.is_planned());
    let whole = data(architecture, 2 * ROWS, DType::F64, &Device::Cpu);
    for half in 0..2 {
        let batch: Vec<Tensor> = whole
            .iter()
            .map(|tensor| tensor.narrow(0, half * ROWS, ROWS).unwrap())
            .collect();
        let put = |tensor: &Tensor| {
            let tensor = tensor.to_dtype(dtype).unwrap();
            tensor.to_device(gpu()).unwrap()
        };
        let loss = got
            .evaluate(&batch.iter().map(put).collect::<Vec<_>>())
            .unwrap();
        assert_close(&loss, &expected.evaluate(&batch).unwrap(), bound, "loss");
        let pairs = here.parameters().variables().into_iter();
        for ((name, here), (_, there)) in pairs.zip(there.parameters().variables()) {
            let expected = expected.gradient_of(&here).unwrap().unwrap();
            let got = got.gradient_of(&there).unwrap().unwrap();
            assert_close(&got, &expected, bound, &name);
        }
    }
}

/// The losses and the bits of parameters and moments after some steps. With random numbers the network has dropout.
type Trained = (Vec<f32>, Vec<Vec<u64>>);

fn train(
    architecture: Architecture,
    parts: usize,
    capture: Capture,
    options: &ObjectiveOptions,
) -> Trained {
    let device = gpu();
    let dropout = options.draws.as_ref().map(|_| 0.2);
    let with = ModelOptions { dropout };
    let model = Model::with_options(architecture, with, 5, DType::F32, device).unwrap();
    let loss_scale = LossScaleOptions {
        initial: 1024.0,
        ..LossScaleOptions::default()
    };
    let adam = AdamOptions {
        clip_norm: Some(0.5),
        halt: true,
        loss_scale: (options.features == Features::F16).then_some(loss_scale),
        ..AdamOptions::default()
    };
    let mut adam = Adam::new(model.parameters().variables(), adam).unwrap();
    let options = ObjectiveOptions {
        loss_scale: adam.loss_scale().cloned(),
        ..options.clone()
    };
    let feed = Feed::new(data(architecture, 50, DType::F32, device), ROWS, STEPS).unwrap();
    let order: Vec<u32> = (0..(STEPS * ROWS) as u32).map(|at| at * 7 % 50).collect();
    feed.load(&order).unwrap();
    {
        let mut objective = Objective::with_options(&model, ROWS, parts, &options).unwrap();
        let mut step = Step::new(&feed, capture, |batch| {
            let loss = objective.evaluate(batch)?;
            adam.objective_step(&mut objective, &loss)?;
            Ok(loss)
        });
        (0..STEPS).for_each(|_| step.run().unwrap());
        assert_eq!(
            step.is_captured(),
            capture == Capture::Auto,
            "{:?}",
            step.fallback()
        );
    }
    assert_eq!(adam.refusals().unwrap().count, 0);
    let mut state = Checkpoint::new();
    model.export("model.", &mut state);
    adam.export("adam.", &mut state).unwrap();
    let bits = |tensor: &Tensor| values(tensor).into_iter().map(f64::to_bits).collect();
    let bits = state.tensors().values().map(bits).collect();
    (feed.losses().unwrap(), bits)
}

fn captured(architecture: Architecture, parts: usize) {
    let options = ObjectiveOptions::default();
    let eager = train(architecture, parts, Capture::Off, &options);
    let captured = train(architecture, parts, Capture::Auto, &options);
    assert_eq!(eager.0, captured.0);
    assert!(eager.1 == captured.1, "parameters or moments differ");
    assert!(eager.0.windows(2).all(|pair| pair[0] != pair[1]));
}

/// A captured step with dropout draws the numbers of an eager one, whether blocks run again or not.
fn dropped() {
    for parts in [1, 3] {
        let run = |capture, gradient_checkpointing| {
            let draws = Draws::new(9, gpu()).unwrap();
            let options = ObjectiveOptions {
                gradient_checkpointing,
                draws: Some(draws.clone()),
                ..ObjectiveOptions::default()
            };
            let trained = train(Architecture::Gravity, parts, capture, &options);
            assert_eq!(draws.passes().unwrap() as usize, STEPS * parts);
            trained
        };
        let eager = run(Capture::Off, false);
        for gradient_checkpointing in [false, true] {
            let captured = run(Capture::Auto, gradient_checkpointing);
            assert_eq!(eager.0, captured.0);
            assert!(eager.1 == captured.1, "parameters or moments differ");
        }
        let options = ObjectiveOptions::default();
        let without = train(Architecture::Gravity, parts, Capture::Off, &options);
        assert!(eager.0.iter().zip(&without.0).all(|(a, b)| a != b));
    }
}

/// Training with gradient checkpointing gives the bits of training without.
fn checkpointed(architecture: Architecture, parts: usize, capture: Capture, features: Features) {
    let [kept, again] = [false, true].map(|gradient_checkpointing| {
        let options = ObjectiveOptions {
            features,
            gradient_checkpointing,
            ..ObjectiveOptions::default()
        };
        train(architecture, parts, capture, &options)
    });
    let run = format!("{parts} parts, {capture:?}, {features:?}");
    assert_eq!(kept.0, again.0, "{run}");
    assert!(kept.1 == again.1, "{run}: parameters or moments differ");
}

/// The pool holds less by the buffers that hulls' layers do not keep: of 13 values in the full algebra for each row 7 stay, beside 4
/// gradients.
fn checkpointed_memory() {
    let rows = 1 << 14;
    let device = flashcliff::Device::cuda(0).unwrap();
    let model = Model::on_device(Architecture::Hulls, 5, DType::F32, gpu()).unwrap();
    let held = |gradient_checkpointing| {
        let options = ObjectiveOptions {
            gradient_checkpointing,
            ..ObjectiveOptions::default()
        };
        gpu().synchronize().unwrap();
        let before = device.pool_memory().unwrap().used;
        let objective = Objective::with_options(&model, rows, 1, &options).unwrap();
        gpu().synchronize().unwrap();
        let used = device.pool_memory().unwrap().used - before;
        let bytes = objective.buffer_bytes().unwrap() as u64;
        assert!(used >= bytes, "{used} bytes in use, {bytes} counted");
        used
    };
    let [kept, again] = [held(false), held(true)];
    let activation = 4 * (32 * rows * 32) as u64;
    println!("hulls, {rows} rows: {kept} bytes, {again} with checkpointing");
    assert!(kept - again >= 6 * activation, "{kept}, {again}");
    assert!(kept - again <= 7 * activation, "{kept}, {again}");
}

/// An objective takes the memory that was counted when its room was asked for: each allocation is at most a few hundred bytes larger.
fn counted_memory() {
    let device = flashcliff::Device::cuda(0).unwrap();
    for architecture in [Architecture::Hulls, Architecture::Volumes] {
        for (rows, parts) in [(128, 1), (2048, 2)] {
            let model = Model::on_device(architecture, 5, DType::F32, gpu()).unwrap();
            gpu().synchronize().unwrap();
            let before = device.pool_memory().unwrap().used;
            let mut objective = Objective::new(&model, rows, parts).unwrap();
            gpu().synchronize().unwrap();
            let used = u128::from(device.pool_memory().unwrap().used - before);
            let counted = objective.taken_bytes().unwrap();
            println!("{architecture:?}, {rows} rows: {used} bytes, {counted} counted");
            assert!(used >= counted, "{used} bytes in use, {counted} counted");
            assert!(used - counted <= 1 << 18, "{used}, {counted}");
            let batch = data(architecture, rows, DType::F32, gpu());
            objective.evaluate(&batch).unwrap();
        }
    }
}

/// The most that a step of gravity takes from the pool is less than half with checkpointing: one block of ten, and the inputs of all.
fn gravity_memory() {
    let rows = 1024;
    let device = flashcliff::Device::cuda(0).unwrap();
    let model = Model::on_device(Architecture::Gravity, 5, DType::F32, gpu()).unwrap();
    let batch = data(Architecture::Gravity, rows, DType::F32, gpu());
    let peak = |gradient_checkpointing| {
        let options = ObjectiveOptions {
            gradient_checkpointing,
            ..ObjectiveOptions::default()
        };
        let mut objective = Objective::with_options(&model, rows, 1, &options).unwrap();
        // The first batch makes the constants of the device.
        objective.evaluate(&batch).unwrap();
        drop(objective);
        let mut objective = Objective::with_options(&model, rows, 1, &options).unwrap();
        gpu().synchronize().unwrap();
        device.reset_pool_peak().unwrap();
        let before = device.pool_memory().unwrap().used;
        objective.evaluate(&batch).unwrap();
        gpu().synchronize().unwrap();
        device.pool_memory().unwrap().used_peak - before
    };
    let [kept, again] = [peak(false), peak(true)];
    println!("gravity, {rows} rows: {kept} bytes, {again} with checkpointing");
    assert!(2 * again < kept, "{kept}, {again}");
}

/// Products in TF32 differ from products in `f32`, by as much as TF32 rounds.
fn rounding() {
    let model = Model::on_device(Architecture::Hulls, 5, DType::F32, gpu()).unwrap();
    // Fewer rows take kernels that are exact in any case.
    let rows = 2048;
    let batch = data(Architecture::Hulls, rows, DType::F32, gpu());
    let run = |precision: Precision| {
        precision::set(precision);
        let mut objective = Objective::new(&model, rows, 1).unwrap();
        let loss = values(&objective.evaluate(&batch).unwrap())[0];
        let predictions = values(&model.forward(&batch[0]).unwrap());
        precision::set(Precision::Highest);
        (loss, predictions)
    };
    let (exact, predictions) = run(Precision::Highest);
    let (rounded, others) = run(Precision::Tf32);
    assert!(exact != rounded && predictions != others);
    assert!(
        (exact - rounded).abs() <= 1e-2 * exact,
        "{exact}, {rounded}"
    );
    let largest = predictions.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    for (exact, rounded) in predictions.iter().zip(others) {
        assert!(
            (exact - rounded).abs() <= 1e-2 * largest,
            "{exact}, {rounded}"
        );
    }
}

/// The graph of a step of the hulls model has kernels and next to nothing else. Through candle's graph it had 913
/// nodes, of which 207 were kernels, 86 fills, and 618 allocations and frees. When each pass of a linear map packed
/// its weights and unpacked its gradients, and each bias took two kernels, it had 96 kernels at batch 128.
fn nodes() {
    let device = gpu();
    for (architecture, most, fills) in [
        // Gradients of values of which only the first blade is used are filled.
        (Architecture::Hulls, 75, 2),
        (Architecture::Regression { width: 380 }, 80, 2),
        (Architecture::Volumes, 150, 0),
    ] {
        for rows in [128, 2048] {
            let model = Model::on_device(architecture, 5, DType::F32, device).unwrap();
            let mut adam =
                Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
            let feed = Feed::new(data(architecture, rows, DType::F32, device), rows, 10).unwrap();
            let mut objective = Objective::new(&model, rows, 1).unwrap();
            let mut step = Step::new(&feed, Capture::Auto, |batch| {
                let loss = objective.evaluate(batch)?;
                adam.objective_step(&mut objective, &loss)?;
                Ok(loss)
            });
            let order: Vec<u32> = (0..rows as u32).collect();
            feed.load(&order.repeat(6)).unwrap();
            (0..6).for_each(|_| step.run().unwrap());
            let Some(nodes) = step.nodes() else {
                panic!("not captured: {:?}", step.fallback());
            };
            println!("{} batch {rows}: {nodes:?}", architecture.name());
            assert!(nodes.kernels <= most, "{nodes:?}");
            assert_eq!(
                nodes.allocations + nodes.frees + nodes.copies,
                0,
                "{nodes:?}"
            );
            assert!(nodes.fills <= fills, "{nodes:?}");
        }
    }
}
