//! Tests with rows, grades and weights of very different sizes, for which the kernels choose powers of two.

use flashcliff::cuda::{Dtypes, MatmulPrecision};
use flashcliff::ops::ProductOptions;
use flashcliff::{Algebra, Norm, Signature};

use super::{SCALED, main, operand_unit};
use crate::case::{Case, Fill};
use crate::cases::Spec;
use crate::device::device;
use crate::dtypes::F32;
use crate::exact;
use crate::measure::within;
use crate::runner::Runner;
use flashcliff_program::reference::Basis;

/// The position of a number in a tensor.
struct At {
    row: usize,
    grade: usize,
    /// Whether its blade squares to zero.
    is_null: bool,
}

impl At {
    fn row_number(&self) -> i32 {
        i32::try_from(self.row).expect("small")
    }
}

/// The exponent of a number, by the index of its tensor and its position. The gradient of the output counts as the
/// tensor after the inputs.
type Powers = fn(usize, At) -> i32;

/// Multiplies `x`, `y` and the gradient of a case by powers of two, and all weights by one power.
fn with_powers(case: &mut Case<'_>, power: Powers) {
    let (dims, basis) = (case.dims, case.basis);
    let scale = |tensor: usize, channels: usize, values: &mut Vec<f64>| {
        for (i, value) in values.iter_mut().enumerate() {
            let blade = i / channels / dims.batch;
            let at = At {
                row: i / channels % dims.batch,
                grade: basis.grade(blade),
                is_null: basis.quadratic(blade) == 0,
            };
            *value *= f64::from(power(tensor, at)).exp2();
        }
    };
    scale(0, dims.in_channels, &mut case.inputs[0]);
    scale(1, dims.in_channels, &mut case.inputs[1]);
    scale(3, dims.out_channels, &mut case.grad_output);
    let at = At {
        row: 0,
        grade: 0,
        is_null: false,
    };
    let power = f64::from(power(2, at)).exp2();
    for weight in &mut case.inputs[2] {
        *weight *= power;
    }
}

/// Compares a call with the CPU in `f64`. Every grade of a row, and the gradients of the weights of every path, are
/// compared relative to their own largest element.
fn check_rows(
    runner: &mut Runner,
    case: &Case<'_>,
    (dtypes, precision): (Dtypes, MatmulPrecision),
    offset: usize,
) -> Result<(), String> {
    let mut case = case.rounded(dtypes);
    case.gpu = case.gpu.clone().with_precision(precision);
    let all = case.all_wanted();
    let (output, grads) = case.on_cpu(&all);
    let (spread, grad_spread) = case.spread(operand_unit(dtypes, precision), &all);
    let got = runner.both(&case, dtypes, offset, &all);
    let context = || format!("{}, {precision}", case.context(dtypes));
    let dims = case.dims;
    let (inside, outside) = (dims.in_channels, dims.out_channels);
    for (name, channels, [want, got, spread]) in [
        ("output", outside, [&output, &got.output, &spread]),
        (
            "grad_x",
            inside,
            [&grads[0], &got.grads[0], &grad_spread[0]],
        ),
        (
            "grad_y",
            inside,
            [&grads[1], &got.grads[1], &grad_spread[1]],
        ),
    ] {
        for grade in 0..=case.basis.grade(case.basis.len() - 1) {
            for row in 0..dims.batch {
                let own = |values: &[f64]| -> Vec<f64> {
                    let blades = values.chunks(channels * dims.batch).enumerate();
                    let blades = blades.filter(|(blade, _)| case.basis.grade(*blade) == grade);
                    let rows = blades.map(|(_, rows)| &rows[row * channels..][..channels]);
                    rows.flatten().copied().collect()
                };
                within(&own(want), &own(got), dtypes.lanes, || own(spread)).map_err(|e| {
                    let context = context();
                    format!("{name}, row {row}, grade {grade}, {e}: {context}")
                })?;
            }
        }
    }
    let size = inside * outside;
    for path in 0..grads[2].len() / size {
        let own = |values: &[f64]| values[path * size..][..size].to_vec();
        let [want, got] = [&grads[2], &got.grads[2]].map(|values| own(values));
        within(&want, &got, dtypes.lanes, || own(&grad_spread[2]))
            .map_err(|e| format!("grad_w, path {path}, {e}: {}", context()))?;
    }
    Ok(())
}

/// Replaces the norm of the options, if there is one, by the sum of all squares.
fn with_euclidean_norm(options: ProductOptions) -> ProductOptions {
    let norm = match options.norm {
        Norm::None => Norm::None,
        _ => Norm::Rms,
    };
    options.with_norm(norm)
}

/// Rows and weights far beyond the range of 16 bits: all together, from row to row, and from grade to grade of a row.
/// Also rows of zeros, one block of rows and several, aligned and misaligned tensors.
pub(super) fn every_scale() {
    let powers: [(&str, Powers); 9] = [
        ("large", |tensor, _| [15, 12, 15, 10][tensor]),
        ("small", |tensor, _| [-30, -20, -25, -10][tensor]),
        ("large times small", |tensor, _| [100, -95, 40, -30][tensor]),
        ("row by row", |tensor, at| {
            let step = at.row_number() % 7 - 3;
            step * [13, -9, 0, 5][tensor]
        }),
        ("zeros", |tensor, at| match at.row % 4 == tensor {
            true => -2000,
            false => 0,
        }),
        ("large vectors", |tensor, at| match (tensor, at.grade) {
            (0 | 1, 1) => 13,
            (0 | 1, _) => -13,
            _ => 0,
        }),
        ("large null blades", |tensor, at| match tensor {
            0 | 1 if at.is_null => 14,
            _ => 0,
        }),
        ("grade by grade", |tensor, at| {
            let step = i32::try_from(at.grade).expect("small");
            step * [8, 6, 0, -7][tensor]
        }),
        ("by row and grade", |tensor, at| {
            // These powers keep gates neither shut nor open: a norm of a single channel has no gradient.
            let steps = match at.grade {
                0 => 2,
                grade => (at.row * 3 + grade * (tensor + 2)) % 5,
            };
            (i32::try_from(steps).expect("small") - 2) * [7, 6, 0, 8][tensor]
        }),
    ];
    let mut runner = Runner::new(device());
    for (p, q, r) in [(2, 0, 0), (3, 0, 1)] {
        let algebra = Algebra::new(Signature::of(p, q, r)).expect("shipped");
        let basis = Basis::new(algebra.signature());
        for spec in main() {
            // The invariant norm leaves null blades out. So a row is divided by far less than its scale, which makes
            // rounding errors grow.
            let spec = match spec {
                Spec::Fcgp(options) => Spec::Fcgp(with_euclidean_norm(options)),
                other => other,
            };
            for (name, power) in powers {
                for shape in [[33, 8, 12], [70, 5, 7]] {
                    for (i, precision) in SCALED.into_iter().enumerate() {
                        let mut case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 127);
                        with_powers(&mut case, power);
                        if i == 0 {
                            // A block has one row to a few.
                            case.gpu = case.gpu.clone().with_block_bytes(1 << 14);
                        }
                        check_rows(&mut runner, &case, (F32, precision), i % 2)
                            .unwrap_or_else(|e| panic!("{name}: {e}"));
                    }
                }
            }
        }
    }
}

/// Sums over rows whose scale falls from block to block, by a bit or beyond the range of `f32`, for all paths or for
/// some, or stays the same. Also paths of zeros in the first blocks, in the last ones, and in all.
pub(super) fn scales_of_blocks() {
    /// The index of a row in a block that is not the first.
    const LATER: usize = 20;
    let powers: [(&str, Powers); 9] = [
        ("small steps", |tensor, at| match tensor {
            3 => at.row_number() / 6,
            _ => 0,
        }),
        ("large steps", |tensor, at| match tensor {
            3 => 2 * at.row_number() - 70,
            _ => 0,
        }),
        ("one large step", |tensor, at| match tensor {
            3 if at.row < LATER => -90,
            3 => 70,
            _ => 0,
        }),
        ("large steps down", |tensor, at| match tensor {
            3 => 70 - 2 * at.row_number(),
            _ => 0,
        }),
        ("steps of vectors", |tensor, at| match (tensor, at.grade) {
            (0, 1) => at.row_number() / 4,
            _ => 0,
        }),
        ("vectors of zeros first", |tensor, at| {
            match (tensor, at.grade) {
                (0, 1) if at.row < LATER => -2000,
                _ => 0,
            }
        }),
        ("vectors of zeros last", |tensor, at| {
            match (tensor, at.grade) {
                (0, 1) if at.row >= LATER => -2000,
                _ => 0,
            }
        }),
        ("zeros last", |tensor, at| match tensor {
            0 | 3 if at.row >= LATER => -2000,
            _ => 0,
        }),
        // The gradient has about the largest power that there is; zeros times a larger power are still zeros.
        ("vectors of zeros", |tensor, at| match (tensor, at.grade) {
            (0, 1) => -2000,
            (3, _) => -110 - at.row_number() % 5,
            _ => 0,
        }),
    ];
    let mut runner = Runner::new(device());
    for ((p, q, r), block_bytes) in [((2, 0, 0), 1 << 12), ((3, 0, 1), 1 << 14)] {
        let algebra = Algebra::new(Signature::of(p, q, r)).expect("shipped");
        let basis = Basis::new(algebra.signature());
        for spec in main() {
            for (name, power) in powers {
                for (i, shape) in [[33, 8, 12], [70, 5, 7]].into_iter().enumerate() {
                    let mut case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 137);
                    with_powers(&mut case, power);
                    // A block has several rows, at most 20.
                    case.gpu = case.gpu.clone().with_block_bytes(block_bytes);
                    check_rows(&mut runner, &case, (F32, MatmulPrecision::Tf32), i)
                        .unwrap_or_else(|e| panic!("{name}: {e}"));
                }
            }
        }
    }
}

/// Sums over rows in parts, whose scale falls from block to block. The last block has fewer rows than there are parts.
pub(super) fn parts_of_blocks() {
    const BLOCK: usize = 1024;
    let mut runner = Runner::new(device());
    // The number of bytes that a row takes in the backward pass.
    for (dim, row_bytes) in [(2, 320), (3, 896)] {
        let algebra = Algebra::new(Signature::of(dim, 0, 0)).expect("shipped");
        let basis = Basis::new(algebra.signature());
        for spec in main().into_iter().filter(Spec::is_exact) {
            let shape = [16 * BLOCK + 1, 8, 12];
            let mut case = Case::new(algebra, &basis, &spec, shape, Fill::Integers, 139);
            with_powers(&mut case, |tensor, at| match tensor {
                0 => at.row_number() / (4 * BLOCK as i32),
                _ => 0,
            });
            let mut case = case.rounded(F32);
            case.gpu = case
                .gpu
                .clone()
                .with_precision(MatmulPrecision::Tf32)
                .with_block_bytes(BLOCK * row_bytes);
            let (output, grads) = case.on_cpu(&case.all_wanted());
            exact::check(&mut runner, &case, F32, 0, &output, &grads);
        }
    }
}
