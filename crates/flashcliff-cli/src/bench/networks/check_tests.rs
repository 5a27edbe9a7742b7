//! Faults that were planted are found, in every layer and every network.

use candle_core::{Device, Tensor};

use flashcliff::Dtype;
use flashcliff_bench::Selection;
use flashcliff_candle::models::Architecture;
use flashcliff_candle::objective::{Objective, ObjectiveOptions};
use flashcliff_candle::optim::{Adam, AdamOptions, LossScaleOptions};

use super::*;
use crate::bench::networks::cases::{NetworkSelection, Run, What};

fn cases(run: Run) -> Vec<NetworkCase> {
    let quick = NetworkSelection {
        chosen: Selection {
            quick: true,
            ..Selection::default()
        },
        ..NetworkSelection::default()
    };
    let cases = quick.cases().into_iter();
    cases.filter(|case| case.run == run).collect()
}

/// A case in training, and its reference in another type.
fn training(case: &NetworkCase, other: DType) -> [Box<Training>; 2] {
    let work = Work::new(case, &Device::Cpu).unwrap();
    match (work.reference(case, other).unwrap(), work) {
        (Work::Step(reference), Work::Step(training)) => [training, reference],
        _ => unreachable!("training steps"),
    }
}

fn checker() -> Checker {
    Checker {
        case: "a case".to_owned(),
        tolerance: Tolerance::F32,
    }
}

#[test]
fn numbers_that_differ_or_are_none_are_found() {
    let expected = [1.0, -2.0, 0.0];
    let close = |got: &[f64]| checker().close("o", got, &expected, 1e-3, 0.0);
    assert!((close(&[1.0, -2.0, 0.001]).unwrap() - 5e-4).abs() < 1e-12);
    for wrong in [
        [1.01, -2.0, 0.0],
        [1.0, f64::NAN, 0.0],
        [1.0, -2.0, f64::INFINITY],
    ] {
        assert!(close(&wrong).is_err());
    }
    assert!(close(&expected[..2]).is_err());
    // Without a floor nothing but 0 is close to 0.
    assert!(checker().close("o", &[1e-9], &[0.0], 1e-3, 0.0).is_err());
    checker().close("o", &[1e-9], &[0.0], 1e-3, 1e-5).unwrap();
}

/// A wrong parameter of a layer changes its output or a gradient.
#[test]
fn every_parameter_of_a_layer_matters() {
    for case in cases(Run::Both) {
        let work = Work::new(&case, &Device::Cpu).unwrap();
        let reference = work.reference(&case, other_type(&case, &Device::Cpu));
        let (Work::Layer(layer), Work::Layer(reference)) = (work, reference.unwrap()) else {
            unreachable!("the cases of layers");
        };
        checker().layer(&layer, &reference).unwrap();
        // The one that is of f64.
        let exact = match case.dtype {
            Dtype::F64 => &layer,
            _ => &reference,
        };
        let slopes = exact.output().unwrap().backward().unwrap();
        let variables = layer.variables().into_iter().zip(exact.variables());
        for ((name, var), (_, wide)) in variables {
            let slope = largest(&numbers(slopes.get(&wide).unwrap()).unwrap());
            // The softmax of attention takes no notice of a bias of all keys.
            if slope < 1e-12 {
                assert!(
                    name.contains("k_linear") && name.ends_with("bias"),
                    "{name}"
                );
                continue;
            }
            let right = var.as_tensor().copy().unwrap();
            // A constant shift would be lost where norms have taken the mean.
            let shift = flashcliff_floor::values(var.elem_count(), 5);
            let shift = Tensor::from_vec(shift, var.dims(), &Device::Cpu).unwrap();
            let shift = shift.to_dtype(right.dtype()).unwrap();
            var.set(&(&right + shift).unwrap()).unwrap();
            let found = checker().layer(&layer, &reference).is_err();
            assert!(found, "{}: {name}", case.name());
            var.set(&right).unwrap();
        }
    }
}

/// A gradient or a parameter that is wrong in one place is found.
#[test]
fn a_wrong_gradient_and_a_wrong_change_are_found() {
    let gradient = vec![0.5, -1.0, 1e-12, 0.25];
    let all = |got: Vec<f64>| vec![("w".to_owned(), got, gradient.clone())];
    checker().gradients(&all(gradient.clone())).unwrap();
    for place in 0..gradient.len() {
        let mut wrong = gradient.clone();
        wrong[place] += 0.01;
        assert!(checker().gradients(&all(wrong)).is_err(), "{place}");
    }
    let before = vec![[vec![1.0; 4], vec![1.0; 4]]];
    let after = |changed: f64| {
        vec![[
            vec![changed, 1.001, 1.0, 0.999],
            vec![0.999, 1.001, 1.0, 0.999],
        ]]
    };
    let check = |after: Vec<[Vec<f64>; 2]>| {
        checker().changes(&all(gradient.clone()), &before, &after, 1e-3)
    };
    check(after(0.999)).unwrap();
    assert!(check(after(1.001)).is_err());
    assert!(check(after(1.0)).is_err());
}

/// Losses of a network that trains on other data differ from the losses of its reference.
#[test]
fn steps_on_other_data_are_found() {
    for case in cases(Run::Step) {
        let [mut training, mut reference] = training(&case, other_type(&case, &Device::Cpu));
        let [points, _] = &mut training.batch;
        *points = points.affine(1.01, 0.0).unwrap();
        assert!(
            checker().steps(&mut training, &mut reference).is_err(),
            "{}",
            case.name()
        );
    }
}

/// Parameters and points that are rounded to 16 bits give errors of the size that features of that type give.
#[test]
fn steps_that_round_to_16_bits_pass_their_tolerance_alone() {
    let halves = [
        (DType::BF16, 2.0_f64.powi(-8)),
        (DType::F16, 2.0_f64.powi(-11)),
    ];
    for case in cases(Run::Step) {
        let What::Network(architecture) = case.what else {
            unreachable!("training steps are those of networks");
        };
        if !architecture.has_plan() {
            continue;
        }
        for (dtype, roundoff) in halves {
            let check = |tolerance: Tolerance, factor: f64| {
                let [mut training, mut reference] = training(&case, DType::F64);
                let rounded = |tensor: &Tensor| {
                    let narrow = tensor.to_dtype(dtype).unwrap();
                    narrow.to_dtype(DType::F32).unwrap()
                };
                for (_, var) in training.model.parameters().variables() {
                    var.set(&rounded(&var)).unwrap();
                }
                training.batch[0] = (rounded(&training.batch[0]) * factor).unwrap();
                let checker = Checker {
                    tolerance,
                    ..checker()
                };
                checker.steps(&mut training, &mut reference)
            };
            let tolerance = Tolerance::of_steps(architecture, roundoff);
            check(tolerance, 1.0).unwrap();
            assert!(check(Tolerance::F32, 1.0).is_err(), "{}", case.name());
            assert!(check(tolerance, 2.0).is_err(), "{}", case.name());
        }
    }
}

/// Gradients that are compared by norms: one that is missing, not a number, of the other sign or of another factor is found.
#[test]
fn wrong_gradients_are_found_by_their_norms() {
    let checker = Checker {
        tolerance: Tolerance::of_steps(Architecture::Hulls, 2.0_f64.powi(-8)),
        ..checker()
    };
    let (large, small) = (vec![1.0, -2.0, 3.0], vec![0.05, 0.1]);
    let check = |got: Vec<f64>| {
        checker.gradients(&[
            ("large".to_owned(), large.clone(), large.clone()),
            ("small".to_owned(), got, small.clone()),
        ])
    };
    check(small.clone()).unwrap();
    check(vec![0.051, 0.101]).unwrap();
    for wrong in [
        vec![],
        vec![0.05],
        vec![0.05, f64::NAN],
        vec![0.05, -0.1],
        vec![0.075, 0.15],
    ] {
        assert!(check(wrong.clone()).is_err(), "{wrong:?}");
    }
}

/// Gradients are compared without the scale of the loss.
#[test]
fn a_scale_of_the_loss_changes_nothing() {
    for case in cases(Run::Step) {
        let [mut training, mut reference] = training(&case, DType::F64);
        let variables = training.model.parameters().variables();
        let options = AdamOptions {
            loss_scale: Some(LossScaleOptions::default()),
            ..AdamOptions::default()
        };
        training.adam = Adam::new(variables, options).unwrap();
        let options = ObjectiveOptions {
            loss_scale: training.adam.loss_scale().cloned(),
            ..ObjectiveOptions::default()
        };
        training.objective =
            Objective::with_options(&training.model, case.batch, 1, &options).unwrap();
        assert_eq!(training.loss_scale().unwrap(), 65_536.0);
        checker().steps(&mut training, &mut reference).unwrap();
    }
}

#[test]
fn all_cases_are_right() {
    for run in [Run::Forward, Run::Both, Run::Inference, Run::Step] {
        for case in cases(run) {
            let mut work = Work::new(&case, &Device::Cpu).unwrap();
            let difference = check(&case, &mut work, &Device::Cpu).unwrap();
            assert!(
                difference < Tolerance::F32.output,
                "{}: {difference}",
                case.name()
            );
        }
    }
}
