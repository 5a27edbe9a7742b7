//! Tests of the fully connected product: all algebras, element types and precisions, both passes, in one block of rows
//! and in several.

mod scales;

use flashcliff::cuda::{Dtypes, MatmulPrecision};
use flashcliff::{Algebra, Dtype, Gate, Norm, Signature};

use crate::case::{Case, Fill, tiny};
use crate::cases::{Spec, all_operators, main_operators};
use crate::device::device;
use crate::dtypes::{self, BF16, F32, F64};
use crate::measure::within;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use crate::{exact, repeats, wanted};
use flashcliff_program::reference::Basis;

/// A test of an algebra.
type Test = fn(Algebra);

pub(crate) fn add(tests: &mut Tests) {
    let lt = Needs::CublasLt;
    let each: [(&str, Test); 5] = [
        ("elements", every_element),
        ("exact", integers),
        ("options", every_option),
        ("wanted", |algebra| {
            wanted::every_combination(algebra, &main());
        }),
        ("repeats", |algebra| repeats::a_hundred(algebra, &main())),
    ];
    for (name, run) in each {
        tests.add_for_each_algebra(lt, &format!("fully_connected::{name}"), run);
    }
    tests.add(lt, "fully_connected::sizes", every_size);
    tests.add(lt, "fully_connected::blocks", several_blocks);
    tests.add(lt, "fully_connected::blocks_of_16_bits", blocks_of_16_bits);
    tests.add(lt, "fully_connected::many_tiles", many_tiles);
    tests.add(lt, "fully_connected::scales", scales::every_scale);
    tests.add(
        lt,
        "fully_connected::scales_of_blocks",
        scales::scales_of_blocks,
    );
    tests.add(
        lt,
        "fully_connected::parts_of_blocks",
        scales::parts_of_blocks,
    );
    tests.add(
        lt,
        "fully_connected::not_finite",
        numbers_that_are_not_finite,
    );
    tests.add(
        lt,
        "fully_connected::a_wrong_product_is_reported",
        wrong_products,
    );
}

/// The product with the options that a layer would choose, and the product without gate and norm.
fn main() -> Vec<Spec> {
    let mut specs = main_operators();
    specs.retain(|spec| matches!(spec, Spec::Fcgp(_)));
    assert_eq!(specs.len(), 2);
    specs
}

/// Element types with the precisions that they can have.
fn types() -> Vec<(Dtypes, MatmulPrecision)> {
    let highest = dtypes::ALL.map(|dtypes| (dtypes, MatmulPrecision::Highest));
    [&highest[..], &SCALED.map(|precision| (F32, precision))].concat()
}

/// The relative error to which weights and the products that are summed are rounded. Tensor cores may cut numbers off.
fn operand_unit(dtypes: Dtypes, precision: MatmulPrecision) -> f64 {
    match (dtypes.lanes, precision) {
        (dtype, MatmulPrecision::Highest) => dtypes::unit(dtype),
        (Dtype::F32, _) => 1.0 / f64::from(1 << 10),
        (dtype, _) => dtypes::unit(dtype),
    }
}

/// Compares both passes with given results. The effect of rounded operands is measured by moving the inputs.
fn compare(
    runner: &mut Runner,
    case: &Case<'_>,
    (dtypes, precision): (Dtypes, MatmulPrecision),
    offset: usize,
    (output, grads): (&[f64], &[Vec<f64>]),
) -> Result<(), String> {
    let all = case.all_wanted();
    let got = runner.both(case, dtypes, offset, &all);
    let unit = operand_unit(dtypes, precision);
    within(output, &got.output, dtypes.lanes, || {
        case.spread(unit, &all).0
    })
    .map_err(|e| format!("the output, {e}"))?;
    for (tensor, spec) in case.op.inputs().iter().enumerate() {
        let (want, got) = (&grads[tensor], &got.grads[tensor]);
        within(want, got, dtypes::of(spec, dtypes), || {
            case.spread(unit, &all).1.swap_remove(tensor)
        })
        .map_err(|e| format!("grad_{}, {e}", spec.name))?;
    }
    Ok(())
}

/// Compares a call with the CPU in `f64`.
fn check(
    runner: &mut Runner,
    case: &Case<'_>,
    types: (Dtypes, MatmulPrecision),
    offset: usize,
) -> Result<(), String> {
    let mut case = case.rounded(types.0);
    case.gpu = case.gpu.clone().with_precision(types.1);
    let (output, grads) = case.on_cpu(&case.all_wanted());
    compare(runner, &case, types, offset, (&output, &grads))
        .map_err(|e| format!("{e}: {}, {:?}", case.context(types.0), types.1))
}

/// Compares all elements of all gradients with derivatives of the reference.
fn every_element(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    // With a single channel the norm would leave next to no gradient.
    let [batch, from, to] = tiny(&basis);
    let shape = [batch, from, to.max(2)];
    for spec in main() {
        let case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 83);
        for types in types() {
            let mut case = case.rounded(types.0);
            case.gpu = case.gpu.clone().with_precision(types.1);
            let (output, _) = case.on_cpu(&case.all_wanted());
            let grads = case.derivatives().gradients::<f64>();
            compare(&mut runner, &case, types, 1, (&output, &grads))
                .unwrap_or_else(|e| panic!("{e}: {}", case.context(types.0)));
        }
    }
}

/// Sums of small integers are exact in every precision.
fn integers(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    let shapes = match basis.len() {
        ..=8 => vec![[5, 3, 7], [70, 36, 50]],
        _ => vec![[5, 3, 7]],
    };
    for spec in main().into_iter().filter(Spec::is_exact) {
        for &shape in &shapes {
            let case = Case::new(algebra, &basis, &spec, shape, Fill::Integers, 89);
            let output = exact::to_f64(&case.reference::<i128>());
            let (_, grads) = case.on_cpu(&case.all_wanted());
            for (i, (dtypes, precision)) in types().into_iter().enumerate() {
                let mut case = case.rounded(dtypes);
                case.gpu = case.gpu.clone().with_precision(precision);
                exact::check(&mut runner, &case, dtypes, i % 2, &output, &grads);
            }
        }
    }
}

fn every_option(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    let mut specs = all_operators(&basis);
    specs.retain(|spec| matches!(spec, Spec::Fcgp(_)));
    assert!(specs.len() > 5, "only {} products", specs.len());
    for (i, spec) in specs.iter().enumerate() {
        let shapes = [[3, 5, 7], [2, 8, 16], [0, 3, 2], [2, 0, 3], [2, 3, 0]];
        for shape in shapes {
            let case = Case::new(algebra, &basis, spec, shape, Fill::Reals, 97);
            let types = types();
            check(&mut runner, &case, types[i % types.len()], i % 2)
                .unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

fn every_size() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    let shapes = [
        [1, 1, 1],
        [33, 17, 64],
        [64, 32, 48],
        [130, 64, 136],
        [257, 31, 129],
        [2, 200, 72],
        // With these rows the norm uses two warps, four warps, and vectors of 8 bytes for 16-bit numbers.
        [5, 8, 520],
        [3, 8, 1032],
        [9, 8, 100],
    ];
    for spec in main() {
        for shape in shapes {
            let case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 101);
            for (i, types) in types().into_iter().enumerate() {
                check(&mut runner, &case, types, i % 2).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}

/// Batches of several blocks, the last of which is shorter; also sums over rows in parts, with rows left over.
fn several_blocks() {
    let mut runner = Runner::new(device());
    for (dim, shape) in [(3, [1601, 512, 8]), (5, [2501, 64, 5])] {
        let algebra = Algebra::new(Signature::of(dim, 0, 0)).expect("shipped");
        let basis = Basis::new(algebra.signature());
        for spec in main() {
            let mut case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 107);
            case.gpu = case.gpu.clone().with_block_bytes(64 << 20);
            // With so many elements, moving each a few times does not measure the effect of rounding to 16 bits.
            for dtypes in [F32, F64] {
                let types = (dtypes, MatmulPrecision::Highest);
                check(&mut runner, &case, types, 0).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}

/// Several blocks of 16-bit tensors, the last of which is shorter. One kernel computes the gradients of `x` and `y` and
/// the path products, or two kernels if rows are no whole vectors.
fn blocks_of_16_bits() {
    const BLOCK_BYTES: usize = 1 << 14;
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in main() {
        for shape in [[70, 8, 16], [70, 7, 12]] {
            for dtypes in [BF16, Dtypes::uniform(Dtype::F16)] {
                let mut case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 149);
                case.gpu = case.gpu.clone().with_block_bytes(BLOCK_BYTES);
                let types = (dtypes, MatmulPrecision::Highest);
                check(&mut runner, &case, types, 0).unwrap_or_else(|e| panic!("{e}"));
                if spec.is_exact() {
                    let case = Case::new(algebra, &basis, &spec, shape, Fill::Integers, 151);
                    let mut case = case.rounded(dtypes);
                    case.gpu = case.gpu.clone().with_block_bytes(BLOCK_BYTES);
                    let (output, grads) = case.on_cpu(&case.all_wanted());
                    exact::check(&mut runner, &case, dtypes, 0, &output, &grads);
                }
            }
        }
    }
}

/// The precisions whose operands are 16-bit numbers times powers of two.
const SCALED: [MatmulPrecision; 3] = [
    MatmulPrecision::Tf32,
    MatmulPrecision::Bf16,
    MatmulPrecision::F16,
];

/// Matrices with so many tiles that the gradients of the weights of two grades are one product: in one block, and in
/// several of which the last is shorter. Also rows that are no whole vectors.
fn many_tiles() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    let types = (F32, MatmulPrecision::Tf32);
    for spec in main() {
        for (shape, block_bytes) in [
            ([68, 128, 384], 64 << 20),
            ([70, 130, 386], 64 << 20),
            ([150, 128, 384], 1 << 20),
        ] {
            let mut case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 109);
            case.gpu = case.gpu.clone().with_block_bytes(block_bytes);
            check(&mut runner, &case, types, 0).unwrap_or_else(|e| panic!("{e}"));
            let case = Case::new(algebra, &basis, &spec, shape, Fill::Integers, 113);
            if spec.is_exact() {
                let mut case = case.rounded(F32);
                case.gpu = case
                    .gpu
                    .clone()
                    .with_precision(types.1)
                    .with_block_bytes(block_bytes);
                let (output, grads) = case.on_cpu(&case.all_wanted());
                exact::check(&mut runner, &case, F32, 0, &output, &grads);
            }
        }
    }
}

/// An infinity and a NaN only affect their own rows.
fn numbers_that_are_not_finite() {
    const ROWS: [usize; 2] = [2, 5];
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in main() {
        // The rows are in one block, and in several.
        for (precision, block_bytes) in SCALED.into_iter().zip([1 << 20, 1 << 12, 1 << 12]) {
            let case = Case::new(algebra, &basis, &spec, [9, 8, 8], Fill::Reals, 131);
            let mut case = case.rounded(F32);
            let gpu = case.gpu.clone().with_precision(precision);
            case.gpu = gpu.with_block_bytes(block_bytes);
            let all = case.all_wanted();
            let want = runner.both(&case, F32, 0, &all);
            // Only the blade e1 is changed: in the first of these rows of `x`, and in the second of `y`.
            case.inputs[0][(9 + ROWS[0]) * 8] = f64::NAN;
            case.inputs[1][(9 + ROWS[1]) * 8] = f64::INFINITY;
            let got = runner.both(&case, F32, 0, &all);
            // In a plain product the gradient of an operand does not read that operand.
            let plain = |row| spec.is_exact().then_some(row);
            for (want, got, untouched) in [
                (&want.output, &got.output, None),
                (&want.grads[0], &got.grads[0], plain(ROWS[0])),
                (&want.grads[1], &got.grads[1], plain(ROWS[1])),
            ] {
                for (i, (want, got)) in want.iter().zip(got).enumerate() {
                    let row = i / 8 % 9;
                    assert!(
                        ROWS.contains(&row) || want == got,
                        "row {row}: {want} {got}"
                    );
                }
                for row in ROWS {
                    let mut own = got.chunks(8).skip(row).step_by(9).flatten();
                    let finite = own.all(|value| value.is_finite());
                    assert_eq!(finite, untouched == Some(row), "row {row} of {spec:?}");
                }
            }
            assert!(got.grads[2].iter().any(|value| !value.is_finite()));
        }
    }
}

/// The comparison fails for another gate, for another norm, and for one wrong weight.
fn wrong_products() {
    let algebra = Algebra::new(Signature::of(2, 0, 0)).expect("shipped");
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in main() {
        let Spec::Fcgp(options) = &spec else {
            unreachable!("only products are asked for");
        };
        let case = Case::new(algebra, &basis, &spec, [9, 8, 8], Fill::Reals, 103);
        let all = case.all_wanted();
        for types in [
            (F32, MatmulPrecision::Tf32),
            (F32, MatmulPrecision::Highest),
            (F64, MatmulPrecision::Highest),
            (BF16, MatmulPrecision::Highest),
        ] {
            let mut case = case.rounded(types.0);
            case.gpu = case.gpu.clone().with_precision(types.1);
            let (output, grads) = case.on_cpu(&all);
            compare(&mut runner, &case, types, 0, (&output, &grads)).expect("the product");
            let mut others = Vec::new();
            let mut gated = options.clone();
            gated.gate = match options.gate {
                Gate::None => Gate::Silu,
                _ => Gate::None,
            };
            let mut normed = options.clone();
            normed.norm = match options.norm {
                Norm::None => Norm::Rms,
                _ => Norm::None,
            };
            for other in [gated, normed] {
                let other = Spec::Fcgp(other);
                let mut wrong = Case::new(algebra, &basis, &other, [9, 8, 8], Fill::Reals, 103);
                wrong.inputs.clone_from(&case.inputs);
                wrong.grad_output.clone_from(&case.grad_output);
                others.push(wrong.on_cpu(&all));
            }
            let mut weighted = case.rounded(types.0);
            weighted.inputs[2][11] += 4.0;
            others.push(weighted.on_cpu(&all));
            for (output, grads) in &others {
                let result = compare(&mut runner, &case, types, 0, (output, grads));
                assert!(result.is_err(), "a wrong product was taken for right");
            }
        }
    }
}
