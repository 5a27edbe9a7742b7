//! Captured steps: the bits of steps that are not captured, for all models, over ends of epochs and with all options.

use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::capture::{Capture, Fallback, Feed, Step};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions, Schedule, ScheduleShape};

use crate::compare::{random, values};
use crate::models::{ALL, data};
use crate::trials::{Tests, gpu};

const SAMPLES: usize = 50;
const BATCH: usize = 16;
/// Whole batches of an epoch.
const PER_EPOCH: usize = SAMPLES / BATCH;
const STEPS: usize = 50;

pub(crate) fn add(tests: &mut Tests) {
    for architecture in ALL {
        let name = architecture.name();
        tests.add(
            format!("capture::{name}::bits_are_those_of_eager_steps"),
            move || {
                let adaptive = AdamOptions {
                    clip_norm: None,
                    adaptive_clipping: true,
                    ..full()
                };
                for options in [AdamOptions::default(), full(), adaptive] {
                    same(architecture, options);
                }
            },
        );
        tests.add(format!("capture::{name}::resumes"), move || {
            resumes(architecture)
        });
        tests.add(format!("capture::{name}::follows_the_cpu"), move || {
            follows_the_cpu(architecture)
        });
        tests.add(format!("capture::{name}::times"), move || {
            times(architecture)
        });
    }
    tests.add("capture::batches_are_those_of_the_cpu", batches);
    tests.add("capture::refused_steps", refused);
    tests.add("capture::learning_rate", learning_rate);
    tests.add("capture::fallbacks", fallbacks);
}

/// All options that have numbers on the device.
fn full() -> AdamOptions {
    AdamOptions {
        weight_decay: 0.01,
        decoupled: true,
        clip_norm: Some(0.5),
        schedule: Schedule::new(ScheduleShape::Cosine, STEPS as u64).with_warmup(7),
        halt: true,
        ..AdamOptions::default()
    }
}

/// The order of steps: shuffled epochs without their incomplete last batch.
fn order(steps: std::ops::Range<usize>) -> Vec<u32> {
    let batch = |step: usize| {
        let (epoch, at) = (step / PER_EPOCH, step % PER_EPOCH);
        let keys = values(&random(&[SAMPLES], 77 + epoch as u64, DType::F64));
        let mut places: Vec<u32> = (0..SAMPLES as u32).collect();
        places.sort_by(|&a, &b| keys[a as usize].total_cmp(&keys[b as usize]));
        places[at * BATCH..(at + 1) * BATCH].to_vec()
    };
    steps.flat_map(batch).collect()
}

/// A training run on some device.
struct Run {
    losses: Vec<f32>,
    state: Checkpoint,
    captured: bool,
}

impl Run {
    /// Trains from a state, or from the start, and reads the losses in intervals.
    fn new(
        architecture: Architecture,
        options: AdamOptions,
        capture: Capture,
        device: &Device,
        from: Option<&Checkpoint>,
        steps: std::ops::Range<usize>,
    ) -> Self {
        const INTERVAL: usize = 7;
        let model = Model::on_device(architecture, 5, DType::F32, device).unwrap();
        let mut adam = Adam::new(model.parameters().variables(), options).unwrap();
        if let Some(state) = from {
            model.import("model.", state).unwrap();
            adam.import("adam.", state).unwrap();
        }
        let feed = Feed::new(
            data(architecture, SAMPLES, DType::F32, device),
            BATCH,
            INTERVAL,
        )
        .unwrap();
        let mut losses = Vec::new();
        let captured = {
            let mut step = Step::new(&feed, capture, |batch| {
                let loss = model.losses(&batch[0], &batch[1], None)?.objective;
                adam.backward_step(&loss)?;
                Ok(loss)
            });
            let mut at = steps.start;
            while at < steps.end {
                let end = steps.end.min(at + INTERVAL);
                feed.load(&order(at..end)).unwrap();
                for _ in at..end {
                    step.run().unwrap();
                }
                losses.extend(feed.losses().unwrap());
                at = end;
            }
            if let (Capture::Auto, true) = (capture, device.is_cuda()) {
                assert_eq!(step.fallback(), None);
            }
            step.is_captured()
        };
        assert_eq!(adam.refusals().unwrap().count, 0);
        let mut state = Checkpoint::new();
        model.export("model.", &mut state);
        adam.export("adam.", &mut state).unwrap();
        Self {
            losses,
            state,
            captured,
        }
    }

    fn bits(&self) -> Vec<Vec<u64>> {
        let tensors = self.state.tensors().values();
        tensors
            .map(|tensor| values(tensor).into_iter().map(f64::to_bits).collect())
            .collect()
    }
}

fn same(architecture: Architecture, options: AdamOptions) {
    let run = |capture| Run::new(architecture, options, capture, gpu(), None, 0..STEPS);
    let (eager, captured) = (run(Capture::Off), run(Capture::Auto));
    assert!(captured.captured && !eager.captured);
    assert_eq!(captured.losses.len(), STEPS);
    let bits = |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&captured.losses), bits(&eager.losses));
    assert!(
        captured.bits() == eager.bits(),
        "parameters or moments differ"
    );
    // A second capture is the first.
    assert!(run(Capture::Auto).bits() == captured.bits());
    let changed = captured.losses.windows(2).filter(|pair| pair[0] != pair[1]);
    assert_eq!(changed.count(), STEPS - 1, "a batch was seen twice");
}

fn resumes(architecture: Architecture) {
    let run = |from, steps| Run::new(architecture, full(), Capture::Auto, gpu(), from, steps);
    let whole = run(None, 0..STEPS);
    let first = run(None, 0..23);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.safetensors");
    first.state.save(&file).unwrap();
    let second = run(Some(&Checkpoint::load(&file).unwrap()), 23..STEPS);
    assert!(second.captured);
    assert_eq!(second.losses, whole.losses[23..]);
    assert!(second.bits() == whole.bits());
}

fn follows_the_cpu(architecture: Architecture) {
    let steps = 0..8;
    let here = Run::new(
        architecture,
        full(),
        Capture::Auto,
        &Device::Cpu,
        None,
        steps.clone(),
    );
    let there = Run::new(architecture, full(), Capture::Auto, gpu(), None, steps);
    assert!(!here.captured && there.captured);
    for (here, there) in here.losses.iter().zip(&there.losses) {
        assert!(
            (here - there).abs() <= 1e-3 * there.abs().max(1e-3),
            "{here} and {there}"
        );
    }
}

/// The time of a step as the program makes it, for the log, and the nodes of its graph. Only the capture is asserted:
/// times depend on the machine.
fn times(architecture: Architecture) {
    // A simplicial complex has 92 nodes.
    let large = match architecture {
        Architecture::SimplicialHulls => 256,
        _ => 2048,
    };
    for batch in [128, large] {
        let device = gpu();
        let mut line = format!("{} batch {batch}:", architecture.name());
        for capture in [Capture::Off, Capture::Auto] {
            let model = Model::on_device(architecture, 5, DType::F32, device).unwrap();
            let mut adam = Adam::new(model.parameters().variables(), full()).unwrap();
            let feed =
                Feed::new(data(architecture, batch, DType::F32, device), batch, 100).unwrap();
            let mut objective = Objective::new(&model, batch, 1).unwrap();
            let mut step = Step::new(&feed, capture, |batch| {
                let loss = objective.evaluate(batch)?;
                adam.objective_step(&mut objective, &loss)?;
                Ok(loss)
            });
            let all: Vec<u32> = (0..batch as u32).collect();
            let mut seconds = 0.0;
            for _ in 0..3 {
                feed.load(&all.repeat(30)).unwrap();
                let start = Instant::now();
                (0..30).for_each(|_| step.run().unwrap());
                feed.losses().unwrap();
                seconds = start.elapsed().as_secs_f64() / 30.0;
            }
            assert_eq!(step.is_captured(), capture == Capture::Auto);
            line += &format!(" {capture:?} {:.3} ms", seconds * 1e3);
            if let Some(nodes) = step.nodes() {
                line += &format!(", {nodes:?}, {:?}", feed.pool_memory().unwrap());
            }
        }
        println!("{line}");
    }
}

fn batches() {
    for dtype in [DType::F32, DType::F64] {
        let wide = random(&[SAMPLES, 3, 5], 3, DType::F32)
            .to_dtype(dtype)
            .unwrap();
        let flat = random(&[SAMPLES], 4, DType::F32).to_dtype(dtype).unwrap();
        let run = |device: &Device| {
            let tensors = [&wide, &flat].map(|tensor| tensor.to_device(device).unwrap());
            let feed = Feed::new(tensors.to_vec(), BATCH, 5).unwrap();
            let seen = std::cell::RefCell::new(Vec::new());
            let mut step = Step::new(&feed, Capture::Off, |batch| {
                seen.borrow_mut()
                    .push((values(&batch[0]), values(&batch[1])));
                Ok(batch[1].mean_all()?)
            });
            for steps in [0..5, 5..7, 7..12] {
                feed.load(&order(steps.clone())).unwrap();
                steps.for_each(|_| step.run().unwrap());
                assert!(step.run().is_err(), "no batch is left");
            }
            drop(step);
            (seen.into_inner(), feed.losses().unwrap())
        };
        let ((here, means), (there, others)) = (run(&Device::Cpu), run(gpu()));
        assert!(here == there);
        for (mean, other) in means.iter().zip(others) {
            assert!((mean - other).abs() < 1e-5);
        }
    }
}

/// A loss that is not a number in the middle of a captured run stops it there.
fn refused() {
    let device = gpu();
    let architecture = Architecture::Volumes;
    let run = |poisoned: bool, steps: usize| {
        let model = Model::on_device(architecture, 5, DType::F32, device).unwrap();
        let mut adam = Adam::new(model.parameters().variables(), full()).unwrap();
        let mut tensors = data(architecture, SAMPLES, DType::F32, device);
        if poisoned {
            let mut targets: Vec<f32> = tensors[1].to_vec1().unwrap();
            targets[SAMPLES - 1] = f32::NAN;
            tensors[1] = Tensor::from_vec(targets, SAMPLES, device).unwrap();
        }
        let feed = Feed::new(tensors, 2, 20).unwrap();
        {
            let mut step = Step::new(&feed, Capture::Auto, |batch| {
                let loss = (model.forward(&batch[0])? - &batch[1])?.sqr()?.mean_all()?;
                adam.backward_step(&loss)?;
                Ok(loss)
            });
            let order: Vec<u32> = (0..20)
                .flat_map(|step| match step {
                    12 => [3, SAMPLES as u32 - 1],
                    _ => [step, step + 1],
                })
                .collect();
            feed.load(&order).unwrap();
            (0..steps).for_each(|_| step.run().unwrap());
        }
        let mut state = Checkpoint::new();
        model.export("model.", &mut state);
        adam.export("adam.", &mut state).unwrap();
        let bits: Vec<Vec<f64>> = state.tensors().values().map(values).collect();
        (bits, feed.losses().unwrap(), adam.refusals().unwrap())
    };
    let (stopped, losses, refusals) = run(true, 20);
    let (expected, others, none) = run(false, 12);
    assert_eq!(none.count, 0);
    assert_eq!(
        (refusals.calls, refusals.count, refusals.first),
        (20, 8, Some(12))
    );
    assert_eq!(losses[..12], others[..]);
    assert!(losses[12].is_nan());
    assert!(
        stopped == expected,
        "a step after the refused one changed something"
    );
}

/// A captured step takes a new learning rate.
fn learning_rate() {
    let device = gpu();
    let var = candle_core::Var::zeros(4, DType::F32, device).unwrap();
    let options = AdamOptions {
        beta1: 0.0,
        beta2: 0.0,
        eps: 0.0,
        learning_rate: 1.0,
        ..AdamOptions::default()
    };
    let adam = Adam::new(vec![("p".to_owned(), var.clone())], options).unwrap();
    let adam = std::cell::RefCell::new(adam);
    let feed = Feed::new(
        vec![Tensor::ones((3, 4), DType::F32, device).unwrap()],
        3,
        20,
    )
    .unwrap();
    let mut step = Step::new(&feed, Capture::Auto, |batch| {
        let loss = batch[0].broadcast_mul(&var)?.sum_all()?;
        adam.borrow_mut().backward_step(&loss)?;
        Ok(loss)
    });
    feed.load(&[0, 1, 2].repeat(12)).unwrap();
    (0..8).for_each(|_| step.run().unwrap());
    assert!(step.is_captured());
    adam.borrow_mut().set_learning_rate(0.25).unwrap();
    (0..4).for_each(|_| step.run().unwrap());
    assert_eq!(values(&var), [-9.0; 4]);
}

/// Steps that cannot be captured run as they are, with the reason.
fn fallbacks() {
    let device = gpu();
    let data = Tensor::arange(0f32, 8., device).unwrap();
    let losses = |run: &mut dyn FnMut(&[Tensor]) -> Result<Tensor, flashcliff_candle::Error>| {
        let feed = Feed::new(vec![data.clone()], 1, 8).unwrap();
        let mut step = Step::new(&feed, Capture::Auto, run);
        feed.load(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        (0..8).for_each(|_| step.run().unwrap());
        assert!(!step.is_captured());
        let reason = step.fallback().cloned();
        drop(step);
        let losses = feed.losses().unwrap();
        assert_eq!(losses, [0., 1., 2., 3., 4., 5., 6., 7.]);
        reason
    };
    // A number is read back.
    let reason = losses(&mut |batch| {
        let number = batch[0].to_vec1::<f32>()?[0];
        Ok(Tensor::new(number, device)?)
    });
    assert!(matches!(reason, Some(Fallback::Failed(_))), "{reason:?}");
    // A tensor outlives the step.
    let mut kept = Vec::new();
    let reason = losses(&mut |batch| {
        kept.push((&batch[0] + 1.0)?);
        Ok(batch[0].sum_all()?)
    });
    let Some(Fallback::Failed(text)) = reason else {
        panic!("{reason:?}");
    };
    assert!(text.contains("outlive"), "{text}");
    // The tensor of the capture has no memory: freeing it would be an error.
    std::mem::forget(kept);
    // The device works as before.
    assert_eq!(values(&(&data + 1.0).unwrap())[7], 8.0);
    // A device whose memory is tracked.
    let tracked = Device::new_cuda_with_stream(0).unwrap();
    let feed = Feed::new(vec![Tensor::ones(3, DType::F32, &tracked).unwrap()], 1, 8).unwrap();
    let step = Step::new(&feed, Capture::Auto, |batch| Ok(batch[0].sum_all()?));
    assert_eq!(step.fallback(), Some(&Fallback::Tracked));
    let step = Step::new(&feed, Capture::Off, |batch| Ok(batch[0].sum_all()?));
    assert_eq!(step.fallback(), Some(&Fallback::Off));
}
