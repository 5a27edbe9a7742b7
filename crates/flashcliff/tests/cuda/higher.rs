//! Gradients of gradients and directional derivatives on a GPU, beside the derivatives of the CPU.

use flashcliff::cuda::Array;
use flashcliff::{Algebra, Dims, Dtype, Operator};

use crate::cases::{Spec, sizes};
use crate::device::device;
use crate::higher_cases::{numbers, operators, results};
use crate::random::Random;
use crate::trials::{Needs, Tests};

/// Several rows of a CTA, with broken and whole vectors and of several warps each; a row of a cluster, small and large; a row in tiles,
/// which takes a walk for each reduction.
const SHAPES: [[usize; 2]; 6] = [[2, 3], [37, 24], [9, 40], [5, 512], [3, 2048], [2, 20_000]];

pub(crate) fn add(tests: &mut Tests) {
    for (name, orders) in [("cl200", 3), ("cl300", 2)] {
        let algebra: Algebra = name.parse().expect("an algebra");
        let count = operators(algebra, false).len();
        for index in 0..count {
            tests.add(
                Needs::CublasLt,
                format!("higher::{name}::{index}"),
                move || {
                    let (spec, op) = operators(algebra, false).swap_remove(index);
                    compare(&spec, &op, orders);
                },
            );
        }
    }
}

fn compare(spec: &Spec, op: &Operator, orders: usize) {
    let mut derived = op.clone();
    for order in 1..=orders {
        derived = derived.gradient().expect("a derivative");
        on_all(spec, &derived, order);
    }
    on_all(spec, &op.tangent().expect("a derivative"), 1);
}

/// Compares an operator in all types and shapes.
fn on_all(spec: &Spec, op: &Operator, order: usize) {
    let (mut random, what) = (Random::new(17), format!("{spec:?}"));
    // Rows in tiles of large programs take long on the CPU, and matrices of so many channels have no room.
    let shapes = match order < 3 && !op.has_matrix_products() {
        true => &SHAPES[..],
        false => &SHAPES[..SHAPES.len() - 2],
    };
    for &[batch, channels] in shapes {
        let dims = sizes(op, batch, channels, channels);
        let inputs = numbers(op, &dims, &mut random);
        let within = [(Dtype::F64, 1e-11), (Dtype::F32, 1e-3)];
        on_both(op, (&dims, &inputs), within, &what);
    }
    let dims = sizes(op, 9, 40, 40);
    let inputs = numbers(op, &dims, &mut random);
    in_16_bits(op, (&dims, &inputs), &[Dtype::Bf16], &what);
}

pub(crate) fn on_gpu(
    op: &Operator,
    dims: &Dims,
    inputs: &[Vec<f64>],
    dtype: Dtype,
) -> Vec<Vec<f64>> {
    let stream = device().new_stream().expect("a stream");
    let on_gpu = op.on_cuda(device()).expect("kernels can be compiled");
    let arrays: Vec<Array> = inputs
        .iter()
        .zip(op.inputs())
        .map(|(values, spec)| {
            Array::from_f64(&stream, dtype, values, &spec.shape(dims)).expect("memory")
        })
        .collect();
    let views: Vec<_> = arrays
        .iter()
        .map(|array| array.view().expect("a view"))
        .collect();
    let results = on_gpu.results(&stream, &views).expect("the call fits");
    let host = results
        .iter()
        .map(|array| array.to_f64(&stream).expect("memory"));
    host.collect()
}

/// Compares all results of an operator, each relative to its largest value.
pub(crate) fn near(op: &Operator, got: &[Vec<f64>], want: &[Vec<f64>], within: f64, what: &str) {
    assert_eq!(got.len(), want.len());
    for ((got, want), output) in got.iter().zip(want).zip(op.outputs()) {
        assert_eq!(got.len(), want.len());
        let size = want.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
        for (at, (got, want)) in got.iter().zip(want).enumerate() {
            assert!(
                (got - want).abs() <= within * size,
                "{what} {}: {} [{at}] is {got}, expected {want}",
                op.name(),
                output.name
            );
        }
    }
}

/// Compares an operator in two types with the CPU in `f64`, and each with itself.
pub(crate) fn on_both(
    op: &Operator,
    (dims, inputs): (&Dims, &[Vec<f64>]),
    within: [(Dtype, f64); 2],
    what: &str,
) {
    let want = results::<f64>(op, dims, inputs);
    for (dtype, within) in within {
        let got = on_gpu(op, dims, inputs, dtype);
        near(op, &got, &want, within, &format!("{what} {dtype}"));
        assert_eq!(got, on_gpu(op, dims, inputs, dtype), "{what} again");
    }
}

/// Compares an operator in types of 16 bits. For inputs that these types hold, results equal the results of f32, rounded.
pub(crate) fn in_16_bits(
    op: &Operator,
    (dims, inputs): (&Dims, &[Vec<f64>]),
    dtypes: &[Dtype],
    what: &str,
) {
    let eighths = |x: &f64| (x * 8.0).round() / 8.0;
    let inputs: Vec<Vec<f64>> = inputs
        .iter()
        .map(|x| x.iter().map(eighths).collect())
        .collect();
    let want = results::<f64>(op, dims, &inputs);
    for &dtype in dtypes {
        let got = on_gpu(op, dims, &inputs, dtype);
        near(op, &got, &want, 2e-2, &format!("{what} {dtype}"));
    }
}
