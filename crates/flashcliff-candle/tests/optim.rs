//! Compares Adam with its recurrence, and tests resumption.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff_candle::Error;
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::optim::{Adam, AdamOptions};

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
    let default = AdamOptions::default();
    for (options, name) in [
        (
            AdamOptions {
                learning_rate: -1.0,
                ..default
            },
            "learning_rate",
        ),
        (
            AdamOptions {
                learning_rate: f64::NAN,
                ..default
            },
            "learning_rate",
        ),
        (
            AdamOptions {
                beta1: 1.0,
                ..default
            },
            "beta1",
        ),
        (
            AdamOptions {
                beta2: -0.1,
                ..default
            },
            "beta2",
        ),
        (
            AdamOptions {
                eps: f64::INFINITY,
                ..default
            },
            "eps",
        ),
        (
            AdamOptions {
                weight_decay: -1e-9,
                ..default
            },
            "weight_decay",
        ),
    ] {
        match Adam::new(vec![], options) {
            Err(Error::Option { option, .. }) => assert_eq!(option, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    let mut adam = Adam::new(vec![], default).unwrap();
    assert!(adam.set_learning_rate(f64::INFINITY).is_err());
    assert_eq!(adam.options().learning_rate, 1e-3);
    adam.set_learning_rate(0.5).unwrap();
    assert_eq!(adam.options().learning_rate, 0.5);
}
