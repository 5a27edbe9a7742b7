//! Compares Lion with the formulas of its publication, and tests resumption.

use candle_core::{Device, Tensor, Var};
use flashcliff_candle::Error;
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::optim::{Adam, AdamOptions, Rule, Schedule, ScheduleShape};

/// The slopes of a step. They change, so that some directions belong to the mean and not to the gradient.
fn slopes(step: u32) -> [f64; 4] {
    std::array::from_fn(|i| (f64::from(step) * 1.7 + i as f64 * 0.9).sin() + 0.1)
}

/// A loss with these slopes.
fn loss(var: &Var, step: u32) -> Tensor {
    let weights = Tensor::new(&slopes(step), &Device::Cpu).unwrap();
    let weights = weights.to_dtype(var.dtype()).unwrap();
    (var.as_tensor() * weights).unwrap().sum_all().unwrap()
}

fn made(options: AdamOptions) -> (Var, Adam) {
    let var = Var::from_slice(&[1.0, -2.0, 0.5, 3.0], 4, &Device::Cpu).unwrap();
    let lion = Adam::new(vec![("p".to_owned(), var.clone())], options).unwrap();
    (var, lion)
}

fn options() -> AdamOptions {
    AdamOptions {
        learning_rate: 0.05,
        beta1: 0.8,
        beta2: 0.95,
        weight_decay: 0.25,
        ..AdamOptions::lion()
    }
}

/// Algorithm 2 of arXiv 2302.06675, with a schedule and clipping; the decay is decoupled or a part of the gradient. Swapped decay rates
/// and signs of gradients give other numbers.
#[test]
fn the_algorithm() {
    for (decoupled, clip_norm) in [(true, None), (false, None), (true, Some(0.7))] {
        let options = AdamOptions {
            decoupled,
            clip_norm,
            schedule: Schedule::new(ScheduleShape::Constant, 20).with_warmup(4),
            ..options()
        };
        let (var, mut lion) = made(options);
        let (mut p, mut m) = ([1.0, -2.0, 0.5, 3.0], [0.0_f64; 4]);
        let mut against = 0;
        for step in 0..20 {
            lion.backward_step(&loss(&var, step)).unwrap();
            let gradient = slopes(step);
            let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            let clip = clip_norm.map_or(1.0, |most| (most / norm).min(1.0));
            let rate = 0.05 * (f64::from(step + 1) / 4.0).min(1.0);
            for i in 0..4 {
                let decay = 0.25 * p[i];
                let g = clip * gradient[i] + if decoupled { 0.0 } else { decay };
                let direction = 0.8 * m[i] + (1.0 - 0.8) * g;
                against += usize::from(direction * g < 0.0);
                let pull = if decoupled { decay } else { 0.0 };
                p[i] -= rate * (direction.signum() + pull);
                m[i] = 0.95 * m[i] + (1.0 - 0.95) * g;
            }
            for (got, expected) in var.to_vec1::<f64>().unwrap().iter().zip(p) {
                let off = (got - expected).abs();
                assert!(off < 1e-13, "step {step}: {got}, {expected}");
            }
        }
        assert!(against >= 5, "{against}");
    }
}

/// Nothing moves where the direction is 0.
#[test]
fn a_direction_of_zero() {
    let (var, mut lion) = made(AdamOptions::lion());
    let none = Tensor::zeros(4, var.dtype(), &Device::Cpu).unwrap();
    let flat = (var.as_tensor() * none).unwrap().sum_all().unwrap();
    lion.backward_step(&flat).unwrap();
    assert_eq!(var.to_vec1::<f64>().unwrap(), [1.0, -2.0, 0.5, 3.0]);
}

#[test]
fn a_resumed_run_is_the_uninterrupted_one() {
    let (whole, mut lion) = made(options());
    (0..10).for_each(|step| lion.backward_step(&loss(&whole, step)).unwrap());

    let (first, mut lion) = made(options());
    (0..4).for_each(|step| lion.backward_step(&loss(&first, step)).unwrap());
    let mut checkpoint = Checkpoint::new();
    lion.export("lion.", &mut checkpoint).unwrap();
    let names: Vec<_> = checkpoint.tensors().keys().cloned().collect();
    assert_eq!(names, ["lion.p.exp_avg", "lion.step"]);

    let (second, mut lion) = made(options());
    second.set(first.as_tensor()).unwrap();
    lion.import("lion.", &checkpoint).unwrap();
    (4..10).for_each(|step| lion.backward_step(&loss(&second, step)).unwrap());
    let bits = |var: &Var| var.to_vec1::<f64>().unwrap().into_iter().map(f64::to_bits);
    assert!(bits(&second).eq(bits(&whole)));

    // Adam asks for a moment that Lion does not have.
    let (_, mut adam) = made(AdamOptions::default());
    let error = adam.import("lion.", &checkpoint).unwrap_err();
    assert!(error.to_string().contains("lion.p.exp_avg_sq"), "{error}");
}

#[test]
fn the_published_options() {
    let options = AdamOptions::lion();
    assert_eq!((options.rule, options.decoupled), (Rule::Lion, true));
    assert_eq!((options.beta1, options.beta2), (0.9, 0.99));
    let wrong = AdamOptions {
        beta2: 1.0,
        ..options
    };
    let error = Adam::new(vec![], wrong).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Option {
                option: "beta2",
                ..
            }
        ),
        "{error}"
    );
}
