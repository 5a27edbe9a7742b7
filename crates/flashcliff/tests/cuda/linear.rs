//! Tests of the grade-wise linear map: all element types and precisions, both passes, against plain sums with derived
//! bounds.

use flashcliff::cuda::{Dtypes, MatmulPrecision};
use flashcliff::ops::LinearOptions;
use flashcliff::{Algebra, Bias, Dims, Dtype, GradeSet, Signature, WeightLayout};

use crate::case::{Case, Fill};
use crate::cases::Spec;
use crate::compare::bounded;
use crate::device::device;
use crate::dtypes::{self, F32};
use crate::measure::stored;
use crate::numbers::Bounded;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use crate::{exact, repeats, symmetry, wanted};
use flashcliff_program::reference::Basis;

pub(crate) fn add(tests: &mut Tests) {
    let lt = Needs::CublasLt;
    tests.add_for_each_algebra(lt, "linear::options", every_option);
    tests.add_for_each_algebra(lt, "linear::exact", integers);
    tests.add(lt, "linear::sizes", every_size);
    tests.add_for_each_algebra(lt, "linear::reflections", |algebra| {
        symmetry::reflections(algebra, &options(algebra));
        symmetry::broken_by_bias(algebra, &options(algebra));
    });
    tests.add_for_each_algebra(lt, "linear::wanted", |algebra| {
        wanted::every_combination(algebra, &options(algebra));
    });
    tests.add_for_each_algebra(lt, "linear::repeats", |algebra| {
        repeats::a_hundred(algebra, &options(algebra)[..3]);
    });
    tests.add(
        Needs::Nothing,
        "linear::a_wrong_map_is_reported",
        wrong_maps,
    );
}

/// All combinations of options that make sense.
fn options(algebra: Algebra) -> Vec<Spec> {
    let dim = algebra.grade_count() - 1;
    let mut specs = Vec::new();
    for per_grade in [true, false] {
        for bias in Bias::ALL {
            for grades in [None, Some(GradeSet::even(dim)), Some(GradeSet::odd(dim))] {
                if bias == Bias::Scalar && grades == Some(GradeSet::odd(dim)) {
                    continue;
                }
                specs.extend(WeightLayout::ALL.map(|layout| {
                    Spec::Linear(
                        LinearOptions::default()
                            .with_per_grade(per_grade)
                            .with_bias(bias)
                            .with_grades(grades)
                            .with_weight_layout(layout),
                    )
                }));
            }
        }
    }
    specs
}

/// Element types with the precisions that they can have.
fn types() -> Vec<(Dtypes, MatmulPrecision)> {
    let highest = dtypes::ALL.map(|dtypes| (dtypes, MatmulPrecision::Highest));
    let lower = [
        MatmulPrecision::Tf32,
        MatmulPrecision::Bf16,
        MatmulPrecision::F16,
    ];
    [&highest[..], &lower.map(|precision| (F32, precision))].concat()
}

/// The relative error to which products may round their operands: a unit in the last place, whatever the way of
/// rounding.
fn operand_rounding(dtype: Dtype, precision: MatmulPrecision) -> f64 {
    let bits = match (dtype, precision) {
        (Dtype::F32, MatmulPrecision::Tf32 | MatmulPrecision::F16) => 10,
        (Dtype::F32, MatmulPrecision::Bf16) => 7,
        _ => return 0.0,
    };
    1.0 / f64::from(1 << bits)
}

/// The factor on error bounds of sums. Tensor cores align the terms of a sum first, and may cut sums off instead of
/// rounding them.
const CUT_OFF: f64 = 4.0;

/// A sum of products.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    size: f64,
    terms: usize,
    /// The part of the size that is exact, because it is not a product.
    added: f64,
}

impl Sum {
    fn add(&mut self, a: f64, b: f64) {
        self.value += a * b;
        self.size += (a * b).abs();
        self.terms += 1;
    }

    fn add_one(&mut self, a: f64) {
        self.add(a, 1.0);
        self.added += a.abs();
    }

    /// The sum with the error bound of its computation in a type.
    fn bound(&self, dtype: Dtype, precision: MatmulPrecision) -> Bounded<24> {
        let unit = dtypes::unit(dtype.arithmetic());
        let operands = operand_rounding(dtype, precision);
        let products = (self.size - self.added) * (2.0 * operands + operands * operands);
        // Small numbers in `f16` have fewer digits.
        let small = match (dtype, precision) {
            (Dtype::F32, MatmulPrecision::F16) => {
                4.0 * self.terms as f64 * dtypes::tiny(Dtype::F16)
            }
            _ => 0.0,
        };
        Bounded {
            value: self.value,
            error: CUT_OFF * (self.terms + 2) as f64 * unit * (self.size + products)
                + products
                + small,
        }
    }
}

/// The output, and the gradients of the map, of its weight and of its bias.
struct Sums {
    output: Vec<Sum>,
    grads: Vec<Vec<Sum>>,
}

/// Computes the map in plain loops, from numbers that are exact in the types. Weights and biases are rounded to the
/// type of the lanes before they are used.
fn sums(case: &Case<'_>, options: &LinearOptions, lanes: Dtype) -> Sums {
    let basis = case.basis;
    let Dims {
        batch,
        in_channels,
        out_channels,
        ..
    } = case.dims;
    let blades = basis.stored(options.grades.unwrap_or(GradeSet::full(basis.dim)));
    let mut grades: Vec<usize> = blades.iter().map(|&b| basis.grade(b)).collect();
    grades.dedup();
    let count = if options.per_grade { grades.len() } else { 1 };
    let of_lanes = |values: &Vec<f64>| -> Vec<f64> {
        let values = values.iter();
        values.map(|&v| dtypes::round(lanes, v)).collect()
    };
    let (x, weight) = (&case.inputs[0], of_lanes(&case.inputs[1]));
    let bias = case.inputs.get(2).map(of_lanes);
    let empty = |values: &Vec<f64>| vec![Sum::default(); values.len()];
    let mut output = empty(&case.grad_output);
    let mut grads: Vec<Vec<Sum>> = case.inputs.iter().map(empty).collect();
    for (k, &blade) in blades.iter().enumerate() {
        let grade = grades.iter().position(|&g| g == basis.grade(blade));
        let grade = if options.per_grade { grade } else { Some(0) };
        let grade = grade.expect("the grade of a stored blade");
        for b in 0..batch {
            for m in 0..out_channels {
                let o = (k * batch + b) * out_channels + m;
                let grad = case.grad_output[o];
                for n in 0..in_channels {
                    let i = (k * batch + b) * in_channels + n;
                    let w = match options.weight_layout {
                        WeightLayout::GradeInOut => (grade * in_channels + n) * out_channels + m,
                        _ => (m * in_channels + n) * count + grade,
                    };
                    output[o].add(weight[w], x[i]);
                    grads[0][i].add(weight[w], grad);
                    grads[1][w].add(x[i], grad);
                }
                let biased = options.bias == Bias::EveryBlade || blade == 0;
                if let (Some(bias), true) = (&bias, biased) {
                    output[o].add_one(bias[m]);
                    grads[2][m].add_one(grad);
                }
            }
        }
    }
    Sums { output, grads }
}

/// Compares a call with these sums.
fn check(
    runner: &mut Runner,
    case: &Case<'_>,
    options: &LinearOptions,
    (dtypes, precision): (Dtypes, MatmulPrecision),
    offset: usize,
) {
    let mut case = case.rounded(dtypes);
    case.gpu = case.gpu.clone().with_precision(precision);
    let want = sums(&case, options, dtypes.lanes);
    let got = runner.both(&case, dtypes, offset, &case.all_wanted());
    let compare = |name: &str, want: &[Sum], got: &[f64], dtype: Dtype| {
        let bounds = want.iter().map(|sum| sum.bound(dtypes.lanes, precision));
        let bounds = stored(&bounds.collect::<Vec<_>>(), dtype);
        if let Err(e) = bounded(&bounds, got, 1.0) {
            let context = case.context(dtypes);
            panic!("{name}, {e}: {context}, {precision:?}, offset {offset}");
        }
    };
    compare("o", &want.output, &got.output, dtypes.lanes);
    for ((spec, want), got) in case.op.inputs().iter().zip(&want.grads).zip(&got.grads) {
        compare(spec.name, want, got, dtypes::of(spec, dtypes));
    }
}

fn every_option(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in options(algebra) {
        let Spec::Linear(options) = &spec else {
            unreachable!("only linear maps are asked for");
        };
        let shapes = [[3, 5, 7], [2, 8, 16], [0, 3, 2], [2, 0, 3], [2, 3, 0]];
        for shape in shapes {
            let case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 61);
            for (i, types) in types().into_iter().enumerate() {
                check(&mut runner, &case, options, types, i % 2);
            }
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
        [7, 128, 96],
        [257, 31, 129],
        [1, 513, 3],
        // Gradients of weights in parts: with rows left over for a part, without, and with rows that have no equal parts.
        [1022, 2, 5],
        [1024, 24, 16],
        [1283, 28, 28],
        // Gradients of weights without parts: gradients in the second layout go to where they stay.
        [2, 5, 1000],
        [3, 130, 260],
    ];
    for layout in WeightLayout::ALL {
        let options = LinearOptions::default().with_weight_layout(layout);
        let spec = Spec::Linear(options.clone());
        for shape in shapes {
            let case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 67);
            for types in types() {
                for offset in [0, 1] {
                    check(&mut runner, &case, &options, types, offset);
                }
            }
        }
    }
}

/// Small integers are exact in every type and precision, and so are their sums in `f32`.
fn integers(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in options(algebra) {
        for shape in [[3, 5, 7], [5, 32, 24]] {
            let mut case = Case::new(algebra, &basis, &spec, shape, Fill::Integers, 71);
            let output = exact::to_f64(&case.reference::<i128>());
            let (_, grads) = case.on_cpu(&case.all_wanted());
            for (i, (dtypes, precision)) in types().into_iter().enumerate() {
                case.gpu = case.gpu.with_precision(precision);
                exact::check(&mut runner, &case, dtypes, i % 2, &output, &grads);
            }
        }
    }
}

/// The bounds are no wider than they must be: results of a lower precision exceed the bounds of a higher one.
fn wrong_maps() {
    let mut sum = Sum::default();
    for (a, b) in [(1.5, -0.5), (0.25, 3.0), (-1.0, 1.25)] {
        sum.add(a, b);
    }
    let near = |relative: f64| [sum.value + relative * sum.size];
    let test = |dtypes, precision, got: [f64; 1]| {
        let bounds = stored(&[sum.bound(dtypes, precision)], dtypes);
        bounded(&bounds, &got, 1.0)
    };
    let highest = MatmulPrecision::Highest;
    assert!(test(Dtype::F32, highest, near(1e-6)).is_ok());
    assert!(test(Dtype::F32, highest, near(1e-5)).is_err());
    assert!(test(Dtype::F32, MatmulPrecision::Tf32, near(1e-3)).is_ok());
    assert!(test(Dtype::F32, MatmulPrecision::Tf32, near(3e-3)).is_err());
    assert!(test(Dtype::F32, MatmulPrecision::Bf16, near(0.01)).is_ok());
    assert!(test(Dtype::F32, MatmulPrecision::Bf16, near(0.02)).is_err());
    assert!(test(Dtype::F64, highest, near(1e-15)).is_ok());
    assert!(test(Dtype::F64, MatmulPrecision::Tf32, near(1e-14)).is_err());
    assert!(test(Dtype::F32, highest, [f64::NAN]).is_err());
}
