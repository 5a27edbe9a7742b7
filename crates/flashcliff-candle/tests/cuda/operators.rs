//! Tests of every operator, forward and backward.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{
    Algebra, Bias, Dim, Error, Gate, Invariant, Norm, Operator, ProductKind, Signature,
};
use flashcliff_candle::op::{GpuOptions, apply, apply_with};

use crate::compare::{
    assert_close, assert_near, assert_same, bound, random, values, variable, weighted,
};
use crate::trials::{Tests, gpu};

/// The batch, input channels and output channels: ragged ones, and whole vectors.
const SIZES: [[usize; 3]; 2] = [[7, 5, 3], [33, 64, 32]];

pub(crate) fn add(tests: &mut Tests) {
    for algebra in Algebra::shipped() {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            let name = format!("operators::{}::{dtype:?}", algebra.name());
            tests.add(name, move || {
                for sizes in SIZES {
                    every_operator(algebra, dtype, dtype, sizes);
                }
            });
        }
        let name = format!("operators::{}::BF16_with_F32_parameters", algebra.name());
        tests.add(name, move || {
            every_operator(algebra, DType::BF16, DType::F32, SIZES[1])
        });
    }
    tests.add("operators::repeats", repeats);
    tests.add("operators::views", views);
    tests.add("operators::constants", constants);
    tests.add("operators::threads", threads);
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        tests.add(format!("operators::blocks::{dtype:?}"), move || {
            blocks(dtype)
        });
    }
}

fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

fn operators(a: Algebra) -> Vec<Operator> {
    let plain = ProductOptions::default()
        .with_gate(Gate::None)
        .with_norm(Norm::None);
    let linear = |per_grade, bias| {
        LinearOptions::default()
            .with_per_grade(per_grade)
            .with_bias(bias)
    };
    let steerable = |first_order, normalize| {
        SteerableOptions::default()
            .with_first_order(first_order)
            .with_normalize(normalize)
    };
    let mut made: Vec<Result<Operator, Error>> = vec![
        ops::sgp_norm(a, &ProductOptions::default()),
        ops::sgp_norm(a, &plain),
        ops::fcgp_norm(a, &ProductOptions::default()),
        ops::fcgp_norm(a, &plain),
        ops::mv_linear(a, &linear(true, Bias::Scalar)),
        ops::mv_linear(a, &linear(true, Bias::EveryBlade)),
        ops::mv_linear(a, &linear(false, Bias::None)),
        ops::mv_linear_sgp_norm(a, &LinearSgpOptions::default()),
        ops::mv_linear_sgp_norm(
            a,
            &LinearSgpOptions::default()
                .with_linear(linear(true, Bias::None))
                .with_recompute(true),
        ),
        ops::steerable_product(a, &steerable(false, true)),
        ops::steerable_product(a, &steerable(true, false)),
        ops::steerable_product(a, &steerable(false, false)),
        ops::mv_silu(a, Invariant::Norm),
    ];
    let rows = ops::TABLE.iter();
    made.extend(rows.map(|row| ops::by_name(a, row.name, &[])));
    for kind in ProductKind::ALL {
        // With fewer than two vectors everything commutes.
        if kind != ProductKind::Commutator || a.signature().dim() > 1 {
            made.push(ops::product(a, kind, None, None));
        }
    }
    made.into_iter().map(Result::unwrap).collect()
}

/// Inputs on the CPU in `f64`, whose numbers the types can represent.
fn inputs(
    operator: &Operator,
    lanes: DType,
    params: DType,
    sizes: [usize; 3],
) -> Vec<(Tensor, DType)> {
    let [batch, from, to] = sizes;
    let specs = operator.inputs().iter().enumerate();
    specs
        .map(|(i, spec)| {
            let axes = spec.dims.iter().map(|dim| match *dim {
                Dim::Fixed(size) => size,
                Dim::Batch => batch,
                Dim::In => from,
                _ => to,
            });
            let dtype = match spec.dims.contains(&Dim::Batch) {
                true => lanes,
                false => params,
            };
            let shape: Vec<usize> = axes.collect();
            (random(&shape, 3 + i as u64, dtype), dtype)
        })
        .collect()
}

fn variables(inputs: &[(Tensor, DType)], device: &Device) -> Vec<Var> {
    let on_gpu = device.is_cuda();
    let wide = |dtype| if on_gpu { dtype } else { DType::F64 };
    inputs
        .iter()
        .map(|(input, dtype)| variable(input, wide(*dtype), device))
        .collect()
}

fn run(operator: &Operator, variables: &[Var]) -> candle_core::Result<Tensor> {
    let tensors: Vec<&Tensor> = variables.iter().map(Var::as_tensor).collect();
    apply(operator, &tensors)
}

fn every_operator(algebra: Algebra, lanes: DType, params: DType, sizes: [usize; 3]) {
    for operator in operators(algebra) {
        let what = format!("{} {} {lanes:?} {sizes:?}", operator.name(), algebra.name());
        let inputs = inputs(&operator, lanes, params, sizes);
        let on_gpu = variables(&inputs, gpu());
        let output = run(&operator, &on_gpu);
        let output = output.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(
            output.device().is_cuda() && output.dtype() == lanes,
            "{what}"
        );
        let expected = on_cpu(&operator, &inputs, lanes);
        // If squares cancel, norms are steep, and the effect of rounded inputs counts too.
        let signature = algebra.signature();
        let moved: Vec<_> = match signature.p() > 0 && signature.q() > 0 {
            true => (0..4)
                .map(|seed| on_cpu(&operator, &nudged(&inputs, lanes, seed), lanes))
                .collect(),
            false => Vec::new(),
        };
        let moved = |i: usize| moved.iter().map(|tensors| &tensors[i]).collect::<Vec<_>>();
        assert_near(&output, &expected[0], &moved(0), bound(lanes), &what);
        let gradients = weighted(&output, lanes).backward().unwrap();
        for (i, (variable, spec)) in on_gpu.iter().zip(operator.inputs()).enumerate() {
            let what = format!("gradient of {} of {what}", spec.name);
            let got = gradients.get(variable).unwrap();
            assert_eq!(got.dtype(), variable.dtype(), "{what}");
            assert_near(got, &expected[i + 1], &moved(i + 1), bound(lanes), &what);
        }
    }
}

/// The output and the gradients on the CPU, in `f64`.
fn on_cpu(operator: &Operator, inputs: &[(Tensor, DType)], lanes: DType) -> Vec<Tensor> {
    let variables = variables(inputs, &Device::Cpu);
    let output = run(operator, &variables).unwrap();
    let gradients = weighted(&output, lanes).backward().unwrap();
    let gradients = variables.iter().map(|v| gradients.get(v).unwrap().clone());
    std::iter::once(output.clone()).chain(gradients).collect()
}

/// The inputs, with each number moved by some units of the type that computes with it.
fn nudged(inputs: &[(Tensor, DType)], lanes: DType, seed: u64) -> Vec<(Tensor, DType)> {
    let units = match lanes {
        DType::F64 => 8.0 * f64::EPSILON,
        _ => 8.0 * f64::from(f32::EPSILON),
    };
    let moved = inputs.iter().enumerate().map(|(i, (input, dtype))| {
        let noise = random(input.dims(), 1000 * (seed + 1) + i as u64, DType::F64);
        let factor = noise.affine(units, 1.0).unwrap();
        ((input * factor).unwrap(), *dtype)
    });
    moved.collect()
}

fn repeats() {
    for operator in operators(algebra(3, 0, 0)) {
        let inputs = variables(&inputs(&operator, DType::F32, DType::F32, SIZES[1]), gpu());
        let once = || {
            let output = run(&operator, &inputs).unwrap();
            let gradients = weighted(&output, DType::F32).backward().unwrap();
            (output, gradients)
        };
        let (first, gradients) = once();
        for _ in 0..5 {
            let (again, other) = once();
            assert_same(&first, &again, operator.name());
            for input in &inputs {
                let (a, b) = (gradients.get(input).unwrap(), other.get(input).unwrap());
                assert_same(a, b, operator.name());
            }
        }
    }
}

/// Tensors that are not contiguous, or that start inside of their memory.
fn views() {
    let a = algebra(2, 0, 0);
    let operator = ops::product(a, ProductKind::Geometric, None, None).unwrap();
    let whole = random(&[6, 9, 8], 1, DType::F32)
        .to_dtype(DType::F32)
        .unwrap();
    let cut = |x: &Tensor| {
        let x = x.narrow(0, 1, 4).unwrap();
        [
            x.clone(),
            x.narrow(1, 2, 5).unwrap(),
            x.transpose(1, 2).unwrap(),
        ]
    };
    let x = Var::from_tensor(&whole.to_device(gpu()).unwrap()).unwrap();
    let y = Var::from_tensor(&whole).unwrap();
    for (x_cut, y_cut) in cut(&x).into_iter().zip(cut(&y)) {
        let got = apply(&operator, &[&x_cut, &x_cut]).unwrap();
        let expected = apply(&operator, &[&y_cut, &y_cut]).unwrap();
        assert_close(&got, &expected, bound(DType::F32), "output");
        let got = weighted(&got, DType::F32).backward().unwrap();
        let expected = weighted(&expected, DType::F32).backward().unwrap();
        let (got, expected) = (got.get(&x).unwrap(), expected.get(&y).unwrap());
        assert_close(got, expected, bound(DType::F32), "gradient");
    }
}

/// Only inputs that depend on a variable get gradients, and a graph may be walked twice.
fn constants() {
    let operator = ops::steerable_product(algebra(3, 0, 0), &SteerableOptions::default()).unwrap();
    let inputs = variables(&inputs(&operator, DType::F32, DType::F32, SIZES[0]), gpu());
    let all = run(&operator, &inputs).unwrap();
    let all = weighted(&all, DType::F32).backward().unwrap();
    for tracked in 0..1u32 << inputs.len() {
        let tensors: Vec<Tensor> = inputs
            .iter()
            .enumerate()
            .map(|(i, input)| match tracked >> i & 1 {
                1 => input.as_tensor().clone(),
                _ => input.as_detached_tensor(),
            })
            .collect();
        let output = apply(&operator, &tensors.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(output.track_op(), tracked != 0);
        let loss = weighted(&output, DType::F32);
        for _ in 0..2 {
            let gradients = loss.backward().unwrap();
            for (i, input) in inputs.iter().enumerate() {
                match (tracked >> i & 1, gradients.get(input)) {
                    (0, got) => assert!(got.is_none()),
                    (_, got) => assert_same(got.unwrap(), all.get(input).unwrap(), "gradient"),
                }
            }
        }
    }
}

/// The fully connected product in blocks of one row, and in blocks of several rows of which the last has fewer.
fn blocks(dtype: DType) {
    let operator = ops::fcgp_norm(algebra(3, 0, 0), &ProductOptions::default()).unwrap();
    let inputs = inputs(&operator, dtype, dtype, SIZES[1]);
    let expected = on_cpu(&operator, &inputs, dtype);
    let on_gpu = variables(&inputs, gpu());
    let tensors: Vec<&Tensor> = on_gpu.iter().map(Var::as_tensor).collect();
    let run = |block_bytes| {
        let output = apply_with(
            &operator,
            &GpuOptions::default().with_block_bytes(block_bytes),
            &tensors,
        )
        .unwrap();
        let gradients = weighted(&output, dtype).backward().unwrap();
        let gradients = on_gpu.iter().map(|v| gradients.get(v).unwrap().clone());
        std::iter::once(output).chain(gradients).collect::<Vec<_>>()
    };
    let whole = run(None);
    for bytes in [0, 1 << 17] {
        let got = run(Some(bytes));
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let what = format!("tensor {i} in blocks of {bytes} bytes");
            assert_close(got, expected, bound(dtype), &what);
        }
        if dtype == DType::F32 {
            // The sums over the batch show that the limit took effect: they are rounded differently.
            assert_ne!(values(&got[3]), values(&whole[3]), "{bytes}");
        }
    }
}

/// The work of all threads is ordered, since it is on one stream.
fn threads() {
    let operator = ops::sgp_norm(algebra(3, 0, 0), &ProductOptions::default()).unwrap();
    let inputs = variables(&inputs(&operator, DType::F32, DType::F32, SIZES[1]), gpu());
    let first = run(&operator, &inputs).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_same(&run(&operator, &inputs).unwrap(), &first, "a thread's");
                }
            });
        }
    });
}
