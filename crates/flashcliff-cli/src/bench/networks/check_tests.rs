//! Faults that were planted are found, in every layer and every network.

use candle_core::{Device, Tensor};

use super::*;
use crate::bench::networks::cases::{NetworkSelection, Run};

fn cases(run: Run) -> Vec<NetworkCase> {
    let quick = NetworkSelection {
        quick: true,
        ..NetworkSelection::default()
    };
    let cases = quick.cases().into_iter();
    cases.filter(|case| case.run == run).collect()
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
        let Work::Layer(layer) = Work::new(&case, &Device::Cpu).unwrap() else {
            continue;
        };
        let work = Work::Layer(layer);
        let Work::Layer(reference) = work
            .reference(&case, other_type(&case, &Device::Cpu))
            .unwrap()
        else {
            unreachable!("a reference of the same case");
        };
        let Work::Layer(layer) = work else {
            unreachable!("the same value");
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

/// Losses of a network that trains on other data are not those of its reference.
#[test]
fn steps_on_other_data_are_found() {
    for case in cases(Run::Step) {
        let mut work = Work::new(&case, &Device::Cpu).unwrap();
        let mut reference = work
            .reference(&case, other_type(&case, &Device::Cpu))
            .unwrap();
        let (Work::Step(training), Work::Step(reference)) = (&mut work, &mut reference) else {
            unreachable!("training steps");
        };
        let [points, _] = &mut training.batch;
        *points = points.affine(1.01, 0.0).unwrap();
        assert!(
            checker().steps(training, reference).is_err(),
            "{}",
            case.name()
        );
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
