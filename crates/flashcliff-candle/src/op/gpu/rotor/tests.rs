//! Compares composed maps of rotors with the core's, values and gradients, on the CPU.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::rotor::{Parity, RotorMap};
use flashcliff::{Algebra, GradeSet, Signature};

use super::*;
use crate::op::node;

const SIGNATURES: [(usize, usize, usize); 8] = [
    (1, 0, 0),
    (2, 0, 0),
    (3, 0, 0),
    (3, 0, 1),
    (1, 3, 0),
    (2, 2, 0),
    (4, 1, 0),
    (0, 1, 2),
];

fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

fn variable(shape: &[usize], phase: f64) -> Var {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (phase + 0.7 * i as f64).sin()).collect();
    Var::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// A sum whose slope differs from element to element.
fn weighted(output: &Tensor) -> Tensor {
    let weights = variable(output.dims(), 0.3);
    (output * weights.as_detached_tensor())
        .unwrap()
        .sum_all()
        .unwrap()
}

fn close(a: &Tensor, b: &Tensor, what: &str) {
    assert_eq!(a.dims(), b.dims(), "{what}");
    let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    for (a, b) in values(a).into_iter().zip(values(b)) {
        assert!(
            (a - b).abs() <= 1e-12 * (1.0 + a.abs()),
            "{what}: {a} and {b}"
        );
    }
}

/// Compares output and gradients of both ways to compute a function.
fn compare<F>(function: &Arc<F>, variables: &[Var], shapes: &[&[usize]])
where
    F: Function<f32> + Function<f64> + OnGpu,
{
    let arguments: Vec<Argument> = variables
        .iter()
        .zip(shapes)
        .map(|(variable, shape)| Argument::shaped(variable, shape))
        .collect();
    let whole = node::apply(function, &arguments).unwrap();
    let composed = function.apply_on_gpu(&arguments).unwrap();
    close(&whole, &composed, "output");
    let expected = weighted(&whole).backward().unwrap();
    let got = weighted(&composed).backward().unwrap();
    for (i, variable) in variables.iter().enumerate() {
        let (a, b) = (expected.get(variable), got.get(variable));
        close(a.unwrap(), b.unwrap(), &format!("gradient {i}"));
    }
}

/// Versors near the first blade of the parity that squares to something.
fn near_versor(blades: usize, lead: usize, phase: f64) -> Var {
    let noise = variable(&[blades, 2, 3], phase);
    let mut values = (noise.as_tensor() * 0.2)
        .and_then(|x| x.flatten_all()?.to_vec1::<f64>())
        .unwrap();
    for value in &mut values[lead * 6..][..6] {
        *value += 2.0;
    }
    Var::from_vec(values, (blades, 2, 3), &Device::Cpu).unwrap()
}

#[test]
fn maps_are_those_of_the_core() {
    for (p, q, r) in SIGNATURES {
        let algebra = algebra(p, q, r);
        for map in [
            RotorMap::Exp,
            RotorMap::Log,
            RotorMap::Inverse,
            RotorMap::Normalized,
            RotorMap::InverseOdd,
            RotorMap::NormalizedOdd,
        ] {
            let function = Arc::new(MapOne::new(algebra, map).unwrap());
            let [reads, _] = function.rotors.blade_counts(map);
            if reads == 0 {
                continue;
            }
            let x = match map {
                RotorMap::Exp => variable(&[reads, 2, 3], 0.4),
                RotorMap::InverseOdd | RotorMap::NormalizedOdd => near_versor(reads, r, 0.5),
                _ => near_versor(reads, 0, 0.6),
            };
            if p + q + r == 1 && map == RotorMap::Log {
                continue;
            }
            compare(&function, &[x], &[&[reads, 2, 3]]);
        }
    }
}

/// Multivectors far from versors: in spacetime `x reverse(x)` is a complex number, with any real part.
#[test]
fn multivectors_far_from_versors() {
    let phases = [0.2, 1.1, 2.3, 4.0];
    let mut negative = 0;
    for phase in phases {
        for map in [RotorMap::Normalized, RotorMap::Log, RotorMap::Inverse] {
            let function = Arc::new(MapOne::new(algebra(1, 3, 0), map).unwrap());
            compare(&function, &[variable(&[8, 2, 3], phase)], &[&[8, 2, 3]]);
        }
        // `x reverse(x)` has the real part of 1 and the planes of space less that of the planes of time and of e1234.
        let x = variable(&[8, 6], phase).sqr().unwrap();
        let rows: Vec<Vec<f64>> = x.to_vec2().unwrap();
        let sum =
            |blades: [usize; 4], i: usize| blades.map(|blade| rows[blade][i]).iter().sum::<f64>();
        negative += (0..6)
            .filter(|&i| sum([0, 4, 5, 6], i) < sum([1, 2, 3, 7], i))
            .count();
    }
    assert!(negative > 0, "no real part is negative");
}

/// Exponentials that take several doublings, near zero, and in single precision.
#[test]
fn large_and_small_exponentials() {
    for scale in [0.0, 1e-6, 20.0, 200.0] {
        let function = Arc::new(MapOne::new(algebra(3, 0, 1), RotorMap::Exp).unwrap());
        let x = (variable(&[6, 2, 3], 0.1).as_tensor() * scale).unwrap();
        let whole = node::apply(&function, &[Argument::whole(&x)]).unwrap();
        for dtype in [DType::F64, DType::F32] {
            let eps = if dtype == DType::F64 {
                f64::EPSILON
            } else {
                f64::from(f32::EPSILON)
            };
            let x = x.to_dtype(dtype).unwrap();
            let composed = function.apply_on_gpu(&[Argument::whole(&x)]).unwrap();
            assert_eq!(composed.dtype(), dtype);
            let apart = (composed.to_dtype(DType::F64).unwrap() - &whole).unwrap();
            let apart = apart.abs().unwrap().max_all().unwrap();
            let apart = apart.to_scalar::<f64>().unwrap();
            // Parts of two lengths are multiplied, and single precision also rounds `x`.
            let bound = 8.0 * eps * (1.0 + scale).powi(2);
            assert!(apart < bound, "{scale}, {dtype:?}: {apart}");
        }
    }
    let function = Arc::new(MapOne::new(algebra(2, 0, 0), RotorMap::Exp).unwrap());
    let x = Tensor::new(&[[[1e3_f64]]], &Device::Cpu).unwrap();
    let beyond = function.apply_on_gpu(&[Argument::whole(&x)]).unwrap();
    let values = beyond.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    assert!(values.iter().all(|x| x.is_nan()), "{values:?}");
}

/// A rotation by 200 in each signature, in single precision: the error is that of the angle.
#[test]
fn large_angles_keep_their_digits() {
    for (p, q, r) in SIGNATURES {
        if p < 2 {
            continue;
        }
        let function = Arc::new(MapOne::new(algebra(p, q, r), RotorMap::Exp).unwrap());
        let [reads, writes] = function.rotors.blade_counts(RotorMap::Exp);
        let n = p + q + r;
        // The plane of the first two vectors that square to 1, in the order of the lists of vectors.
        let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |k| (i, k)));
        let place = pairs.clone().position(|pair| pair == (r, r + 1)).unwrap();
        for angle in [3.0_f32, 77.7, 200.0, 250.3] {
            let mut b = vec![0.0_f32; reads];
            b[place] = angle;
            let b = Tensor::from_vec(b, (reads, 1, 1), &Device::Cpu).unwrap();
            let rotor = function.apply_on_gpu(&[Argument::whole(&b)]).unwrap();
            let rotor = rotor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(rotor.len(), writes);
            let (sin, cos) = f64::from(angle).sin_cos();
            let got = [rotor[0], rotor[1 + place]].map(f64::from);
            let bound = 2.0 * f64::from(f32::EPSILON) * f64::from(angle);
            assert!((got[0] - cos).abs() <= bound && (got[1] - sin).abs() <= bound);
            let norm = got[0] * got[0] + got[1] * got[1] - 1.0;
            assert!(norm.abs() < 1e-6, "{angle}: {norm}");
        }
    }
}

/// Below four dimensions, with the digits that the rotor has.
#[test]
fn logarithms_near_minus_one_keep_their_digits() {
    let function = Arc::new(MapOne::new(algebra(3, 0, 0), RotorMap::Log).unwrap());
    for distance in [0.3_f64, 1e-3, 1e-9, 1e-15, 1e-100] {
        let part = distance.sin();
        let r = [-distance.cos(), 0.6 * part, 0.0, -0.8 * part];
        let r = Tensor::from_vec(r.to_vec(), (4, 1, 1), &Device::Cpu).unwrap();
        let step = function.apply_on_gpu(&[Argument::whole(&r)]).unwrap();
        let step = step.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let length = std::f64::consts::PI - distance;
        for (got, wanted) in step.iter().zip([0.6 * length, 0.0, -0.8 * length]) {
            assert!((got - wanted).abs() < 4e-15, "{distance}: {step:?}");
        }
    }
}

/// The gradient of `x`, with slopes for the first item of two only, if it has two.
fn gradient_of_first(map: &Arc<MapOne>, items: &[Vec<f64>], composed: bool) -> Vec<Vec<f64>> {
    let (blades, count) = (items[0].len(), items.len());
    let data = (0..blades).flat_map(|blade| items.iter().map(move |item| item[blade]));
    let x = Var::from_vec(data.collect(), (blades, 1, count), &Device::Cpu).unwrap();
    let arguments = [Argument::whole(&x)];
    let output = match composed {
        true => map.apply_on_gpu(&arguments),
        false => node::apply(map, &arguments),
    };
    let first = output.unwrap().narrow(2, 0, 1).unwrap();
    let slopes = variable(first.dims(), 0.3);
    let loss = (first * slopes.as_detached_tensor()).unwrap().sum_all();
    let gradients = loss.unwrap().backward().unwrap();
    let gradient = gradients.get(&x).unwrap().flatten_all().unwrap();
    let gradient = gradient.to_vec1::<f64>().unwrap();
    let column = |item| gradient.iter().skip(item).step_by(count).copied().collect();
    (0..count).map(column).collect()
}

/// An item without a result leaves the gradients of others alone, and has none.
#[test]
fn items_without_a_result_have_no_gradient() {
    for (p, q, r) in SIGNATURES {
        if p + q + r == 1 {
            continue;
        }
        for map in [
            RotorMap::Exp,
            RotorMap::Log,
            RotorMap::Inverse,
            RotorMap::Normalized,
        ] {
            let function = Arc::new(MapOne::new(algebra(p, q, r), map).unwrap());
            let [reads, _] = function.rotors.blade_counts(map);
            let mut good: Vec<f64> = (0..reads).map(|i| 0.1 * (i as f64).cos()).collect();
            good[0] += 1.0;
            let zero = vec![0.0; reads];
            let (mut minus_one, mut infinite) = (zero.clone(), zero.clone());
            (minus_one[0], infinite[0]) = (-1.0, f64::INFINITY);
            let mut bad = vec![infinite, vec![f64::NAN; reads]];
            if map != RotorMap::Exp {
                bad.push(zero.clone());
            }
            if map == RotorMap::Log {
                bad.push(minus_one);
            }
            for composed in [false, true] {
                let alone = gradient_of_first(&function, &[good.clone()], composed);
                for bad in &bad {
                    let items = [good.clone(), bad.clone()];
                    let both = gradient_of_first(&function, &items, composed);
                    assert_eq!(both[0], alone[0], "{map:?} of {:?}", (p, q, r));
                    assert_eq!(both[1], zero, "{map:?} of {:?}: {bad:?}", (p, q, r));
                }
            }
        }
    }
}

#[test]
fn interpolation_is_that_of_the_core() {
    for (p, q, r) in SIGNATURES {
        if p + q + r == 1 {
            continue;
        }
        for parity in [Parity::Even, Parity::Odd] {
            let function = Arc::new(Interpolate::new(algebra(p, q, r), parity).unwrap());
            let blades = function.rotors.versor_blades(parity);
            let lead = if parity == Parity::Odd { r } else { 0 };
            let a = near_versor(blades, lead, 0.2);
            let b = near_versor(blades, lead, 0.9);
            let shape = [blades, 2, 3];
            let inputs = [a, b, variable(&[2, 3], 0.7)];
            compare(&function, &inputs, &[&shape, &shape, &[2, 3]]);
        }
    }
}

#[test]
fn layers_are_those_of_the_core() {
    for (p, q, r) in SIGNATURES {
        for parity in [Parity::Even, Parity::Odd] {
            for grades in [None, Some(GradeSet::of(&[1])), Some(GradeSet::of(&[0, 1]))] {
                let act = Arc::new(Act::new(algebra(p, q, r), parity, grades).unwrap());
                let [versor, blades] = act.action.blade_counts();
                let shapes: [&[usize]; 3] = [&[blades, 4, 2], &[versor, 3, 2], &[3, 2]];
                let inputs = [0, 1, 2].map(|i| variable(shapes[i], 0.3 + i as f64));
                compare(&act, &inputs, &shapes);
            }
        }
    }
}

#[test]
fn other_shapes_are_refused() {
    let algebra = algebra(3, 0, 0);
    let function = Arc::new(MapOne::new(algebra, RotorMap::Exp).unwrap());
    let x = variable(&[4, 2, 3], 0.0);
    let error = node::apply(&function, &[Argument::whole(&x)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "exp: `x`: expected shape [3, batch, channels], got [4, 2, 3]"
    );
    let act = Act::new(algebra, Parity::Even, None).unwrap();
    let x = variable(&[8, 2, 3], 0.0);
    let versors = variable(&[4, 2, 2], 0.0);
    let weight = variable(&[2, 3], 0.0);
    let arguments = [&x, &versors, &weight].map(|x| Argument::whole(x));
    for done in [
        node::apply(&Arc::new(act), &arguments),
        Arc::new(Act::new(algebra, Parity::Even, None).unwrap()).apply_on_gpu(&arguments),
    ] {
        assert_eq!(
            done.unwrap_err().to_string(),
            "action: `versors`: expected shape [4, out, in = 3], got [4, 2, 2]"
        );
    }
}
