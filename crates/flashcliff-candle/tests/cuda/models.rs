//! Tests of the models in training.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::explain;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::optim::{Adam, AdamOptions};

use crate::compare::{assert_same, random, values};
use crate::trials::{Tests, gpu};

const STEPS: usize = 8;
const BATCH: usize = 16;

pub(crate) const ALL: [Architecture; 10] = [
    Architecture::Hulls,
    Architecture::Regression { width: 20 },
    Architecture::Volumes,
    Architecture::Bodies,
    Architecture::Bodies5d,
    Architecture::SimplicialHulls,
    Architecture::AffineHulls,
    Architecture::Invariants,
    Architecture::Forces,
    Architecture::Gravity,
];

pub(crate) fn add(tests: &mut Tests) {
    for architecture in ALL {
        let name = architecture.name();
        tests.add(
            format!("models::{name}::losses_are_those_of_the_cpu"),
            move || {
                losses(architecture);
            },
        );
        tests.add(format!("models::{name}::pages_name_kernels"), move || {
            explained(architecture);
        });
        tests.add(format!("models::{name}::repeats"), move || {
            repeats(architecture)
        });
        tests.add(format!("models::{name}::resumes"), move || {
            resumes(architecture)
        });
        tests.add(
            format!("models::{name}::checkpoint_to_the_cpu"),
            move || {
                checkpoint(architecture);
            },
        );
    }
}

/// Points of so many rows and their targets, the same numbers for each type and device.
pub(crate) fn data(
    architecture: Architecture,
    rows: usize,
    dtype: DType,
    device: &Device,
) -> Vec<Tensor> {
    let shapes = architecture.shapes(rows).into_iter().zip(1..);
    let made = shapes.map(|(shape, seed)| {
        let tensor = random(&shape, seed, DType::F32).to_dtype(dtype).unwrap();
        tensor.to_device(device).unwrap()
    });
    made.collect()
}

/// A run of training.
struct Run {
    model: Model,
    adam: Adam,
}

impl Run {
    fn new(architecture: Architecture, dtype: DType, device: &Device) -> Self {
        let model = Model::on_device(architecture, 5, dtype, device).unwrap();
        let options = AdamOptions {
            weight_decay: 0.01,
            ..AdamOptions::default()
        };
        let adam = Adam::new(model.parameters().variables(), options).unwrap();
        Self { model, adam }
    }

    fn loss(&self, step: usize) -> candle_core::Result<Tensor> {
        let [points, targets] = self.model.architecture().shapes(BATCH);
        let var = &self.model.parameters().variables()[0].1;
        let put = |tensor: Tensor| tensor.to_dtype(var.dtype())?.to_device(var.device());
        let points = put(random(&points, 2 * step as u64, DType::F32))?;
        let targets = random(&targets, 2 * step as u64 + 1, DType::F32);
        Ok(self.model.losses(&points, &put(targets)?, None)?.objective)
    }

    fn train(&mut self, steps: std::ops::Range<usize>) -> Vec<f64> {
        steps
            .map(|step| {
                let loss = self.loss(step).unwrap();
                self.adam.step(&loss.backward().unwrap()).unwrap();
                values(&loss)[0]
            })
            .collect()
    }

    fn save(&self) -> Checkpoint {
        let mut checkpoint = Checkpoint::new();
        self.model.export("model.", &mut checkpoint);
        self.adam.export("adam.", &mut checkpoint).unwrap();
        checkpoint
    }

    fn load(&mut self, checkpoint: &Checkpoint) {
        self.model.import("model.", checkpoint).unwrap();
        self.adam.import("adam.", checkpoint).unwrap();
    }

    fn assert_same(&self, other: &Self) {
        let pairs = self.model.parameters().variables().into_iter();
        for ((name, a), (_, b)) in pairs.zip(other.model.parameters().variables()) {
            assert_same(&a, &b, &name);
        }
    }
}

fn losses(architecture: Architecture) {
    for (dtype, bound) in [(DType::F32, 1e-3), (DType::F64, 1e-9)] {
        let expected = Run::new(architecture, DType::F64, &Device::Cpu).train(0..STEPS);
        let got = Run::new(architecture, dtype, gpu()).train(0..STEPS);
        // Parameters of one seed differ between the types by rounding.
        for (step, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let error = (got - expected).abs();
            assert!(
                error <= bound * expected.abs().max(1e-3),
                "{dtype:?}, step {step}: expected {expected} within {bound:e}, got {got}"
            );
        }
    }
}

/// Pages change no result, and name the kernels of the plan of both passes.
fn explained(architecture: Architecture) {
    let losses = Run::new(architecture, DType::F32, gpu()).train(0..2);
    let mut run = Run::new(architecture, DType::F32, gpu());
    let (again, pages) = explain::pages(None, || run.train(0..2));
    assert_eq!(losses, again);
    assert!(!pages.is_empty());
    for page in &pages {
        let is_named = page.text.contains("\n      kernels: ");
        assert!(
            is_named && page.text.contains(" with products in "),
            "{page:?}"
        );
    }
}

fn repeats(architecture: Architecture) {
    let run = || {
        let mut run = Run::new(architecture, DType::F32, gpu());
        let losses = run.train(0..STEPS);
        (run, losses)
    };
    let ((first, losses), (second, again)) = (run(), run());
    assert_eq!(losses, again);
    first.assert_same(&second);
}

fn resumes(architecture: Architecture) {
    let mut whole = Run::new(architecture, DType::F32, gpu());
    let losses = whole.train(0..STEPS);
    let mut first = Run::new(architecture, DType::F32, gpu());
    first.train(0..STEPS / 2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.safetensors");
    first.save().save(&file).unwrap();
    let mut second = Run::new(architecture, DType::F32, gpu());
    second.load(&Checkpoint::load(&file).unwrap());
    assert_eq!(second.train(STEPS / 2..STEPS), losses[STEPS / 2..]);
    whole.assert_same(&second);
}

fn checkpoint(architecture: Architecture) {
    let mut there = Run::new(architecture, DType::F32, gpu());
    there.train(0..2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.safetensors");
    there.save().save(&file).unwrap();
    let mut here = Run::new(architecture, DType::F32, &Device::Cpu);
    here.load(&Checkpoint::load(&file).unwrap());
    there.assert_same(&here);
    // The training continues on the CPU, close to the training on the GPU.
    let (here, there) = (here.train(2..4), there.train(2..4));
    for (here, there) in here.iter().zip(there) {
        assert!(
            (here - there).abs() <= 1e-3 * there.abs().max(1e-3),
            "{here} and {there}"
        );
    }
}
