//! Compares Adam with its recurrence, and tests resumption.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff_candle::Error;
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::optim::{Adam, AdamOptions, Rule, Schedule, ScheduleShape};

/// `sum_i (i + 1) p_i^2 / 2`, whose gradient is `(i + 1) p_i`.
fn loss(p: &Var) -> Tensor {
    let weights: Vec<f64> = (1..=p.elem_count()).map(|i| i as f64 / 2.0).collect();
    let weights = Tensor::from_vec(weights, p.shape(), &Device::Cpu).unwrap();
    (p.as_tensor().sqr().unwrap() * weights.to_dtype(p.dtype()).unwrap())
        .unwrap()
        .sum_all()
        .unwrap()
}

#[test]
fn the_recurrence() {
    for weight_decay in [0.0, 0.25] {
        let options = AdamOptions {
            learning_rate: 0.05,
            beta1: 0.8,
            beta2: 0.95,
            eps: 1e-3,
            weight_decay,
            ..AdamOptions::default()
        };
        let start = [1.0, -2.0, 0.5];
        let var = Var::from_slice(&start, 3, &Device::Cpu).unwrap();
        let mut adam = Adam::new(vec![("p".to_owned(), var.clone())], options).unwrap();
        let (mut p, mut m, mut v) = (start, [0.0; 3], [0.0; 3]);
        for t in 1..=20 {
            adam.step(&loss(&var).backward().unwrap()).unwrap();
            for i in 0..3 {
                let g = (i + 1) as f64 * p[i] + weight_decay * p[i];
                m[i] = 0.8 * m[i] + 0.2 * g;
                v[i] = 0.95 * v[i] + 0.05 * g * g;
                let m_hat = m[i] / (1.0 - 0.8f64.powi(t));
                let v_hat = v[i] / (1.0 - 0.95f64.powi(t));
                p[i] -= 0.05 * m_hat / (v_hat.sqrt() + 1e-3);
            }
            for (got, expected) in var.to_vec1::<f64>().unwrap().iter().zip(p) {
                assert!(
                    (got - expected).abs() < 1e-13,
                    "step {t}: {got}, {expected}"
                );
            }
        }
    }
}

/// Decoupled decay, clipping by the norm of all gradients, and a schedule, against their formulas.
#[test]
fn the_recurrence_with_all_options() {
    for shape in [
        ScheduleShape::Constant,
        ScheduleShape::Cosine,
        ScheduleShape::HalfCosine,
    ] {
        let options = AdamOptions {
            rule: Rule::Adam,
            learning_rate: 0.05,
            beta1: 0.8,
            beta2: 0.95,
            eps: 1e-3,
            weight_decay: 0.25,
            decoupled: true,
            clip_norm: Some(7.0),
            adaptive_clipping: false,
            schedule: Schedule::new(shape, 16).with_warmup(4).with_floor(0.125),
            loss_scale: None,
            halt: false,
        };
        let starts = [[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]];
        let vars = starts.map(|start| Var::from_slice(&start, 3, &Device::Cpu).unwrap());
        let named = vars.iter().map(|var| ("p".to_owned(), var.clone()));
        let mut adam = Adam::new(named.collect(), options).unwrap();
        let (mut p, mut m, mut v) = (starts.concat(), [0.0; 6], [0.0; 6]);
        let mut clipped = [0, 0];
        for t in 1..=20 {
            let sum = (loss(&vars[0]) + loss(&vars[1])).unwrap();
            adam.backward_step(&sum).unwrap();
            let mut gradient: Vec<f64> = (0..6).map(|i| (i % 3 + 1) as f64 * p[i]).collect();
            let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            clipped[usize::from(norm > 7.0)] += 1;
            gradient
                .iter_mut()
                .for_each(|g| *g *= (7.0 / norm).min(1.0));
            let progress = (f64::from(t - 5) / 12.0).min(1.0);
            let wave = match shape {
                ScheduleShape::Cosine => (1.0 + (std::f64::consts::PI * progress).cos()) / 2.0,
                ScheduleShape::HalfCosine => (std::f64::consts::FRAC_PI_2 * progress).cos(),
                _ => 1.0,
            };
            let factor = match t {
                1..=4 => f64::from(t) / 4.0,
                _ => 0.125 + 0.875 * wave,
            };
            let rate = 0.05 * factor;
            for i in 0..6 {
                m[i] = 0.8 * m[i] + 0.2 * gradient[i];
                v[i] = 0.95 * v[i] + 0.05 * gradient[i] * gradient[i];
                let m_hat = m[i] / (1.0 - 0.8f64.powi(t));
                let v_hat = v[i] / (1.0 - 0.95f64.powi(t));
                p[i] = p[i] * (1.0 - rate * 0.25) - rate * m_hat / (v_hat.sqrt() + 1e-3);
            }
            let got = vars.iter().flat_map(|var| var.to_vec1::<f64>().unwrap());
            for (got, expected) in got.zip(&p) {
                assert!(
                    (got - expected).abs() < 1e-13,
                    "{shape:?} {t}: {got}, {expected}"
                );
            }
        }
        assert!(clipped[0] > 0 && clipped[1] > 0, "{clipped:?}");
    }
}

/// The bound of adaptive clipping against its formula, over more steps than there are records, and with a run that is resumed.
#[test]
fn adaptive_clipping() {
    let options = AdamOptions {
        beta1: 0.5,
        beta2: 0.5,
        adaptive_clipping: true,
        ..AdamOptions::default()
    };
    let var = Var::from_slice(&[0.0f64, 0.0], 2, &Device::Cpu).unwrap();
    let mut adam = Adam::new(vec![("p".to_owned(), var.clone())], options).unwrap();
    let mut records = vec![1e5];
    let (mut p, mut m, mut v) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    let mut clipped = 0;
    for t in 0..140 {
        // Norms that are alike, with some that are not.
        let size = if t % 13 == 12 { 40.0 } else { 1.0 } * (1.0 + f64::from(t % 5) / 8.0);
        let gradient = [0.6 * size, -0.8 * size];
        let slope = Tensor::new(&gradient, &Device::Cpu).unwrap();
        let loss = (var.as_tensor() * slope).unwrap().sum_all().unwrap();
        adam.backward_step(&loss).unwrap();

        let last = &records[records.len().saturating_sub(50)..];
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        let variance = last.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / last.len() as f64;
        let bound = 1.5 * mean + 2.0 * variance.sqrt();
        if t == 0 {
            assert_eq!(bound, 1.5e5);
        }
        clipped += usize::from(size > bound);
        records.push(size.min(bound));
        let correction = 1.0 - 0.5f64.powi(t + 1);
        for i in 0..2 {
            let g = gradient[i] * (bound / size).min(1.0);
            m[i] = 0.5 * m[i] + 0.5 * g;
            v[i] = 0.5 * v[i] + 0.5 * g * g;
            p[i] -= 1e-3 * (m[i] / correction) / ((v[i] / correction).sqrt() + 1e-8);
        }
        for (got, expected) in var.to_vec1::<f64>().unwrap().iter().zip(p) {
            assert!((got - expected).abs() < 1e-12, "{t}: {got}, {expected}");
        }
        if t == 20 || t == 90 {
            // A resumed optimiser goes on with the same records.
            let mut checkpoint = Checkpoint::new();
            adam.export("", &mut checkpoint).unwrap();
            let expected = if t == 20 { 22 } else { 50 };
            assert_eq!(checkpoint.tensors()["clip_records"].dims(), [expected]);
            adam = Adam::new(vec![("p".to_owned(), var.clone())], options).unwrap();
            adam.import("", &checkpoint).unwrap();
        }
    }
    assert!(clipped >= 5, "{clipped}");
}

#[test]
fn a_refused_step_changes_nothing() {
    for halt in [false, true] {
        let options = AdamOptions {
            halt,
            ..AdamOptions::default()
        };
        let make = || {
            let var = Var::from_slice(&[1.0f32, 2.0, 3.0], 3, &Device::Cpu).unwrap();
            let adam = Adam::new(vec![("p".to_owned(), var.clone())], options).unwrap();
            (var, adam)
        };
        let whole = |var: &Var, adam: &Adam| {
            let mut checkpoint = Checkpoint::new();
            adam.export("", &mut checkpoint).unwrap();
            let tensors = checkpoint.tensors().values().cloned();
            let tensors = tensors.chain([var.as_detached_tensor()]);
            let flat = tensors.map(|t| t.to_dtype(DType::F64).unwrap().flatten_all().unwrap());
            flat.map(|t| t.to_vec1::<f64>().unwrap())
                .collect::<Vec<_>>()
        };
        let (var, mut adam) = make();
        adam.backward_step(&loss(&var)).unwrap();
        let before = whole(&var, &adam);
        for number in [f64::NAN, f64::INFINITY] {
            // The loss is infinite or no number, and its gradient is not.
            adam.backward_step(&(loss(&var) + number).unwrap()).unwrap();
            assert_eq!(whole(&var, &adam), before);
            // One part of the gradient is.
            let weights = Tensor::new(&[1.0, 1.0, number as f32], &Device::Cpu).unwrap();
            let sum = (var.as_tensor() * weights).unwrap().sum_all().unwrap();
            adam.step(&sum.backward().unwrap()).unwrap();
            assert_eq!(whole(&var, &adam), before);
        }
        let found = adam.refusals().unwrap();
        assert_eq!((found.calls, found.count, found.first), (5, 4, Some(1)));
        adam.backward_step(&loss(&var)).unwrap();
        let (other, mut fresh) = make();
        fresh.backward_step(&loss(&other)).unwrap();
        fresh.backward_step(&loss(&other)).unwrap();
        let (got, straight) = (whole(&var, &adam), whole(&other, &fresh));
        assert_eq!(got, if halt { before } else { straight });
    }
}

#[test]
fn a_loss_that_is_not_one_number_is_refused() {
    let var = Var::from_slice(&[1.0f32, 2.0], 2, &Device::Cpu).unwrap();
    let mut adam = Adam::new(vec![("p".to_owned(), var.clone())], AdamOptions::default()).unwrap();
    let error = adam.backward_step(&var.sqr().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
}

#[test]
fn single_precision_follows_double() {
    let run = |dtype| {
        let start = Tensor::new(&[1.0f64, -2.0, 0.5], &Device::Cpu).unwrap();
        let var = Var::from_tensor(&start.to_dtype(dtype).unwrap()).unwrap();
        let variables = vec![("p".to_owned(), var.clone())];
        let mut adam = Adam::new(variables, AdamOptions::default()).unwrap();
        for _ in 0..50 {
            adam.step(&loss(&var).backward().unwrap()).unwrap();
        }
        var.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap()
    };
    for (narrow, wide) in run(DType::F32).iter().zip(run(DType::F64)) {
        assert!((narrow - wide).abs() < 1e-5, "{narrow}, {wide}");
    }
}

#[test]
fn a_parameter_without_gradient_stays_and_its_clock_stops() {
    let p = Var::from_slice(&[1.0f64], 1, &Device::Cpu).unwrap();
    let q = Var::from_slice(&[1.0f64], 1, &Device::Cpu).unwrap();
    let variables = vec![("p".to_owned(), p.clone()), ("q".to_owned(), q.clone())];
    let mut adam = Adam::new(variables, AdamOptions::default()).unwrap();
    for _ in 0..3 {
        adam.step(&loss(&p).backward().unwrap()).unwrap();
    }
    assert_eq!(q.to_vec1::<f64>().unwrap(), [1.0]);
    adam.step(&loss(&q).backward().unwrap()).unwrap();
    // The first step of Adam is the learning rate, whatever the gradient.
    let got = q.to_vec1::<f64>().unwrap()[0];
    assert!((got - 0.999).abs() < 1e-10, "{got}");
}

/// Trains on a fixed batch. Returns the bits of the parameters.
fn train(model: &Model, adam: &mut Adam, steps: std::ops::Range<u32>) {
    for step in steps {
        let points: Vec<f32> = (0..4 * 9)
            .map(|k| ((k * k + 3 * step) as f32 * 0.37).sin())
            .collect();
        let points = Tensor::from_vec(points, (4, 3, 3), &Device::Cpu).unwrap();
        let loss = (model.forward(&points).unwrap() - 0.5).unwrap();
        let loss = loss.sqr().unwrap().mean_all().unwrap();
        adam.step(&loss.backward().unwrap()).unwrap();
    }
}

fn bits(model: &Model) -> Vec<u32> {
    let variables = model.parameters().variables();
    let flat = variables.iter().map(|(_, var)| var.flatten_all().unwrap());
    flat.flat_map(|var| var.to_vec1::<f32>().unwrap())
        .map(f32::to_bits)
        .collect()
}

#[test]
fn a_resumed_run_is_the_uninterrupted_one() {
    let fresh = |seed| {
        let model = Model::new(Architecture::Volumes, seed, DType::F32).unwrap();
        let variables = model.parameters().variables();
        let adam = Adam::new(variables, AdamOptions::default()).unwrap();
        (model, adam)
    };
    let (whole, mut adam) = fresh(1);
    train(&whole, &mut adam, 0..6);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let (first, mut adam) = fresh(1);
    train(&first, &mut adam, 0..3);
    let mut checkpoint = Checkpoint::new();
    first.export("model.", &mut checkpoint);
    adam.export("adam.", &mut checkpoint).unwrap();
    checkpoint.save(&path).unwrap();

    let (second, mut adam) = fresh(2);
    let checkpoint = Checkpoint::load(&path).unwrap();
    second.import("model.", &checkpoint).unwrap();
    adam.import("adam.", &checkpoint).unwrap();
    assert_eq!(bits(&second), bits(&first));
    train(&second, &mut adam, 3..6);
    assert_eq!(bits(&second), bits(&whole));
}

#[test]
fn options_outside_their_range_are_refused() {
    type Change = fn(&mut AdamOptions);
    let cases: [(&str, Change); 11] = [
        ("learning_rate", |own| own.learning_rate = -1.0),
        ("learning_rate", |own| own.learning_rate = f64::NAN),
        ("beta1", |own| own.beta1 = 1.0),
        ("beta2", |own| own.beta2 = -0.1),
        ("eps", |own| own.eps = f64::INFINITY),
        ("weight_decay", |own| own.weight_decay = -1e-9),
        ("clip_norm", |own| own.clip_norm = Some(0.0)),
        ("clip_norm", |own| own.clip_norm = Some(f64::NAN)),
        ("clip_norm", |own| {
            (own.clip_norm, own.adaptive_clipping) = (Some(1.0), true);
        }),
        ("schedule: warmup", |own| {
            own.schedule = Schedule::new(ScheduleShape::Cosine, 5).with_warmup(6);
        }),
        ("schedule: floor", |own| {
            own.schedule = Schedule::default().with_floor(1.5);
        }),
    ];
    for (name, change) in cases {
        let mut options = AdamOptions::default();
        change(&mut options);
        match Adam::new(vec![], options) {
            Err(Error::Option { option, .. }) => assert_eq!(option, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    let mut adam = Adam::new(vec![], AdamOptions::default()).unwrap();
    assert!(adam.set_learning_rate(f64::INFINITY).is_err());
    assert_eq!(adam.options().learning_rate, 1e-3);
    adam.set_learning_rate(0.5).unwrap();
    assert_eq!(adam.options().learning_rate, 0.5);
}

/// A variable that is there twice would take two steps at once, and the states of two variables would have one name.
#[test]
fn variables_and_names_of_states_are_there_once() {
    let [first, second] = [1.0, 2.0].map(|value| Var::new(value, &Device::Cpu).unwrap());
    let adam = |variables: [(&str, &Var); 2]| {
        let variables = variables.map(|(name, var)| (name.to_owned(), var.clone()));
        Adam::new(variables.to_vec(), AdamOptions::default())
    };
    match adam([("embed", &first), ("head", &first)]) {
        Err(Error::Repeated { got, .. }) => assert_eq!(got, "one as `embed` and as `head`"),
        other => panic!("{other:?}"),
    }
    let mut checkpoint = Checkpoint::new();
    let named = adam([("w", &first), ("w", &second)]).unwrap();
    match named.export("adam.", &mut checkpoint) {
        Err(Error::Repeated { got, .. }) => assert_eq!(got, "two named `w`"),
        other => panic!("{other:?}"),
    }
    assert!(checkpoint.tensors().is_empty());
}
