//! The scale of a loss on the CPU, where `f32` overflows at large scales: its changes, skipped steps, resumption, refused options.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff_candle::Error;
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::{Features, Objective, ObjectiveOptions};
use flashcliff_candle::optim::{Adam, AdamOptions, LossScaleOptions, LossScaleState};

const ROWS: usize = 4;
const REGRESSION: Architecture = Architecture::Regression { width: 12 };
/// The models that have plans.
const PLANNED: [Architecture; 4] = [
    Architecture::Hulls,
    REGRESSION,
    Architecture::Volumes,
    Architecture::Bodies,
];

fn power(exponent: i32) -> f64 {
    2.0_f64.powi(exponent)
}

/// A generator of bits without a pattern.
fn bits() -> impl FnMut() -> bool {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 63 == 1
    }
}

/// The states of a long walk equal the states of a walk over exponents in whole numbers.
#[test]
fn scales_are_exact_powers_of_two_between_the_bounds() {
    let options = LossScaleOptions {
        initial: power(5),
        growth: 4.0,
        backoff: 0.125,
        interval: 3,
        least: power(-2),
        most: power(12),
    };
    let mut next = bits();
    let (mut exponent, mut good, mut skipped) = (5, 0, 0);
    let mut state = options.start();
    let (mut refused, mut at_most) = (0, 0);
    for _ in 0..20_000 {
        // One step of eight overflows, or less.
        let overflow = next() && next() && next();
        let got = options.next(state, overflow);
        if overflow && exponent == -2 {
            assert_eq!(got, None);
            refused += 1;
            continue;
        }
        if overflow {
            (exponent, good, skipped) = ((exponent - 3).max(-2), 0, skipped + 1);
        } else {
            good += 1;
            if good == 3 {
                (exponent, good) = ((exponent + 2).min(12), 0);
            }
        }
        at_most += usize::from(exponent == 12);
        state = got.expect("a scale");
        let found = (state.scale, state.good, state.skipped);
        assert_eq!(found, (power(exponent), good, skipped));
    }
    assert!(refused > 0 && at_most > 0 && skipped > 1000);
}

#[test]
fn options_outside_their_range_are_refused() {
    type Change = fn(&mut LossScaleOptions);
    let cases: [(&str, Change); 10] = [
        ("loss_scale.initial", |own| own.initial = 3.0),
        ("loss_scale.initial", |own| own.initial = 0.5),
        ("loss_scale.initial", |own| own.initial = power(25)),
        ("loss_scale.growth", |own| own.growth = 0.5),
        ("loss_scale.growth", |own| own.growth = 1.5),
        ("loss_scale.backoff", |own| own.backoff = 1.0),
        ("loss_scale.backoff", |own| own.backoff = 0.0),
        ("loss_scale.least", |own| own.least = -1.0),
        ("loss_scale.most", |own| own.most = f64::INFINITY),
        ("loss_scale.interval", |own| own.interval = 0),
    ];
    for (expected, change) in cases {
        let mut loss_scale = LossScaleOptions::default();
        change(&mut loss_scale);
        let options = AdamOptions {
            loss_scale: Some(loss_scale),
            ..AdamOptions::default()
        };
        match Adam::new(Vec::new(), options) {
            Err(Error::Option { option, .. }) => assert_eq!(option, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

/// A model with its optimiser and objective.
struct Run {
    model: Model,
    adam: Adam,
    objective: Objective,
}

impl Run {
    fn new(architecture: Architecture, loss_scale: Option<LossScaleOptions>) -> Self {
        let model = Model::new(architecture, 3, DType::F32).unwrap();
        let options = AdamOptions {
            clip_norm: Some(0.5),
            weight_decay: 0.01,
            loss_scale,
            ..AdamOptions::default()
        };
        let adam = Adam::new(model.parameters().variables(), options).unwrap();
        let options = ObjectiveOptions {
            loss_scale: adam.loss_scale().cloned(),
            ..ObjectiveOptions::default()
        };
        let objective = Objective::with_options(&model, ROWS, 2, &options).unwrap();
        Self {
            model,
            adam,
            objective,
        }
    }

    /// A step on its own batch, whose targets are as large as `size`.
    fn step(&mut self, seed: usize, size: f64) -> f32 {
        let [points, targets] = self.model.architecture().shapes(ROWS);
        let number = |at: usize| ((at * 37 + seed * 11) % 29) as f32 / 14.0 - 1.0;
        let tensor = |shape: Vec<usize>, number: &dyn Fn(usize) -> f32| {
            let numbers = (0..shape.iter().product()).map(number).collect();
            Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
        };
        let batch = [
            tensor(points, &number),
            tensor(targets, &|at| number(at + 5) * size as f32),
        ];
        let loss = self.objective.evaluate(&batch).unwrap();
        self.adam
            .objective_step(&mut self.objective, &loss)
            .unwrap();
        loss.to_scalar().unwrap()
    }

    fn scale(&self) -> LossScaleState {
        self.adam.loss_scale().unwrap().state().unwrap()
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

    /// The bits of parameters, moments and steps.
    fn bits(&self) -> Vec<(String, Vec<u64>)> {
        let saved = self.save();
        let tensors = saved.tensors().iter();
        let tensors = tensors.filter(|(name, _)| !name.ends_with("loss_scale"));
        tensors
            .map(|(name, tensor)| {
                let wide = tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
                let bits = wide.to_vec1::<f64>().unwrap();
                (name.clone(), bits.into_iter().map(f64::to_bits).collect())
            })
            .collect()
    }
}

/// Products with a power of two round nothing, so a scaled run is the run, whether its gradients come from a plan or from candle's graph.
#[test]
fn a_scale_changes_no_bit() {
    for architecture in PLANNED {
        let scaled = LossScaleOptions {
            interval: 2,
            ..LossScaleOptions::default()
        };
        let (mut plain, mut scaled) = (
            Run::new(architecture, None),
            Run::new(architecture, Some(scaled)),
        );
        for seed in 0..6 {
            assert_eq!(
                plain.step(seed, 1.0).to_bits(),
                scaled.step(seed, 1.0).to_bits()
            );
            assert!(plain.bits() == scaled.bits(), "{architecture:?}, {seed}");
        }
        assert_eq!(scaled.scale().scale, power(19));
    }
}

#[test]
fn a_scale_of_a_graph_changes_no_bit() {
    let run = |loss_scale| {
        let var = Var::new(&[0.3_f32, -0.7], &Device::Cpu).unwrap();
        let options = AdamOptions {
            loss_scale,
            ..AdamOptions::default()
        };
        let mut adam = Adam::new(vec![("p".to_owned(), var.clone())], options).unwrap();
        for _ in 0..5 {
            let loss = var.sqr().unwrap().sum_all().unwrap();
            adam.backward_step(&loss).unwrap();
        }
        let loss = var.sqr().unwrap().sum_all().unwrap();
        let loss = match adam.loss_scale() {
            None => loss,
            Some(scale) => scale.multiply(&loss).unwrap(),
        };
        adam.step(&loss.backward().unwrap()).unwrap();
        var.to_vec1::<f32>().unwrap()
    };
    let plain = run(None);
    assert_eq!(run(Some(LossScaleOptions::default())), plain);
    assert_ne!(plain, [0.3, -0.7]);
}

/// The largest scales of `f32`.
fn huge() -> LossScaleOptions {
    LossScaleOptions {
        initial: power(126),
        interval: 4,
        most: power(126),
        ..LossScaleOptions::default()
    }
}

#[test]
fn an_overflow_skips_the_step_and_halves_the_scale() {
    for architecture in [Architecture::Hulls, Architecture::Volumes] {
        let mut run = Run::new(architecture, Some(huge()));
        let before = run.bits();
        let loss = run.step(0, 1e4);
        assert!(loss.is_finite());
        assert!(run.bits() == before, "a skipped step changed something");
        let found = run.scale();
        assert_eq!((found.scale, found.good, found.skipped), (power(125), 0, 1));
        let refusals = run.adam.refusals().unwrap();
        assert_eq!(
            (refusals.calls, refusals.count, refusals.first),
            (1, 0, None)
        );
        // It falls until the gradients fit, then the step is that of a run without a scale.
        let mut falls = 1;
        while run.scale().good == 0 {
            assert!(run.bits() == before);
            run.step(0, 1e4);
            falls += 1;
        }
        assert_eq!(run.scale().skipped, falls - 1);
        let mut plain = Run::new(architecture, None);
        plain.step(0, 1e4);
        assert!(run.bits() == plain.bits());
    }
}

/// A loss that is infinite, and an overflow at the least scale, are refused.
#[test]
fn what_a_smaller_scale_does_not_help_is_refused() {
    let mut run = Run::new(REGRESSION, Some(LossScaleOptions::default()));
    let before = run.bits();
    assert!(run.step(0, 1e30).is_infinite());
    assert_eq!(run.adam.refusals().unwrap().count, 1);
    assert_eq!(run.scale(), LossScaleOptions::default().start());
    let least = LossScaleOptions {
        least: power(126),
        ..huge()
    };
    let mut run = Run::new(REGRESSION, Some(least));
    run.step(0, 1e4);
    assert_eq!(run.adam.refusals().unwrap().count, 1);
    assert_eq!(run.scale(), least.start());
    assert!(run.bits() == before);
}

#[test]
fn a_run_continues_bit_for_bit() {
    let mut whole = Run::new(REGRESSION, Some(huge()));
    let advance = |run: &mut Run, steps: std::ops::Range<usize>| {
        for seed in steps {
            run.step(seed, if seed % 5 == 1 { 1e4 } else { 1.0 });
        }
    };
    advance(&mut whole, 0..20);
    for cut in [1, 7, 12] {
        let mut first = Run::new(REGRESSION, Some(huge()));
        advance(&mut first, 0..cut);
        let state = first.save();
        let mut second = Run::new(REGRESSION, Some(huge()));
        second.load(&state);
        assert_eq!(second.scale(), first.scale());
        advance(&mut second, cut..20);
        assert!(second.bits() == whole.bits());
        assert_eq!(second.scale(), whole.scale());
    }
    assert!(whole.scale().skipped > 0);
}

/// A state without a scale, or with one that no run leaves, is refused, and changes nothing.
#[test]
fn a_state_needs_a_scale() {
    let mut run = Run::new(REGRESSION, Some(LossScaleOptions::default()));
    run.step(0, 1.0);
    let (bits, scale) = (run.bits(), run.scale());
    let plain = Run::new(REGRESSION, None).save();
    let error = run.adam.import("adam.", &plain).unwrap_err();
    assert!(matches!(&error, Error::MissingTensor { tensor } if tensor == "adam.loss_scale"));
    for numbers in [
        [3.0, 0.0, 0.0],
        [0.25, 0.0, 0.0],
        [2.0, 0.5, 0.0],
        [2.0, 0.0, -1.0],
    ] {
        let mut state = run.save();
        let numbers = Tensor::new(&numbers, &Device::Cpu).unwrap();
        state.insert("adam.loss_scale".to_owned(), &numbers);
        let error = run.adam.import("adam.", &state).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
    assert!(run.bits() == bits && run.scale() == scale);
}

/// Gradients that were multiplied by one scale are not divided by another.
#[test]
fn an_objective_needs_the_scale_of_the_optimiser() {
    let scaled = || Run::new(REGRESSION, Some(LossScaleOptions::default()));
    let plain = || Run::new(REGRESSION, None);
    for (mut optimiser, mut other, says) in [
        (plain(), scaled(), "expected an objective with no scale"),
        (scaled(), plain(), "got one with no scale"),
        (scaled(), scaled(), "got one with another scale"),
    ] {
        let before = optimiser.bits();
        let loss = Tensor::new(1.0_f32, &Device::Cpu).unwrap();
        let error = optimiser.adam.objective_step(&mut other.objective, &loss);
        let error = error.unwrap_err();
        assert!(matches!(error, Error::LossScale { .. }));
        assert!(error.to_string().contains(says), "{error}");
        assert!(optimiser.bits() == before);
    }
}

#[test]
fn features_of_16_bits_need_a_gpu() {
    let model = Model::new(Architecture::Hulls, 3, DType::F32).unwrap();
    for (features, name) in [(Features::Bf16, "bf16"), (Features::F16, "f16")] {
        let options = ObjectiveOptions {
            features,
            ..ObjectiveOptions::default()
        };
        let error = Objective::with_options(&model, ROWS, 1, &options).unwrap_err();
        let text = format!("features of type {name}: expected a GPU, got the CPU; train on a GPU");
        assert!(error.to_string().starts_with(&text), "{error}");
    }
    assert!(Architecture::Hulls.has_plan() && !Architecture::Gravity.has_plan());
}
