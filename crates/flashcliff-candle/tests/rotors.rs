//! Rotors in candle: group laws, and gradients against differences in `f64`. The core's own tests have matrix exponentials;
//! results here are compared with the core bit for bit.

mod common;

use std::slice::from_ref;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::{random, says, values};
use flashcliff::rotor::{Parity, RotorMap, Rotors};
use flashcliff::{Algebra, GradeSet, ProductKind, Signature, TensorMut, ops};
use flashcliff_candle::{functional, op, rotors};

fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

fn scaled(shape: &[usize], seed: u64, scale: f64) -> Tensor {
    random(shape, seed).affine(scale, 0.0).unwrap()
}

#[track_caller]
fn close(got: &Tensor, wanted: &Tensor, tolerance: f64) {
    assert_eq!(got.dims(), wanted.dims());
    let apart = values(&(got - wanted).unwrap());
    let apart = apart.into_iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    assert!(apart <= tolerance, "{apart} is more than {tolerance}");
}

/// Batches of a few items, of many that rows of lanes divide, and of a prime number of them.
#[test]
fn results_are_the_bits_of_the_core() {
    let algebra = algebra(3, 0, 1);
    for (batch, channels) in [(3, 2), (600, 3), (1009, 1), (0, 2), (4, 300)] {
        let x = random(&[6, batch, channels], 1);
        let got = rotors::exp(algebra, &x).unwrap();
        let mut wanted = vec![0.0; 8 * batch * channels];
        let (data, shape) = (values(&x), [8, batch, channels]);
        Rotors::new(algebra)
            .unwrap()
            .map(
                RotorMap::Exp,
                flashcliff::Tensor::new(&data, &[6, batch, channels]).unwrap(),
                TensorMut::new(&mut wanted, &shape).unwrap(),
            )
            .unwrap();
        assert_eq!(values(&got), wanted);
    }
}

#[test]
fn other_types_are_rounded_once() {
    let algebra = algebra(4, 1, 0);
    for dtype in [DType::F32, DType::BF16] {
        let x = scaled(&[10, 4, 3], 1, 9.0).to_dtype(dtype).unwrap();
        let wide = x.to_dtype(DType::F64).unwrap();
        let wanted = rotors::exp(algebra, &wide).unwrap();
        let wanted = wanted.to_dtype(dtype).unwrap();
        let got = rotors::exp(algebra, &x).unwrap();
        assert_eq!(got.dtype(), dtype);
        let [got, wanted] = [got, wanted].map(|x| values(&x.to_dtype(DType::F64).unwrap()));
        assert_eq!(got, wanted);
    }
}

#[test]
fn algebras_without_bivectors_have_one_rotor() {
    let line = algebra(1, 0, 0);
    let none = Tensor::zeros((0, 2, 3), DType::F64, &Device::Cpu).unwrap();
    let one = rotors::exp(line, &none).unwrap();
    assert_eq!(values(&one), [1.0; 6]);
    assert_eq!(rotors::log(line, &one).unwrap().dims(), [0, 2, 3]);
    let t = random(&[2, 3], 1);
    let path = rotors::interpolate(line, Parity::Even, &one, &one, &t).unwrap();
    assert_eq!(values(&path), [1.0; 6]);
}

#[test]
fn rotors_are_groups() -> Result<()> {
    for (p, q, r) in [(3, 0, 0), (3, 0, 1), (1, 3, 0), (4, 1, 0)] {
        let algebra = algebra(p, q, r);
        let n = p + q + r;
        let b = scaled(&[n * (n - 1) / 2, 4, 3], 1, 0.5);
        let even = GradeSet::even(n);
        let product = ops::product(algebra, ProductKind::Geometric, Some(even), Some(even));
        let product = product.map_err(candle_core::Error::wrap)?;
        let [first, second, both] =
            [0.7, -1.2, -0.5].map(|t| rotors::exp(algebra, &b.affine(t, 0.0)?));
        let (first, second, both) = (first?, second?, both?);
        close(&op::apply(&product, &[&first, &second])?, &both, 1e-13);
        let inverse = rotors::inverse(algebra, Parity::Even, &first)?;
        let one = rotors::exp(algebra, &b.zeros_like()?)?;
        close(&op::apply(&product, &[&first, &inverse])?, &one, 1e-13);
        close(&rotors::log(algebra, &first)?, &b.affine(0.7, 0.0)?, 1e-13);
        let twice = first.affine(2.0, 0.0)?;
        let unit = rotors::normalized(algebra, Parity::Even, &twice)?;
        close(&unit, &first, 1e-13);
        // The layer of one rotor is its sandwich.
        let x = random(&[1 << n, 4, 1], 3);
        let rotor = first.narrow(1, 0, 1)?.narrow(2, 0, 1)?.contiguous()?;
        let weight = Tensor::ones((1, 1), x.dtype(), x.device())?;
        let moved = rotors::action(algebra, Parity::Even, None, &x, &rotor, &weight)?;
        let repeated = rotor.broadcast_as((rotor.dim(0)?, 4, 1))?.contiguous()?;
        let sandwich = functional::sandwich(algebra, Some(even), None, &repeated, &x)?;
        close(&moved, &sandwich, 1e-13);
    }
    Ok(())
}

/// Compares the gradients of a function with differences of fourth order.
fn check(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let vars: Vec<Var> = inputs.iter().map(Var::from_tensor).collect::<Result<_>>()?;
    let tensors: Vec<Tensor> = vars.iter().map(|x| x.as_tensor().clone()).collect();
    let output = f(&tensors)?;
    let slopes = random(output.dims(), 9);
    let gradients = (output * &slopes)?.sum_all()?.backward()?;
    let value = |inputs: &[Tensor]| -> Result<f64> {
        (f(inputs)? * &slopes)?.sum_all()?.to_scalar::<f64>()
    };
    for (which, var) in vars.iter().enumerate() {
        let got = gradients.get(var).expect("each input has a gradient");
        let own = values(&inputs[which]);
        for (index, got) in values(got).into_iter().enumerate() {
            let at = |step: f64| -> Result<f64> {
                let mut data = own.clone();
                data[index] += step;
                let mut inputs = inputs.to_vec();
                inputs[which] = Tensor::from_vec(data, inputs[which].dims(), &Device::Cpu)?;
                value(&inputs)
            };
            let (h, near) = (1e-3, at(1e-3)? - at(-1e-3)?);
            let wanted = (8.0 * near - (at(2.0 * h)? - at(-2.0 * h)?)) / (12.0 * h);
            let error = (got - wanted).abs();
            assert!(
                error < 1e-8 * (1.0 + wanted.abs()),
                "input {which}: {got} is not {wanted}"
            );
        }
    }
    Ok(())
}

#[test]
fn gradients_are_differences() -> Result<()> {
    let algebra = algebra(3, 0, 1);
    let b = scaled(&[6, 1, 2], 1, 0.5);
    let r = rotors::exp(algebra, &b)?.affine(1.3, 0.0)?;
    let odd = (scaled(&[8, 1, 2], 2, 0.3)
        + Tensor::new(&[0., 2., 0., 0., 0., 0., 0., 0.], &Device::Cpu)?
            .reshape((8, 1, 1))?
            .broadcast_as((8, 1, 2))?)?;
    check(from_ref(&b), |x| rotors::exp(algebra, &x[0]))?;
    check(from_ref(&r), |x| rotors::log(algebra, &x[0]))?;
    for (parity, x) in [(Parity::Even, &r), (Parity::Odd, &odd)] {
        check(from_ref(x), |x| rotors::inverse(algebra, parity, &x[0]))?;
        check(from_ref(x), |x| rotors::normalized(algebra, parity, &x[0]))?;
        // Both versors and the position, which is repeated along the batch or along all axes.
        for t in [random(&[1, 2], 5), random(&[], 6)] {
            let b = (x + scaled(x.dims(), 4, 0.2))?;
            check(&[x.clone(), b, t], |x| {
                rotors::interpolate(algebra, parity, &x[0], &x[1], &x[2])
            })?;
        }
        let layer = [
            random(&[4, 3, 2], 6),
            random(&[8, 3, 2], 7),
            random(&[3, 2], 8),
        ];
        check(&layer, |x| {
            rotors::action(
                algebra,
                parity,
                Some(GradeSet::of(&[1])),
                &x[0],
                &x[1],
                &x[2],
            )
        })?;
    }
    Ok(())
}

#[test]
fn errors_say_what_was_expected() {
    let x = random(&[4, 2, 2], 1);
    let dimensions = "expected an algebra of at most 5 dimensions, got Cl(6,0,0)";
    says(rotors::exp(algebra(6, 0, 0), &x), &[dimensions]);
    let shape = "log: `x`: expected shape [8, batch, channels], got [4, 2, 2]";
    says(rotors::log(algebra(3, 0, 1), &x), &[shape]);
    let half = x.to_dtype(DType::F32).unwrap();
    let between = |end, t: &[usize]| {
        let t = random(t, 1);
        rotors::interpolate(algebra(3, 0, 0), Parity::Even, &x, end, &t)
    };
    let types =
        "interpolate: expected input 1 of type F32, F64, BF16 or F16, that of input 0, got F32";
    says(between(&half, &[2, 2]), &[types]);
    says(between(&x, &[3]), &["broadcast"]);
}
