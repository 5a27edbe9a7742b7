//! Products with block-sparse matrices of whole numbers, against sums in `f64`, which are equal.

use flashcliff::Dtype;
use flashcliff::cuda::block_sparse::{
    GROUP_NUMBERS, GROUP_UNITS, Groups, Product, Rows, UNIT, Weights, partials, product, weights,
};

use super::numbers::Bench;
use super::reads_back;

/// The units of inputs and outputs.
const UNITS: [usize; 2] = [5, 12];
/// Input units and output units of each group: more outputs than inputs, an input of both, an output on its own, and as many outputs as a group may have.
const GROUPS: [(&[i32], &[i32]); 3] = [
    (&[0, 3], &[1]),
    (&[1, 2, 3, 4], &[0, 2, 3, 4, 5, 6, 7, 8]),
    (&[4], &[9, 11]),
];

pub(super) fn run() {
    assert!(
        GROUPS
            .iter()
            .all(|(_, outputs)| outputs.len() <= GROUP_UNITS)
    );
    // Few rows have kernels of their own, and a warp has two tiles from 8192 rows on.
    for rows in [1, 70, 2100, 8200] {
        for transposed in [false, true] {
            call(rows, transposed);
        }
    }
}

/// Whether an output column depends on an input column.
fn is_in_a_group(input: usize, output: usize) -> bool {
    let has = |units: &[i32], column: usize| units.contains(&((column / UNIT) as i32));
    GROUPS
        .iter()
        .any(|(inputs, outputs)| has(inputs, input) && has(outputs, output))
}

fn call(rows: usize, transposed: bool) {
    let mut bench = Bench::new(23);
    let [inputs, outputs] = UNITS.map(|units| units * UNIT);
    // The rows of the input lie further apart than they are wide.
    let stride = inputs + 4;
    let x = bench.integers(rows * stride);
    let matrix = bench.integers(inputs * outputs);
    let bias = bench.integers(outputs);
    let gradient = bench.integers(rows * outputs);
    let (mut table, mut units) = (Vec::new(), Vec::new());
    for (from, to) in GROUPS {
        for part in [from, to] {
            table.extend([units.len() as i32, part.len() as i32]);
            units.extend(part);
        }
        // No two groups have the same outputs.
        table.push(1);
    }
    assert_eq!(table.len(), GROUPS.len() * GROUP_NUMBERS);
    let (table, units) = (bench.places(&table), bench.places(&units));
    let groups = Groups {
        groups: table.address(),
        units: units.address(),
        count: GROUPS.len(),
    };
    let lines = |elements: u64, stride: usize| Rows { elements, stride };
    // Results of no group keep what they are.
    let untouched = 7.0;
    let out = bench.given(Dtype::F32, vec![untouched; rows * outputs]);
    let to = bench.given(Dtype::F32, vec![untouched; inputs * outputs]);
    let of_bias = bench.given(Dtype::F32, vec![untouched; outputs]);
    let parts = bench.result(Dtype::F32, partials(rows, GROUPS.len()));
    let x_rows = lines(x.address(), stride);
    // SAFETY: each tensor is an allocation that has what its rows and units reach, and lives until results were read.
    unsafe {
        let own = Product {
            x: x_rows,
            weights: lines(matrix.address(), if transposed { inputs } else { outputs }),
            bias: bias.address(),
            out: lines(out.address(), outputs),
            rows,
            transposed,
            groups,
        };
        product(bench.target(), own).expect("a call");
        let own = Weights {
            x: x_rows,
            gradient: lines(gradient.address(), outputs),
            partials: parts.address(),
            to: lines(to.address(), outputs),
            of_bias: of_bias.address(),
            rows,
            groups,
        };
        weights(bench.target(), own).expect("a call");
    }
    bench.stream.synchronize().expect("no kernel failed");
    if !reads_back() {
        return;
    }
    let what = format!("{rows} rows, transposed {transposed}");
    let [got, of_matrix, of_bias] = [&out, &to, &of_bias].map(|made| bench.read(made, &what));
    let weight = |input: usize, output: usize| {
        matrix.given[match transposed {
            true => output * inputs + input,
            false => input * outputs + output,
        }]
    };
    for output in 0..outputs {
        let own: Vec<usize> = (0..inputs).filter(|&i| is_in_a_group(i, output)).collect();
        for row in 0..rows {
            let products = own
                .iter()
                .map(|&i| x.given[row * stride + i] * weight(i, output));
            let expected = match own.is_empty() {
                true => untouched,
                false => bias.given[output] + products.sum::<f64>(),
            };
            assert_eq!(
                got[row * outputs + output],
                expected,
                "{what}: {row} {output}"
            );
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
            let expected = match is_in_a_group(input, output) {
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
