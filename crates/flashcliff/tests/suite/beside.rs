//! Rows of a batch: each has the results that it has alone, however many are computed side by side.

use flashcliff::{Algebra, Dim, Dims, Element, Operator, TensorSpec};

use crate::cases::sizes;
use crate::higher_cases::{numbers, operators, results};
use crate::random::Random;

/// Channels that fill no vectors, a vector, and several ones; a few rows, and as many as leave some over.
const SIZES: [[usize; 2]; 11] = [
    [19, 1],
    [7, 3],
    [41, 3],
    [203, 3],
    [37, 8],
    [4, 16],
    [9, 20],
    [18, 28],
    [5, 32],
    [3, 65],
    [17, 66],
];

/// The elements of a row of a tensor; all of a tensor that has no rows.
fn row(spec: &TensorSpec, dims: &Dims, all: &[f64], row: usize) -> Vec<f64> {
    let Some(axis) = spec.dims.iter().position(|dim| *dim == Dim::Batch) else {
        return all.to_vec();
    };
    let inner: usize = spec.shape(dims)[axis + 1..].iter().product();
    let blocks = all.chunks_exact(dims.batch * inner.max(1));
    blocks
        .flat_map(|block| block[row * inner..][..inner].to_vec())
        .collect()
}

fn has_rows(spec: &TensorSpec) -> bool {
    spec.dims.contains(&Dim::Batch)
}

fn assert_rows<T: Element>(op: &Operator, [batch, channels]: [usize; 2], slack: f64) {
    let dims = sizes(op, batch, channels, channels);
    let alone = Dims { batch: 1, ..dims };
    let inputs = numbers(op, &dims, &mut Random::new(7));
    let together = results::<T>(op, &dims, &inputs);
    let each = (0..batch).map(|at| {
        let specs = op.inputs().iter().zip(&inputs);
        let own: Vec<Vec<f64>> = specs.map(|(spec, all)| row(spec, &dims, all, at)).collect();
        results::<T>(op, &alone, &own)
    });
    let each: Vec<Vec<Vec<f64>>> = each.collect();
    let named = |spec: &TensorSpec| format!("{} {} {dims:?} {}", op.name(), spec.name, T::DTYPE);
    for (k, (spec, together)) in op.outputs().iter().zip(&together).enumerate() {
        if has_rows(spec) {
            for (at, alone) in each.iter().enumerate() {
                let bits = |values: &[f64]| -> Vec<u64> {
                    values.iter().map(|value| value.to_bits()).collect()
                };
                let own = row(spec, &dims, together, at);
                assert_eq!(bits(&own), bits(&alone[k]), "row {at} of {}", named(spec));
            }
            continue;
        }
        for (at, &sum) in together.iter().enumerate() {
            let summands = each.iter().map(|alone| alone[k][at]);
            let size: f64 = summands.clone().map(f64::abs).sum();
            let off = (sum - summands.sum::<f64>()).abs();
            assert!(off <= slack * size, "{off:e} of {size:e}: {}", named(spec));
        }
    }
}

#[test]
fn rows_have_the_results_that_they_have_alone() {
    for (name, all) in [("cl200", true), ("cl301", false)] {
        let algebra: Algebra = name.parse().expect("an algebra");
        for (_, op) in operators(algebra, all) {
            if op.program().is_none() {
                continue;
            }
            let gradient = op.gradient().expect("an operator of lanes");
            for op in [&op, &gradient] {
                for sizes in SIZES {
                    assert_rows::<f32>(op, sizes, 2e-6);
                    assert_rows::<f64>(op, sizes, 4e-15);
                }
            }
        }
    }
}
