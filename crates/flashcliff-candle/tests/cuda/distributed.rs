//! Two ranks, each with a GPU and a half of every batch, against one GPU with the whole batch.
//!
//! Ranks are threads here. Sums over two halves of a batch are added in another order, so results differ by rounding: in `f64`, where the
//! difference of a step is near 1e-16, some steps of Adam stay within 1e-9 of the largest number of a tensor.

use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::capture::{Capture, Feed, Step};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::device;
use flashcliff_candle::distributed::{Communicator, Links, Timing, World};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions};

use crate::compare::{assert_close, random, values};
use crate::trials::Tests;

/// The samples, the samples of a batch, and the steps.
const SAMPLES: usize = 48;
const ROWS: usize = 12;
const STEPS: usize = 12;

pub(crate) fn add(tests: &mut Tests) {
    for architecture in [Architecture::Hulls, Architecture::Volumes] {
        let name = architecture.name();
        for capture in [Capture::Off, Capture::Auto] {
            tests.add_on_two(
                format!("distributed::{name}::{capture:?}::one_gpu_with_the_whole_batch"),
                move || {
                    for (parts, clip) in [(1, Clip::None), (3, Clip::Fixed), (1, Clip::Adaptive)] {
                        two_are_one(architecture, capture, parts, clip);
                    }
                },
            );
        }
        tests.add_on_two(format!("distributed::{name}::gradients"), move || {
            gradients(architecture);
        });
        tests.add_on_two(format!("distributed::{name}::overlap"), move || {
            for capture in [Capture::Off, Capture::Auto] {
                for parts in [1, 3] {
                    overlapped(architecture, capture, parts);
                }
            }
        });
    }
}

#[derive(Clone, Copy, Debug)]
enum Clip {
    None,
    Fixed,
    Adaptive,
}

/// How a rank trains.
#[derive(Clone, Copy, Debug)]
struct Run {
    architecture: Architecture,
    dtype: DType,
    capture: Capture,
    parts: usize,
    clip: Clip,
    /// The buckets in which gradients are averaged over the ranks; 0 if they are not.
    buckets: usize,
}

/// The losses of all steps, and parameters, moments and records after them.
type Trained = (Vec<f32>, Checkpoint);

/// Runs a function on both ranks, with a communicator each, and returns both results.
fn on_two<R: Send + 'static>(
    work: fn(Run, &Device, Option<&Communicator>) -> R,
    run: Run,
) -> [R; 2] {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let ranks = [0, 1].map(|rank| {
        thread::spawn(move || {
            let world = World {
                rank,
                size: 2,
                local_rank: rank,
                host: Ipv4Addr::LOCALHOST.to_string(),
                port,
            };
            // If one thread panics, the other waits for it on its GPU for ever.
            let lost = |fault: &_| {
                eprintln!("{fault}");
                std::process::exit(101);
            };
            let links = Links::join(&world, "test", Timing::default(), &|| false, lost).unwrap();
            let device = device::cuda(rank).unwrap();
            let communicator = Communicator::new(&links, &device).unwrap();
            let result = work(run, &device, Some(&communicator));
            links.finish();
            result
        })
    });
    ranks.map(|rank| rank.join().unwrap())
}

fn data(run: Run, device: &Device) -> Vec<Tensor> {
    let (points, dim) = (run.architecture.points(), run.architecture.dim());
    let put = |tensor: Tensor| {
        let tensor = tensor.to_dtype(run.dtype).unwrap();
        tensor.to_device(device).unwrap()
    };
    vec![
        put(random(&[SAMPLES, points, dim], 1, DType::F32)),
        put(random(&[SAMPLES], 2, DType::F32)),
    ]
}

/// The model of rank 0, on every rank: others begin with another one.
fn model(run: Run, device: &Device, communicator: Option<&Communicator>) -> (Model, usize, usize) {
    let (rank, size) = match communicator {
        None => (0, 1),
        Some(_) => (
            usize::from(!device.same_device(&device::cuda(0).unwrap())),
            2,
        ),
    };
    let model = Model::on_device(run.architecture, 5 + rank as u64, run.dtype, device).unwrap();
    if let Some(communicator) = communicator {
        let variables = model.parameters().variables().into_iter();
        let tensors: Vec<Tensor> = variables.map(|(_, var)| var.as_tensor().clone()).collect();
        communicator.broadcast(&tensors).unwrap();
    }
    (model, rank, size)
}

fn train(run: Run, device: &Device, communicator: Option<&Communicator>) -> Trained {
    let (model, rank, size) = model(run, device, communicator);
    let options = AdamOptions {
        clip_norm: matches!(run.clip, Clip::Fixed).then_some(0.1),
        adaptive_clipping: matches!(run.clip, Clip::Adaptive),
        halt: true,
        ..AdamOptions::default()
    };
    let mut adam = Adam::new(model.parameters().variables(), options).unwrap();
    let rows = ROWS / size;
    let feed = Feed::new(data(run, device), rows, STEPS).unwrap();
    let order = (0..STEPS).flat_map(|step| {
        let own = rank * rows..(rank + 1) * rows;
        own.map(move |row| ((step * ROWS + row) * 7 % SAMPLES) as u32)
    });
    feed.load(&order.collect::<Vec<_>>()).unwrap();
    {
        let mut objective = Objective::new(&model, rows, run.parts).unwrap();
        let mut step = Step::new(&feed, run.capture, |batch| {
            let loss = match communicator.filter(|_| run.buckets > 0) {
                None => objective.evaluate(batch)?,
                Some(communicator) => communicator.evaluate(&mut objective, batch, run.buckets)?,
            };
            adam.objective_step(&mut objective, &loss)?;
            Ok(loss)
        });
        (0..STEPS).for_each(|_| step.run().unwrap());
        assert_eq!(
            step.is_captured(),
            run.capture == Capture::Auto,
            "{:?}",
            step.fallback()
        );
    }
    assert_eq!(adam.refusals().unwrap().count, 0);
    let mut state = Checkpoint::new();
    model.export("model.", &mut state);
    adam.export("adam.", &mut state).unwrap();
    (feed.losses().unwrap(), state.on_cpu().unwrap())
}

fn two_are_one(architecture: Architecture, capture: Capture, parts: usize, clip: Clip) {
    let run = Run {
        architecture,
        dtype: DType::F64,
        capture,
        parts,
        clip,
        buckets: 4,
    };
    let (losses, expected) = train(Run { parts: 1, ..run }, &device::cuda(0).unwrap(), None);
    let [zero, one] = on_two(train, run);
    assert_eq!(zero.0, one.0, "{run:?}");
    for (loss, expected) in zero.0.iter().zip(&losses) {
        assert!((loss - expected).abs() <= 1e-6 * expected.abs(), "{run:?}");
    }
    for (name, expected) in expected.tensors() {
        let [zero, one] = [&zero.1, &one.1].map(|state| &state.tensors()[name]);
        let bits = |tensor: &Tensor| -> Vec<u64> {
            values(tensor).into_iter().map(f64::to_bits).collect()
        };
        assert_eq!(bits(zero), bits(one), "{run:?}: {name}");
        assert_close(zero, expected, 1e-9, &format!("{run:?}: {name}"));
    }
    // The comparison notices ranks that do not average: each then learns from its half alone.
    let [apart, _] = on_two(train, Run { buckets: 0, ..run });
    let far = expected.tensors().iter().any(|(name, expected)| {
        let pairs = values(expected)
            .into_iter()
            .zip(values(&apart.1.tensors()[name]));
        let largest = values(expected)
            .into_iter()
            .fold(0.0, |a: f64, b| a.max(b.abs()));
        pairs
            .into_iter()
            .any(|(a, b)| (a - b).abs() > 1e-3 * largest)
    });
    assert!(far, "{run:?}");
}

/// Buckets that are averaged beside the backward pass give the bits of one bucket after it: of two numbers there is one sum. A bucket that
/// is averaged before its gradients are complete would give others. Overlapped runs are repeated, since such a mistake depends on time.
fn overlapped(architecture: Architecture, capture: Capture, parts: usize) {
    let run = Run {
        architecture,
        dtype: DType::F32,
        capture,
        parts,
        clip: Clip::Fixed,
        buckets: 1,
    };
    let bits = |(losses, state): &Trained| -> Vec<Vec<u64>> {
        let tensors = state.tensors().values().map(values);
        let losses = losses.iter().map(|&loss| f64::from(loss)).collect();
        let all = tensors.chain([losses]);
        all.map(|all| all.into_iter().map(f64::to_bits).collect())
            .collect()
    };
    let expected = on_two(train, run).each_ref().map(bits);
    assert!(expected[0] == expected[1], "{run:?}");
    for buckets in [2, 4, 4, 100] {
        let got = on_two(train, Run { buckets, ..run });
        assert!(
            got.each_ref().map(bits) == expected,
            "{buckets} buckets: {run:?}"
        );
    }
}

/// The gradients and the error of a batch in `f32`, by name.
fn batch_gradients(
    run: Run,
    device: &Device,
    communicator: Option<&Communicator>,
) -> Vec<(String, Tensor)> {
    let (model, rank, size) = model(run, device, communicator);
    let rows = ROWS / size;
    let mut objective = Objective::new(&model, rows, run.parts).unwrap();
    let own = |tensor: Tensor| tensor.narrow(0, rank * rows, rows).unwrap();
    let batch: Vec<Tensor> = data(run, device).into_iter().map(own).collect();
    let loss = objective.evaluate(&batch).unwrap();
    if let Some(communicator) = communicator {
        communicator.average(&mut objective, &loss).unwrap();
    }
    let put = |tensor: Tensor| tensor.to_device(&Device::Cpu).unwrap();
    let variables = model.parameters().variables().into_iter();
    let gradients = variables.map(|(name, var)| {
        let gradient = objective.gradient_of(&var).unwrap().unwrap();
        (name, put(gradient))
    });
    let mut all: Vec<_> = gradients.collect();
    all.push(("loss".to_owned(), put(loss)));
    all
}

/// The mean of the gradients of two halves is the gradient of the batch. A sum, or one half, would be far from it.
fn gradients(architecture: Architecture) {
    for (dtype, bound) in [(DType::F32, 1e-4), (DType::F64, 1e-12)] {
        let run = Run {
            architecture,
            dtype,
            capture: Capture::Off,
            parts: 1,
            clip: Clip::None,
            buckets: 1,
        };
        let expected = batch_gradients(run, &device::cuda(0).unwrap(), None);
        for got in on_two(batch_gradients, run) {
            for ((name, got), (_, expected)) in got.iter().zip(&expected) {
                assert_close(got, expected, bound, name);
            }
        }
    }
}
