//! Products with block-sparse matrices of whole numbers, against sums in `f64`, which are equal.

use flashcliff::Dtype;
use flashcliff::cuda::block_sparse::{
    GROUP_INPUTS, GROUP_NUMBERS, GROUP_UNITS, Groups, Product, Rows, UNIT, Weights, partials,
    product, weights,
};

use super::numbers::Bench;
use super::reads_back;

/// A matrix.
struct Case {
    /// The units of inputs and outputs.
    units: [usize; 2],
    /// Input units and output units of each group.
    groups: &'static [(&'static [i32], &'static [i32])],
}

/// More outputs than inputs, an input of both, an output on its own, and as many outputs as a group may have.
const SHORT: Case = Case {
    units: [5, 12],
    groups: &[
        (&[0, 3], &[1]),
        (&[1, 2, 3, 4], &[0, 2, 3, 4, 5, 6, 7, 8]),
        (&[4], &[9, 11]),
    ],
};
/// More weights than a CTA keeps in shared memory, and a group without inputs, whose outputs are the bias.
const MIDDLE: Case = Case {
    units: [24, 9],
    groups: &[
        (
            &[
                0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                23,
            ],
            &[0, 1, 2, 3, 4, 6, 7, 8],
        ),
        (&[], &[5]),
    ],
};
/// Still more weights, in an odd number of steps, and few.
const LONG: Case = Case {
    units: [27, 9],
    groups: &[
        (
            &[
                0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
                24, 25, 26,
            ],
            &[0, 1, 2, 3, 4, 6, 7, 8],
        ),
        (&[9], &[5]),
    ],
};

pub(super) fn run() {
    let wide = [Dtype::F32; 3];
    for transposed in [false, true] {
        // Few rows have separate kernels.
        for rows in [1, 70, 800, 8200] {
            call(&SHORT, rows, transposed, wide);
        }
        for case in [&MIDDLE, &LONG] {
            call(case, 1000, transposed, wide);
        }
        // Results are whole numbers that f16 has.
        for (x, rest) in [
            (Dtype::Bf16, Dtype::F16),
            (Dtype::F16, Dtype::F32),
            (Dtype::F32, Dtype::F16),
            (Dtype::F32, Dtype::Bf16),
        ] {
            call(&SHORT, 8200, transposed, [x, Dtype::F16, rest]);
            call(&LONG, 1000, transposed, [x, Dtype::F16, rest]);
        }
    }
}

/// Whether an output column depends on an input column.
fn is_in_a_group(case: &Case, input: usize, output: usize) -> bool {
    let has = |units: &[i32], column: usize| units.contains(&((column / UNIT) as i32));
    case.groups
        .iter()
        .any(|(inputs, outputs)| has(inputs, input) && has(outputs, output))
}

/// The types are of rows, of the result, and of its gradient.
fn call(case: &Case, rows: usize, transposed: bool, types: [Dtype; 3]) {
    let most = |of: fn(&(&[i32], &[i32])) -> usize| case.groups.iter().map(of).max();
    assert!(most(|(_, outputs)| outputs.len()) <= Some(GROUP_UNITS));
    let has_gradients = most(|(inputs, _)| inputs.len()) <= Some(GROUP_INPUTS);
    let mut bench = Bench::new(23);
    let [inputs, outputs] = case.units.map(|units| units * UNIT);
    // The rows of the input lie further apart than they are wide.
    let stride = inputs + 16 / types[0].bytes();
    let x = bench.whole(types[0], rows * stride);
    let matrix = bench.integers(inputs * outputs);
    let bias = bench.integers(outputs);
    let gradient = bench.whole(types[2], rows * outputs);
    let (mut table, mut units) = (Vec::new(), Vec::new());
    for (from, to) in case.groups {
        for part in [from, to] {
            table.extend([units.len() as i32, part.len() as i32]);
            units.extend(*part);
        }
        // No two groups have the same outputs.
        table.push(1);
    }
    assert_eq!(table.len(), case.groups.len() * GROUP_NUMBERS);
    let (on_device, units) = (bench.places(&table), bench.places(&units));
    let groups = Groups {
        groups: on_device.address(),
        sizes: table.as_ptr() as usize,
        units: units.address(),
        count: case.groups.len(),
    };
    let lines = |elements: u64, stride: usize, dtype: Dtype| Rows {
        elements,
        stride,
        dtype,
    };
    // Results of no group keep what they are.
    let untouched = 7.0;
    let out = bench.given(types[1], vec![untouched; rows * outputs]);
    let to = bench.given(Dtype::F32, vec![untouched; inputs * outputs]);
    let of_bias = bench.given(Dtype::F32, vec![untouched; outputs]);
    let parts = bench.result(Dtype::F32, partials(rows, case.groups.len()));
    let x_rows = lines(x.address(), stride, types[0]);
    // SAFETY: each tensor is an allocation that has what its rows and units reach, and lives until results were read, as do the
    // numbers of groups.
    unsafe {
        let own = Product {
            x: x_rows,
            weights: lines(
                matrix.address(),
                if transposed { inputs } else { outputs },
                Dtype::F32,
            ),
            bias: bias.address(),
            out: lines(out.address(), outputs, types[1]),
            rows,
            transposed,
            groups,
        };
        product(bench.target(), own).expect("a call");
        let own = Weights {
            x: x_rows,
            gradient: lines(gradient.address(), outputs, types[2]),
            partials: parts.address(),
            to: lines(to.address(), outputs, Dtype::F32),
            of_bias: of_bias.address(),
            rows,
            groups,
        };
        if has_gradients {
            weights(bench.target(), own).expect("a call");
        }
    }
    bench.stream.synchronize().expect("no kernel failed");
    if !reads_back() {
        return;
    }
    let what = format!("{rows} rows of {types:?}, transposed {transposed}");
    let [got, of_matrix, of_bias] = [&out, &to, &of_bias].map(|made| bench.read(made, &what));
    let weight = |input: usize, output: usize| {
        matrix.given[match transposed {
            true => output * inputs + input,
            false => input * outputs + output,
        }]
    };
    for output in 0..outputs {
        let unit = (output / UNIT) as i32;
        let is_written = case.groups.iter().any(|(_, to)| to.contains(&unit));
        let own: Vec<usize> = (0..inputs)
            .filter(|&i| is_in_a_group(case, i, output))
            .collect();
        for row in 0..rows {
            let products = own
                .iter()
                .map(|&i| x.given[row * stride + i] * weight(i, output));
            let expected = match is_written {
                true => bias.given[output] + products.sum::<f64>(),
                false => untouched,
            };
            assert_eq!(
                got[row * outputs + output],
                expected,
                "{what}: {row} {output}"
            );
        }
        if !has_gradients {
            continue;
        }
        let sum = (0..rows).map(|row| gradient.given[row * outputs + output]);
        let expected = match own.is_empty() {
            true => untouched,
            false => sum.sum::<f64>(),
        };
        assert_eq!(of_bias[output], expected, "{what}: bias {output}");
        for input in 0..inputs {
            let products = (0..rows)
                .map(|r| x.given[r * stride + input] * gradient.given[r * outputs + output]);
            let expected = match is_in_a_group(case, input, output) {
                true => products.sum::<f64>(),
                false => untouched,
            };
            assert_eq!(
                of_matrix[input * outputs + output],
                expected,
                "{what}: {input} {output}"
            );
        }
    }
}
