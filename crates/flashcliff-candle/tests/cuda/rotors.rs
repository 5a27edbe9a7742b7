//! Tests of rotors: kernels on the GPU beside the nodes on the CPU, values and gradients.

use candle_core::{DType, Device, Result, Tensor, Var};
use flashcliff::rotor::Parity;
use flashcliff::{Algebra, GradeSet, Signature};
use flashcliff_candle::rotors;

use crate::compare::{assert_near, bound, random, variable, weighted};
use crate::trials::{Tests, gpu};

type Function = fn(Algebra, &[Var]) -> Result<Tensor>;

pub(crate) fn add(tests: &mut Tests) {
    for signature in [(3, 0, 0), (3, 0, 1), (4, 1, 0)] {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let name = format!("rotors::{signature:?}::{dtype:?}");
            tests.add(name, move || every_function(signature, dtype));
        }
    }
}

fn every_function((p, q, r): (usize, usize, usize), dtype: DType) {
    let algebra = Algebra::new(Signature::new(p, q, r).unwrap()).unwrap();
    let n = p + q + r;
    let (bivectors, half) = (n * (n - 1) / 2, 1 << (n - 1));
    let small = |shape: &[usize], seed| {
        let x = random(shape, seed, dtype).affine(0.25, 0.0);
        x.unwrap().to_dtype(dtype).unwrap().to_dtype(DType::F64)
    };
    let near = |seed, lead: usize| {
        let one = Tensor::ones((1, 7, 5), DType::F64, &Device::Cpu).unwrap();
        let one = one.pad_with_zeros(0, lead, half - 1 - lead).unwrap();
        let x = (small(&[half, 7, 5], seed).unwrap() + one.affine(2.0, 0.0).unwrap()).unwrap();
        x.to_dtype(dtype).unwrap().to_dtype(DType::F64).unwrap()
    };
    let t = random(&[7, 5], 9, dtype);
    let layer = [
        random(&[1 << n, 7, 5], 1, dtype),
        random(&[half, 3, 5], 2, dtype),
        random(&[3, 5], 3, dtype),
    ];
    let b = small(&[bivectors, 7, 5], 4).unwrap();
    let cases: [(&str, Function, Vec<Tensor>); 7] = [
        ("exp", |a, x| rotors::exp(a, &x[0]), vec![b]),
        ("log", |a, x| rotors::log(a, &x[0]), vec![near(5, 0)]),
        (
            "inverse",
            |a, x| rotors::inverse(a, Parity::Odd, &x[0]),
            vec![near(6, r)],
        ),
        (
            "normalized",
            |a, x| rotors::normalized(a, Parity::Even, &x[0]),
            vec![near(7, 0)],
        ),
        (
            "interpolate",
            |a, x| rotors::interpolate(a, Parity::Even, &x[0], &x[1], &x[2]),
            vec![near(8, 0), near(9, 0), t],
        ),
        (
            "action",
            |a, x| rotors::action(a, Parity::Even, None, &x[0], &x[1], &x[2]),
            layer.to_vec(),
        ),
        (
            "action of vectors",
            |a, x| {
                let vectors = Some(GradeSet::of(&[1]));
                let x1 = x[0].narrow(0, 1, a.signature().dim())?;
                rotors::action(a, Parity::Odd, vectors, &x1, &x[1], &x[2])
            },
            layer.to_vec(),
        ),
    ];
    for (name, function, inputs) in cases {
        let on = |dtype: DType, device: &Device| {
            let vars: Vec<Var> = inputs.iter().map(|x| variable(x, dtype, device)).collect();
            let output = function(algebra, &vars).unwrap();
            let weighted = weighted(&output, dtype);
            (vars, output, weighted.backward().unwrap())
        };
        let (on_gpu, got, of_gpu) = on(dtype, gpu());
        assert!(got.device().is_cuda() && got.dtype() == dtype, "{name}");
        let (on_cpu, wanted, of_cpu) = on(DType::F64, &Device::Cpu);
        // Sums of many terms, and gradients through the square root of 1 + R.
        let bound = 4.0 * bound(dtype);
        assert_near(&got, &wanted, &[], bound, name);
        for (a, b) in on_gpu.iter().zip(&on_cpu) {
            let (got, wanted) = (of_gpu.get(a).unwrap(), of_cpu.get(b).unwrap());
            assert_near(got, wanted, &[], bound, &format!("gradient of {name}"));
        }
    }
}
