//! Adam and Lion on a GPU: compared with those on the CPU, and with sums in `f64`.
//!
//! The GPU rounds every operation as the CPU does, and both compute coefficients by the same operations in `f64`. So without
//! clipping and schedules, whose norm is added in another order and whose cosine is another function, the bits are equal.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff_candle::Error;
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::optim::{Adam, AdamOptions, Rule, Schedule, ScheduleShape};

use crate::compare::{random, values, variable};
use crate::trials::{Tests, gpu};

const STEPS: u64 = 12;
/// Sizes around the sizes of warps, of the parts of a launch, and of vectors.
const SIZES: [usize; 13] = [
    1, 2, 3, 31, 33, 255, 257, 1023, 1025, 4095, 4097, 8192, 100_003,
];

pub(crate) fn add(tests: &mut Tests) {
    for dtype in [DType::F32, DType::F64] {
        let name = dtype.as_str();
        tests.add(
            format!("optim::{name}::bits_are_those_of_the_cpu"),
            move || {
                for (weight_decay, decoupled) in [(0.0, false), (0.1, false), (0.1, true)] {
                    let options = AdamOptions {
                        weight_decay,
                        decoupled,
                        ..AdamOptions::default()
                    };
                    same_bits(dtype, &SIZES, options);
                }
                for decoupled in [false, true] {
                    let options = AdamOptions {
                        weight_decay: 0.1,
                        decoupled,
                        learning_rate: 1e-3,
                        ..AdamOptions::lion()
                    };
                    same_bits(dtype, &SIZES, options);
                }
            },
        );
        tests.add(format!("optim::{name}::many_parameters"), move || {
            // Two launches; a third one begins with one parameter.
            for count in [64, 65, 80, 129] {
                let sizes: Vec<usize> = (0..count).map(|i| 1 + 37 * i % 301).collect();
                same_bits(dtype, &sizes, AdamOptions::default());
            }
        });
        tests.add(format!("optim::{name}::schedules"), move || {
            for shape in [
                ScheduleShape::Constant,
                ScheduleShape::Cosine,
                ScheduleShape::HalfCosine,
            ] {
                schedule(dtype, shape);
            }
        });
        tests.add(format!("optim::{name}::clipping"), move || clipping(dtype));
        tests.add(format!("optim::{name}::adaptive_clipping"), move || {
            adaptive(dtype)
        });
        tests.add(format!("optim::{name}::refused_steps"), move || {
            refused(dtype)
        });
        tests.add(format!("optim::{name}::repeats"), move || repeats(dtype));
        tests.add(format!("optim::{name}::resumes"), move || resumes(dtype));
    }
    tests.add("optim::both_types_at_once", both_types);
    tests.add("optim::clocks", clocks);
    tests.add("optim::mixed_devices", mixed_devices);
}

/// Parameters with their optimiser.
struct Run {
    vars: Vec<Var>,
    adam: Adam,
}

impl Run {
    fn new(dtype: DType, sizes: &[usize], options: AdamOptions, device: &Device) -> Self {
        let vars = sizes.iter().enumerate().map(|(i, &size)| {
            let start = random(&[size], i as u64, dtype);
            variable(&start, dtype, device)
        });
        Self::of(vars.collect(), options)
    }

    fn of(vars: Vec<Var>, options: AdamOptions) -> Self {
        let named = vars
            .iter()
            .enumerate()
            .map(|(i, var)| (i.to_string(), var.clone()));
        let adam = Adam::new(named.collect(), options).unwrap();
        Self { vars, adam }
    }

    /// A loss whose gradients are the random numbers of a step, scaled.
    fn loss(&self, step: u64, scale: f64) -> Tensor {
        let mut loss: Option<Tensor> = None;
        for (i, var) in self.vars.iter().enumerate() {
            let gradient = random(var.dims(), 1000 * (step + 1) + i as u64, DType::F32);
            let gradient = (gradient * scale).unwrap().to_dtype(var.dtype()).unwrap();
            let gradient = gradient.to_device(var.device()).unwrap();
            let own = (var.as_tensor() * gradient).unwrap().sum_all().unwrap();
            let own = own.to_dtype(DType::F64).unwrap();
            loss = Some(match loss {
                None => own,
                Some(loss) => (loss + own).unwrap(),
            });
        }
        loss.unwrap()
    }

    fn step(&mut self, step: u64, scale: f64) {
        let gradients = self.loss(step, scale).backward().unwrap();
        self.adam.step(&gradients).unwrap();
    }

    fn bits(&self) -> Vec<u64> {
        let vars = self.vars.iter().flat_map(|var| values(var));
        vars.map(f64::to_bits).collect()
    }

    fn save(&self) -> Checkpoint {
        let mut checkpoint = Checkpoint::new();
        self.adam.export("", &mut checkpoint).unwrap();
        for (i, var) in self.vars.iter().enumerate() {
            checkpoint.insert(format!("var.{i}"), &var.to_device(&Device::Cpu).unwrap());
        }
        checkpoint
    }

    /// The bits of everything.
    fn whole(&self) -> Vec<(String, Vec<u64>)> {
        let checkpoint = self.save();
        let tensors = checkpoint.tensors().iter();
        let bits = |tensor: &Tensor| values(tensor).into_iter().map(f64::to_bits).collect();
        tensors
            .map(|(name, tensor)| (name.clone(), bits(tensor)))
            .collect()
    }
}

fn same_bits(dtype: DType, sizes: &[usize], options: AdamOptions) {
    let mut here = Run::new(dtype, sizes, options, &Device::Cpu);
    let mut there = Run::new(dtype, sizes, options, gpu());
    let start = there.bits();
    for step in 0..STEPS {
        // Gradients of very different sizes, so that the moments round.
        let scale = [1.0, 1e-3, 30.0][step as usize % 3];
        here.step(step, scale);
        there.step(step, scale);
        assert!(
            here.whole() == there.whole(),
            "{dtype:?}, {sizes:?}, step {step}"
        );
    }
    let end = there.bits();
    let stayed = start.iter().zip(&end).filter(|(a, b)| a == b).count();
    let most = match options.rule {
        // Each step of Lion is as long as the others, so some lead there and back.
        Rule::Lion => start.len() / 2,
        _ => 0,
    };
    assert!(stayed <= most, "{stayed} numbers of parameters stayed");
}

/// The learning rate is that of the formula: the first moments of an optimiser without memory are the gradients, so its steps are the
/// rate.
fn schedule(dtype: DType, shape: ScheduleShape) {
    let schedule = Schedule::new(shape, 10).with_warmup(3).with_floor(0.125);
    let options = AdamOptions {
        learning_rate: 0.5,
        beta1: 0.0,
        beta2: 0.0,
        eps: 0.0,
        schedule,
        ..AdamOptions::default()
    };
    let mut run = Run::of(vec![Var::zeros(3, dtype, gpu()).unwrap()], options);
    let mut expected = 0.0;
    for step in 0..14 {
        let weights = Tensor::new(&[-1.0f64, -2.0, -0.25], gpu()).unwrap();
        let weights = weights.to_dtype(dtype).unwrap();
        let loss = (run.vars[0].as_tensor() * weights)
            .unwrap()
            .sum_all()
            .unwrap();
        run.adam.backward_step(&loss).unwrap();
        expected += 0.5 * schedule.factor(step);
        let bound = if dtype == DType::F64 { 1e-14 } else { 1e-6 };
        for got in values(&run.vars[0]) {
            assert!(
                (got - expected).abs() <= bound * expected,
                "{shape:?}, step {step}: {got}, {expected}"
            );
        }
    }
}

/// The first moment after one step is a tenth of the clipped gradient.
fn clipping(dtype: DType) {
    for sizes in [&SIZES[..], &[5]] {
        for (scale, clip) in [(1.0, 0.5), (1e-6, 1.0), (1e4, 1e-3)] {
            let options = AdamOptions {
                clip_norm: Some(clip),
                ..AdamOptions::default()
            };
            let mut run = Run::new(dtype, sizes, options, gpu());
            let gradients = run.loss(0, scale).backward().unwrap();
            let own: Vec<Vec<f64>> = run
                .vars
                .iter()
                .map(|var| values(gradients.get(var).unwrap()))
                .collect();
            let squares: f64 = own.iter().flatten().map(|g| g * g).sum();
            let factor = (clip / squares.sqrt()).min(1.0);
            run.adam.step(&gradients).unwrap();
            let checkpoint = run.save();
            let unit = if dtype == DType::F64 {
                f64::EPSILON
            } else {
                f64::from(f32::EPSILON)
            };
            for (i, own) in own.iter().enumerate() {
                let moment = values(&checkpoint.tensors()[&format!("{i}.exp_avg")]);
                for (got, g) in moment.iter().zip(own) {
                    // The factor, its product with the gradient, the gain and its product are rounded; the sum of squares has an error
                    // of some units of `f64`.
                    let expected = 0.1 * factor * g;
                    let bound = (4.0 * unit + 1e-13) * expected.abs();
                    assert!((got - expected).abs() <= bound, "{i}: {got}, {expected}");
                }
            }
        }
    }
}

/// With one parameter of few elements the norm has the bits of the CPU's, so all of adaptive clipping has, over more steps than there are
/// records, and after a state was saved and read.
fn adaptive(dtype: DType) {
    let options = AdamOptions {
        adaptive_clipping: true,
        ..AdamOptions::default()
    };
    let mut here = Run::new(dtype, &[1], options, &Device::Cpu);
    let mut there = Run::new(dtype, &[1], options, gpu());
    for step in 0..130 {
        let scale = if step % 13 == 12 { 50.0 } else { 1.0 };
        here.step(step, scale);
        there.step(step, scale);
        assert!(here.whole() == there.whole(), "step {step}");
        if step == 20 || step == 90 {
            let state = there.save();
            let records = &state.tensors()["clip_records"];
            assert_eq!(records.dims(), [if step == 20 { 22 } else { 50 }]);
            there = Run::of(there.vars.clone(), options);
            there.adam.import("", &state).unwrap();
        }
    }
    // With others the norm differs in its last bits.
    let mut here = Run::new(dtype, &SIZES, options, &Device::Cpu);
    let mut there = Run::new(dtype, &SIZES, options, gpu());
    for step in 0..60 {
        let scale = if step % 13 == 12 { 50.0 } else { 1.0 };
        here.step(step, scale);
        there.step(step, scale);
    }
    let records = |run: &Run| values(&run.save().tensors()["clip_records"]);
    for (here, there) in records(&here).iter().zip(records(&there)) {
        assert!((here - there).abs() <= 1e-10 * here, "{here}, {there}");
    }
}

fn refused(dtype: DType) {
    for halt in [false, true] {
        let options = AdamOptions {
            halt,
            ..AdamOptions::default()
        };
        let mut run = Run::new(dtype, &[5000, 7, 300], options, gpu());
        run.step(0, 1.0);
        let before = run.whole();
        let endless = (run.loss(1, 1.0) + f64::INFINITY).unwrap();
        run.adam.backward_step(&endless).unwrap();
        assert!(run.whole() == before, "a loss that is infinite");
        // One gradient of many is not a number; the loss is one.
        for (at, number) in [(4999, f64::NAN), (0, f64::INFINITY)] {
            let mut weights = vec![1.0; 5000];
            weights[at] = number;
            let weights = Tensor::from_vec(weights, 5000, gpu()).unwrap();
            let weights = weights.to_dtype(dtype).unwrap();
            let loss = (run.vars[0].as_tensor() * weights)
                .unwrap()
                .sum_all()
                .unwrap();
            run.adam.step(&loss.backward().unwrap()).unwrap();
            assert!(run.whole() == before, "a gradient of {number}");
        }
        let found = run.adam.refusals().unwrap();
        assert_eq!((found.calls, found.count, found.first), (4, 3, Some(1)));
        run.step(2, 1.0);
        assert_eq!(run.whole() == before, halt, "halt: {halt}");
        assert_eq!(run.adam.refusals().unwrap().count, if halt { 4 } else { 3 });
        // A step that is not refused goes on as if there had been none that was.
        let mut other = Run::new(dtype, &[5000, 7, 300], options, gpu());
        other.step(0, 1.0);
        other.step(2, 1.0);
        assert_eq!(other.whole() == run.whole(), !halt);
    }
}

fn repeats(dtype: DType) {
    let run = || {
        let options = AdamOptions {
            clip_norm: Some(0.1),
            schedule: Schedule::new(ScheduleShape::Cosine, 20).with_warmup(4),
            ..AdamOptions::default()
        };
        let mut run = Run::new(dtype, &SIZES, options, gpu());
        (0..STEPS).for_each(|step| run.step(step, 3.0));
        run.whole()
    };
    let first = run();
    for _ in 0..5 {
        assert!(run() == first);
    }
}

fn resumes(dtype: DType) {
    for published in [AdamOptions::default(), AdamOptions::lion()] {
        resumes_with(dtype, published);
    }
}

fn resumes_with(dtype: DType, published: AdamOptions) {
    let options = AdamOptions {
        weight_decay: 0.01,
        decoupled: true,
        schedule: Schedule::new(ScheduleShape::Cosine, STEPS).with_warmup(4),
        ..published
    };
    let mut whole = Run::new(dtype, &SIZES, options, gpu());
    (0..STEPS).for_each(|step| whole.step(step, 1.0));
    let mut first = Run::new(dtype, &SIZES, options, gpu());
    (0..5).for_each(|step| first.step(step, 1.0));
    let checkpoint = first.save();
    let saved = first.whole();
    // The checkpoint is a copy: later steps do not change it.
    first.step(5, 1.0);
    let mut second = Run::new(dtype, &SIZES, options, gpu());
    for (i, var) in second.vars.iter().enumerate() {
        let tensor = &checkpoint.tensors()[&format!("var.{i}")];
        var.set(&tensor.to_device(gpu()).unwrap()).unwrap();
    }
    second.adam.import("", &checkpoint).unwrap();
    assert!(second.whole() == saved);
    (5..STEPS).for_each(|step| second.step(step, 1.0));
    assert!(second.whole() == whole.whole());
}

fn both_types() {
    let options = AdamOptions::default();
    let make = |device: &Device| {
        let vars = (0..70).map(|i| {
            let dtype = [DType::F32, DType::F32, DType::F64][i % 3];
            variable(&random(&[3 + i], i as u64, DType::F32), dtype, device)
        });
        Run::of(vars.collect(), options)
    };
    let (mut here, mut there) = (make(&Device::Cpu), make(gpu()));
    for step in 0..3 {
        here.step(step, 1.0);
        there.step(step, 1.0);
    }
    assert!(here.whole() == there.whole());
}

/// A parameter without a gradient is left alone, and its clock stops.
fn clocks() {
    let run = |device: &Device| {
        let options = AdamOptions::default();
        let mut run = Run::new(DType::F32, &[10, 20, 30], options, device);
        for step in 0..6usize {
            let own = &run.vars[step % 2];
            let loss = own.sqr().unwrap().sum_all().unwrap();
            run.adam.step(&loss.backward().unwrap()).unwrap();
        }
        run.whole()
    };
    let got = run(gpu());
    assert!(got == run(&Device::Cpu));
    let steps = &got.iter().find(|(name, _)| name == "step").unwrap().1;
    assert_eq!(*steps, [3.0f64, 3.0, 0.0].map(f64::to_bits));
}

fn mixed_devices() {
    let vars =
        [Device::Cpu, gpu().clone()].map(|device| Var::zeros(2, DType::F32, &device).unwrap());
    let named = vars.into_iter().map(|var| ("p".to_owned(), var)).collect();
    let error = Adam::new(named, AdamOptions::default()).unwrap_err();
    assert!(
        matches!(error, Error::InputDevice { input: 1, .. }),
        "{error}"
    );
}
