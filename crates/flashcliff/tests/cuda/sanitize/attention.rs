//! Attention, against its formula.

use flashcliff::Dtype;
use flashcliff::cuda::attention::{Attention, HeadTensor, SequenceRows};

use super::numbers::{Bench, Numbers, assert_near};
use super::reads_back;

/// The sizes of a call.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    heads: usize,
    key_heads: usize,
    width: usize,
    value_width: usize,
}

/// Queries and keys of equally long sequences, and of others, of which one has no keys.
const ROWS: [([&[i32]; 2], bool); 3] = [
    ([&[0, 20, 40], &[0, 70, 140]], false),
    // Few keys have separate kernels.
    ([&[0, 9, 18], &[0, 5, 10]], false),
    ([&[0, 33, 37, 50], &[0, 65, 65, 98]], true),
];

/// Sequences that products of warpgroups serve on some GPUs: others of one sequence are shared out among CTAs where
/// there are many of them.
const LONG: [([&[i32]; 2], bool); 4] = [
    ([&[0, 129, 258], &[0, 200, 400]], false),
    ([&[0, 1300], &[0, 130]], false),
    ([&[0, 129], &[0, 1290]], false),
    ([&[0, 140, 141, 341, 342], &[0, 128, 130, 130, 329]], true),
];

pub(super) fn run() {
    of_sizes(&[
        // Keys that all heads share.
        (4, 1, 24, 48),
        (2, 2, 40, 44),
        (3, 3, 96, 92),
        // Values that are narrower than the columns of a kernel. Columns after them get what follows in shared memory,
        // which must not be on its way there.
        (4, 1, 24, 16),
        (2, 2, 40, 4),
        (3, 3, 92, 60),
        (2, 1, 96, 8),
    ]);
}

/// More heads than the second axis of a grid has CTAs.
pub(super) fn many_heads() {
    let sizes = Sizes {
        heads: 65_537,
        key_heads: 65_537,
        width: 4,
        value_width: 4,
    };
    call(sizes, [&[0, 2], &[0, 3]], false, (Dtype::F32, false), 1e-4);
}

/// Heads, heads of keys, widths of queries and of values.
fn of_sizes(sizes: &[(usize, usize, usize, usize)]) {
    for &(heads, key_heads, width, value_width) in sizes {
        let sizes = Sizes {
            heads,
            key_heads,
            width,
            value_width,
        };
        for (bounds, has_bounds) in LONG {
            call(sizes, bounds, has_bounds, (Dtype::F32, true), 1e-2);
            call(sizes, bounds, has_bounds, (Dtype::F32, false), 1e-4);
        }
        for (bounds, has_bounds) in ROWS {
            for (dtype, tf32, bound) in [
                (Dtype::F32, false, 1e-4),
                (Dtype::F32, true, 1e-2),
                (Dtype::Bf16, true, 3e-2),
                (Dtype::F16, true, 1e-2),
            ] {
                call(sizes, bounds, has_bounds, (dtype, tf32), bound);
            }
        }
    }
}

/// The place of features `[rows, heads, width]`.
fn of(numbers: &Numbers, heads: usize, width: usize, rows_of_sequence: usize) -> HeadTensor {
    HeadTensor {
        features: numbers.address(),
        sequence_stride: rows_of_sequence * heads * width,
        row_stride: heads * width,
        head_stride: width,
    }
}

fn call(
    sizes: Sizes,
    bounds: [&[i32]; 2],
    has_bounds: bool,
    (dtype, tf32): (Dtype, bool),
    bound: f64,
) {
    let Sizes {
        heads,
        key_heads,
        width,
        value_width,
    } = sizes;
    let mut bench = Bench::new(17);
    let counts = bounds.map(|bounds| bounds[bounds.len() - 1] as usize);
    let longest = bounds.map(|bounds| {
        let lengths = bounds.windows(2).map(|pair| pair[1] - pair[0]);
        lengths.max().unwrap_or(0) as usize
    });
    let [queries, keys] = counts;
    let places = bounds.map(|bounds| bench.places(bounds));
    let rows = |which: usize| SequenceRows {
        count: counts[which],
        longest: longest[which],
        bounds: if has_bounds {
            places[which].address()
        } else {
            0
        },
    };
    let query = bench.reals(dtype, queries * heads * width);
    let key = bench.reals(dtype, keys * key_heads * width);
    let value = bench.reals(dtype, keys * key_heads * value_width);
    let gradient = bench.reals(dtype, queries * heads * value_width);
    let out = bench.result(dtype, gradient.given.len());
    let log_sums = bench.result(Dtype::F32, heads * queries);
    let means = bench.result(Dtype::F32, heads * queries);
    let grads = [&query, &key, &value].map(|x| bench.result(dtype, x.given.len()));
    let scale = 1.0 / (width as f64).sqrt();
    let attention = Attention {
        query: of(&query, heads, width, longest[0]),
        key: of(&key, key_heads, width, longest[1]),
        value: of(&value, key_heads, value_width, longest[1]),
        out: of(&out, heads, value_width, longest[0]),
        log_sums: log_sums.address(),
        queries: rows(0),
        keys: rows(1),
        sequences: bounds[0].len() - 1,
        heads,
        key_heads,
        width,
        value_width,
        scale: scale as f32,
        dtype,
        tf32,
    };
    let to = [
        of(&grads[0], heads, width, longest[0]),
        of(&grads[1], key_heads, width, longest[1]),
        of(&grads[2], key_heads, value_width, longest[1]),
    ];
    let slope = of(&gradient, heads, value_width, longest[0]);
    // SAFETY: each tensor is an allocation that has what its strides and rows reach, and lives until results were read.
    unsafe {
        attention.forward(bench.target()).expect("a call");
        attention
            .backward(bench.target(), slope, to, means.address())
            .expect("a call");
    }
    bench.stream.synchronize().expect("no kernel failed");
    if !reads_back() {
        return;
    }
    let what = format!("{sizes:?} {bounds:?} {dtype} {tf32}");
    let expected = formula(sizes, bounds, scale, [&query, &key, &value]);
    assert_near(&bench.read(&out, &what), &expected, bound, &what);
    bench.read(&grads[0], &what);
    let [of_keys, of_values] = [1, 2].map(|at| bench.read(&grads[at], &what));
    check_sums(sizes, bounds, &of_keys, width, None, bound);
    check_sums(
        sizes,
        bounds,
        &of_values,
        value_width,
        Some(&gradient.given),
        bound,
    );
}

/// The results of the formula, query by query.
fn formula(sizes: Sizes, bounds: [&[i32]; 2], scale: f64, [q, k, v]: [&Numbers; 3]) -> Vec<f64> {
    let Sizes {
        heads,
        key_heads,
        width,
        value_width,
    } = sizes;
    let mut out = vec![0.0; bounds[0][bounds[0].len() - 1] as usize * heads * value_width];
    for (rows, columns) in bounds[0].windows(2).zip(bounds[1].windows(2)) {
        for row in rows[0] as usize..rows[1] as usize {
            for head in 0..heads {
                let of_key = |column: usize| column * key_heads + head % key_heads;
                let columns = columns[0] as usize..columns[1] as usize;
                let score = |column: usize| -> f64 {
                    let (i, j) = ((row * heads + head) * width, of_key(column) * width);
                    let products = (0..width).map(|f| q.given[i + f] * k.given[j + f]);
                    scale * products.sum::<f64>()
                };
                let scores: Vec<f64> = columns.clone().map(score).collect();
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let shares: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
                let whole: f64 = shares.iter().sum();
                for f in 0..value_width {
                    let values = columns.clone().zip(&shares);
                    let sum: f64 = values
                        .map(|(column, share)| share * v.given[of_key(column) * value_width + f])
                        .sum();
                    let at = (row * heads + head) * value_width + f;
                    out[at] = if whole > 0.0 { sum / whole } else { 0.0 };
                }
            }
        }
    }
    out
}

/// Shares of a query add up to 1. So the gradients of the values of a sequence add up to the gradients of its results,
/// and the gradients of its keys to zero: a vector that is added to all keys changes no share.
fn check_sums(
    sizes: Sizes,
    bounds: [&[i32]; 2],
    of_keys: &[f64],
    width: usize,
    of_results: Option<&[f64]>,
    bound: f64,
) {
    let Sizes {
        heads, key_heads, ..
    } = sizes;
    for (rows, columns) in bounds[0].windows(2).zip(bounds[1].windows(2)) {
        if columns[0] == columns[1] {
            continue;
        }
        for key_head in 0..key_heads {
            for f in 0..width {
                let column = |c: i32| of_keys[(c as usize * key_heads + key_head) * width + f];
                let sum: f64 = (columns[0]..columns[1]).map(column).sum();
                let mut expected = 0.0;
                for row in rows[0] as usize..rows[1] as usize {
                    let own = (0..heads).filter(|head| head % key_heads == key_head);
                    let result =
                        |head| of_results.map_or(0.0, |g| g[(row * heads + head) * width + f]);
                    expected += own.map(result).sum::<f64>();
                }
                // The terms that cancel are of the size of a few ones.
                let error = (sum - expected).abs();
                let most = bound * f64::from(rows[1] - rows[0]) * heads as f64;
                assert!(error <= most, "{sizes:?} {bounds:?}: {sum} {expected}");
            }
        }
    }
}
