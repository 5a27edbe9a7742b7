//! Training with features of 16 bits: gradients within bounds, skipped steps, captured steps, resumption, refused models.
//!
//! # Bounds of gradients
//! Let `u` be the unit roundoff of the type, `2^-8` for `bf16` and `2^-11` for `f16`, and let `r = u / 2` bound the
//! root mean square of the relative error of a rounding. Errors of roundings are independent, so their squares add. A
//! layer of a product doubles the error of what it gets, since both factors have it, and adds four roundings. From
//! three roundings before the first layer, the squares after four layers are 16, 68, 276, 1108 times `r^2`. A
//! gradient has the errors of the values that it is multiplied by at each layer, and the roundings on its way: 50 `r`
//! = 25 `u` at the first layer, relative to the norm of the gradient of a parameter. A computation in `f64` that
//! rounds where the GPU does gave 2 to 8 `u` for hulls. Volumes have two such layers and three gates, which less than
//! double an error. The test demands `u / 8` too, far above the errors of `f32`.
//!
//! A rectifier adds to this: a value within its error of 0 may change the side, and its gradient is then lost, or one too many. With an
//! error of 6 `u` these are about 5 `u` of all values, which is an error of `sqrt(5 u)` of the norm of all gradients together.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::Error;
use flashcliff_candle::capture::{Capture, Feed, Step};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::{Features, Objective, ObjectiveOptions};
use flashcliff_candle::optim::{Adam, AdamOptions, LossScaleOptions, LossScaleState};

use crate::compare::{random, values, variable};
use crate::trials::{Tests, gpu};

const SAMPLES: usize = 96;
const ROWS: usize = 48;
const TYPES: [(Features, f64); 2] = [(Features::Bf16, 0.00390625), (Features::F16, 0.00048828125)];

pub(crate) fn add(tests: &mut Tests) {
    let all = [
        Architecture::Hulls,
        Architecture::Regression { width: 40 },
        Architecture::Volumes,
        Architecture::Bodies,
        Architecture::Bodies5d,
    ];
    for architecture in all {
        let name = architecture.name();
        tests.add(format!("half::{name}::gradients"), move || {
            for parts in [1, 3] {
                gradients(architecture, parts);
            }
        });
        tests.add(format!("half::{name}::overflow"), move || {
            overflow(architecture)
        });
        tests.add(
            format!("half::{name}::bits_of_captured_steps_are_those_of_eager_ones"),
            move || captured(architecture),
        );
        tests.add(format!("half::{name}::resumes"), move || {
            resumes(architecture)
        });
        tests.add(format!("half::{name}::learns"), move || {
            learns(architecture)
        });
    }
    tests.add("half::changes_of_the_scale", changes);
    tests.add("half::refused_models", refused);
}

fn data(architecture: Architecture, size: f64, device: &Device) -> [Tensor; 2] {
    let [points, targets] = architecture.shapes(SAMPLES);
    let targets = (random(&targets, 2, DType::F32) * size).unwrap();
    [random(&points, 1, DType::F32), targets].map(|tensor| {
        let tensor = tensor.to_dtype(DType::F32).unwrap();
        tensor.to_device(device).unwrap()
    })
}

fn first(data: &[Tensor; 2]) -> Vec<Tensor> {
    let rows = data.iter().map(|tensor| tensor.narrow(0, 0, ROWS).unwrap());
    rows.collect()
}

fn model(architecture: Architecture) -> Model {
    Model::on_device(architecture, 5, DType::F32, gpu()).unwrap()
}

/// The error of a batch and all gradients, one after the other.
fn numbers(
    model: &Model,
    objective: &mut Objective,
    batch: &[Tensor],
) -> (f64, Vec<(String, Vec<f64>)>) {
    let loss = values(&objective.evaluate(batch).unwrap())[0];
    let variables = model.parameters().variables().into_iter();
    let all = variables.map(|(name, var)| {
        let gradient = objective.gradient_of(&var).unwrap().unwrap();
        assert_eq!(gradient.dtype(), var.dtype(), "{name}");
        (name, values(&gradient))
    });
    (loss, all.collect())
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

/// Gradients against those in `f64` on the CPU, without a scale and with one.
fn gradients(architecture: Architecture, parts: usize) {
    let here = Model::new(architecture, 5, DType::F64).unwrap();
    let there = model(architecture);
    let data = data(architecture, 1.0, &Device::Cpu);
    let wide: Vec<Tensor> = first(&data)
        .iter()
        .map(|t| t.to_dtype(DType::F64).unwrap())
        .collect();
    let batch: Vec<Tensor> = first(&data)
        .iter()
        .map(|t| t.to_device(gpu()).unwrap())
        .collect();
    let mut exact = Objective::through_graph(&here, ROWS, 1).unwrap();
    let (expected_loss, expected) = numbers(&here, &mut exact, &wide);
    let has_rectifiers = matches!(architecture, Architecture::Regression { .. });
    let whole = norm(
        expected
            .iter()
            .flat_map(|(_, values)| values.iter().copied()),
    );
    for (features, u) in TYPES {
        for exponent in [0, 10] {
            let scale = 2.0_f64.powi(exponent);
            let loss_scale = LossScaleOptions {
                initial: scale,
                ..LossScaleOptions::default()
            };
            let options = AdamOptions {
                loss_scale: (exponent > 0).then_some(loss_scale),
                ..AdamOptions::default()
            };
            let adam = Adam::new(there.parameters().variables(), options).unwrap();
            let options = ObjectiveOptions {
                features,
                loss_scale: adam.loss_scale().cloned(),
                ..ObjectiveOptions::default()
            };
            let mut objective = Objective::with_options(&there, ROWS, parts, &options).unwrap();
            assert!(objective.is_planned());
            // Numbers that a batch before left do not matter.
            let other: Vec<Tensor> = batch.iter().map(|t| (t * 0.5).unwrap()).collect();
            objective.evaluate(&other).unwrap();
            let (loss, got) = numbers(&there, &mut objective, &batch);
            let mut errors = Vec::new();
            for ((name, got), (_, expected)) in got.iter().zip(&expected) {
                let error = norm(got.iter().zip(expected).map(|(g, e)| g / scale - e));
                println!(
                    "{} {features:?} {name}: {:.2} u of its norm, {:.2} u of all",
                    architecture.name(),
                    error / norm(expected.iter().copied()).max(1e-300) / u,
                    error / whole / u
                );
                let own = norm(expected.iter().copied());
                assert!(has_rectifiers || error <= 25.0 * u * own, "{name}");
                errors.push(error);
            }
            let error = norm(errors.into_iter()) / whole;
            println!(
                "{} {features:?}: gradients {:.2} u, error {:.2} u",
                architecture.name(),
                error / u,
                (loss - expected_loss).abs() / expected_loss / u
            );
            assert!(
                error <= 32.0 * u && error >= u / 8.0,
                "{features:?}: {error}"
            );
            // The error is quadratic in what it subtracts, so it has twice the error of the prediction.
            assert!((loss - expected_loss).abs() <= 32.0 * u * expected_loss);
        }
    }
}

/// A training run.
struct Run {
    losses: Vec<f32>,
    state: Checkpoint,
    scale: Option<LossScaleState>,
}

/// The scale of these tests: too large at first, and growing soon.
fn eager_to_grow() -> LossScaleOptions {
    LossScaleOptions {
        initial: 2.0_f64.powi(24),
        growth: 8.0,
        interval: 5,
        ..LossScaleOptions::default()
    }
}

fn train(
    (architecture, features, size): (Architecture, Features, f64),
    scale: LossScaleOptions,
    parts: usize,
    capture: Capture,
    from: Option<&Checkpoint>,
    steps: std::ops::Range<usize>,
) -> Run {
    let model = model(architecture);
    let options = AdamOptions {
        clip_norm: Some(0.5),
        halt: true,
        loss_scale: (features == Features::F16).then_some(scale),
        ..AdamOptions::default()
    };
    let mut adam = Adam::new(model.parameters().variables(), options).unwrap();
    if let Some(state) = from {
        model.import("model.", state).unwrap();
        adam.import("adam.", state).unwrap();
    }
    let scale = adam.loss_scale().cloned();
    let options = ObjectiveOptions {
        features,
        loss_scale: scale.clone(),
        ..ObjectiveOptions::default()
    };
    let feed = Feed::new(data(architecture, size, gpu()).into(), ROWS, steps.len()).unwrap();
    let places = steps.start * ROWS..steps.end * ROWS;
    let order: Vec<u32> = places.map(|at| (at * 7 % SAMPLES) as u32).collect();
    feed.load(&order).unwrap();
    {
        let mut objective = Objective::with_options(&model, ROWS, parts, &options).unwrap();
        let mut step = Step::new(&feed, capture, |batch| {
            let loss = objective.evaluate(batch)?;
            adam.objective_step(&mut objective, &loss)?;
            Ok(loss)
        });
        steps.for_each(|_| step.run().unwrap());
        let reason = step.fallback();
        assert_eq!(step.is_captured(), capture == Capture::Auto, "{reason:?}");
        if let Some(nodes) = step.nodes() {
            assert_eq!(
                nodes.allocations + nodes.frees + nodes.copies,
                0,
                "{nodes:?}"
            );
        }
    }
    assert_eq!(adam.refusals().unwrap().count, 0);
    let mut state = Checkpoint::new();
    model.export("model.", &mut state);
    adam.export("adam.", &mut state).unwrap();
    Run {
        losses: feed.losses().unwrap(),
        state,
        scale: scale.map(|scale| scale.state().unwrap()),
    }
}

fn bits(state: &Checkpoint) -> Vec<Vec<u64>> {
    let bits = |tensor: &Tensor| values(tensor).into_iter().map(f64::to_bits).collect();
    state.tensors().values().map(bits).collect()
}

/// Gradients overflow at first, and again when the scale has grown; captured steps skip the same ones.
fn captured(architecture: Architecture) {
    for (features, _) in TYPES {
        for parts in [1, 3] {
            let case = (architecture, features, 100.0);
            let run = |capture| train(case, eager_to_grow(), parts, capture, None, 0..40);
            let (eager, captured) = (run(Capture::Off), run(Capture::Auto));
            assert_eq!(eager.losses, captured.losses);
            assert!(bits(&eager.state) == bits(&captured.state), "bits differ");
            assert_eq!(eager.scale, captured.scale);
            println!("{} {features:?}: {:?}", architecture.name(), captured.scale);
            assert!(bits(&run(Capture::Auto).state) == bits(&captured.state));
            if let Some(scale) = captured.scale {
                assert!(scale.skipped >= 2, "{scale:?}");
            }
        }
    }
}

fn resumes(architecture: Architecture) {
    for (features, _) in TYPES {
        let what = (architecture, features, 100.0);
        let run = |from, steps| train(what, eager_to_grow(), 1, Capture::Auto, from, steps);
        let whole = run(None, 0..40);
        let first = run(None, 0..17);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.safetensors");
        first.state.save(&file).unwrap();
        let second = run(Some(&Checkpoint::load(&file).unwrap()), 17..40);
        assert!(bits(&second.state) == bits(&whole.state));
        assert_eq!(second.losses, whole.losses[17..]);
        assert_eq!(second.scale, whole.scale);
    }
}

/// A planted overflow skips the step, halves the scale, and leaves parameters, moments and counts bit for bit.
fn overflow(architecture: Architecture) {
    let model = model(architecture);
    let options = AdamOptions {
        halt: true,
        loss_scale: Some(LossScaleOptions::default()),
        ..AdamOptions::default()
    };
    let mut adam = Adam::new(model.parameters().variables(), options).unwrap();
    let scale = adam.loss_scale().cloned();
    let options = ObjectiveOptions {
        features: Features::F16,
        loss_scale: scale.clone(),
        ..ObjectiveOptions::default()
    };
    let mut objective = Objective::with_options(&model, ROWS, 1, &options).unwrap();
    let saved = |adam: &Adam| {
        let mut state = Checkpoint::new();
        model.export("", &mut state);
        adam.export("", &mut state).unwrap();
        let tensors = state.tensors().iter();
        let tensors = tensors.filter(|(name, _)| *name != "loss_scale");
        let bits = |tensor: &Tensor| values(tensor).into_iter().map(f64::to_bits).collect();
        tensors
            .map(|(_, tensor)| bits(tensor))
            .collect::<Vec<Vec<u64>>>()
    };
    let mut step = |adam: &mut Adam, size: f64| {
        let loss = objective
            .evaluate(&first(&data(architecture, size, gpu())))
            .unwrap();
        adam.objective_step(&mut objective, &loss).unwrap();
        values(&loss)[0]
    };
    step(&mut adam, 1.0);
    let state = |adam: &Adam| adam.loss_scale().unwrap().state().unwrap();
    assert_eq!((state(&adam).scale, state(&adam).skipped), (65_536.0, 0));
    let before = saved(&adam);
    assert!(step(&mut adam, 1e6).is_finite());
    assert!(saved(&adam) == before, "a skipped step changed something");
    let found = state(&adam);
    assert_eq!((found.scale, found.good, found.skipped), (32_768.0, 0, 1));
    assert_eq!(adam.refusals().unwrap().count, 0);
    step(&mut adam, 1.0);
    assert!(saved(&adam) != before);
    assert_eq!(state(&adam).good, 1);
    // A loss that is infinite is refused, and does not change the scale.
    let before = (saved(&adam), state(&adam));
    assert!(step(&mut adam, 1e30).is_infinite());
    assert!((saved(&adam), state(&adam)) == before);
    assert_eq!(adam.refusals().unwrap().count, 1);
}

/// Losses follow those in `f32`: a step of Adam moves a weight by the rate, whatever the gradient's size, so the runs
/// stay together. No step is skipped, since the scale is small and does not grow; a run that skips steps lags.
fn learns(architecture: Architecture) {
    let scale = LossScaleOptions {
        initial: 512.0,
        ..LossScaleOptions::default()
    };
    let run = |features| {
        let case = (architecture, features, 1.0);
        train(case, scale, 1, Capture::Auto, None, 0..60)
    };
    let exact = run(Features::Model);
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    for (features, _) in TYPES {
        let half = run(features);
        assert!(half.losses != exact.losses, "f32 was used");
        assert!(half.scale.is_none_or(|scale| scale.skipped == 0));
        let pairs = half.losses.iter().zip(&exact.losses);
        let apart: Vec<f32> = pairs.map(|(own, exact)| (own - exact).abs()).collect();
        let (apart, all) = (mean(&apart), mean(&exact.losses));
        println!(
            "{} {features:?}: {apart} apart, of {all}",
            architecture.name()
        );
        assert!(apart <= 0.05 * all);
    }
}

/// The kernel changes the scale as the function does, and updates as the CPU does, over finite and infinite gradients.
fn changes() {
    let options = LossScaleOptions {
        initial: 16.0,
        growth: 4.0,
        backoff: 0.25,
        interval: 3,
        least: 0.5,
        most: 1024.0,
    };
    for dtype in [DType::F32, DType::F64] {
        let run = |device: &Device| {
            let sizes = [1, 33, 5000];
            let vars = sizes.map(|size| variable(&random(&[size], 4, dtype), dtype, device));
            let named = vars
                .iter()
                .enumerate()
                .map(|(at, var)| (at.to_string(), var.clone()));
            let adam_options = AdamOptions {
                loss_scale: Some(options),
                weight_decay: 0.01,
                ..AdamOptions::default()
            };
            let mut adam = Adam::new(named.collect(), adam_options).unwrap();
            let mut expected = options.start();
            let (mut history, mut refused) = (Vec::new(), 0);
            for step in 0..60_u64 {
                // Long runs of both kinds reach both bounds.
                let overflow = matches!(step, 20..=27) || step % 7 == 3;
                let mut loss = (vars[0].as_tensor() * 0.5).unwrap().sum_all().unwrap();
                for var in &vars[1..] {
                    let weights = random(var.dims(), step, dtype).to_dtype(dtype).unwrap();
                    let weights = weights.to_device(device).unwrap();
                    let own = (var.as_tensor() * weights).unwrap().sum_all().unwrap();
                    loss = (loss + own).unwrap();
                }
                let mut gradients = adam
                    .loss_scale()
                    .unwrap()
                    .multiply(&loss)
                    .unwrap()
                    .backward()
                    .unwrap();
                if overflow {
                    let planted = (vars[2].as_tensor() * f64::INFINITY).unwrap();
                    gradients.insert(&vars[2], planted);
                }
                adam.step(&gradients).unwrap();
                match options.next(expected, overflow) {
                    Some(next) => expected = next,
                    None => refused += 1,
                }
                assert_eq!(
                    adam.loss_scale().unwrap().state().unwrap(),
                    expected,
                    "{step}"
                );
                assert_eq!(adam.refusals().unwrap().count, refused);
                let bits = |var: &candle_core::Var| values(var).into_iter().map(f64::to_bits);
                history.push(vars.iter().flat_map(bits).collect::<Vec<u64>>());
            }
            assert!(refused > 0 && expected.skipped > 3);
            history
        };
        assert!(run(gpu()) == run(&Device::Cpu), "{dtype:?}");
    }
}

fn refused() {
    let half = ObjectiveOptions {
        features: Features::Bf16,
        ..ObjectiveOptions::default()
    };
    for (architecture, dtype, says) in [
        (
            Architecture::Gravity,
            DType::F32,
            "gravity, which goes through candle's graph",
        ),
        (
            Architecture::Hulls,
            DType::F64,
            "expected parameters of type F32, got F64",
        ),
    ] {
        let model = Model::on_device(architecture, 5, dtype, gpu()).unwrap();
        let error = Objective::with_options(&model, ROWS, 1, &half).unwrap_err();
        assert!(matches!(error, Error::Features { .. }));
        assert!(error.to_string().contains(says), "{error}");
    }
}
