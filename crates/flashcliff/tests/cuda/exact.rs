//! Tests with integers: operators that add and multiply must give exactly the result of the reference, rounded to the
//! type in memory.

use flashcliff::Algebra;
use flashcliff::cuda::Dtypes;

use crate::case::{Case, Fill, lane_operators, tiny};
use crate::cases::Spec;
use crate::compare::informative;
use crate::device::device;
use crate::dtypes;
use crate::measure::equal;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use flashcliff_program::reference::Basis;

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::Gpu, "exact::elements", every_element);
    tests.add_for_each_algebra(Needs::Gpu, "exact::many_lanes", many_lanes);
}

fn exact_operators(basis: &Basis) -> Vec<Spec> {
    let mut specs = lane_operators(basis);
    specs.retain(Spec::is_exact);
    assert!(specs.len() > 10, "only {} operators", specs.len());
    specs
}

/// Checks a call with integers for equality.
pub(crate) fn check(
    runner: &mut Runner,
    case: &Case<'_>,
    dtypes: Dtypes,
    offset: usize,
    output: &[f64],
    grads: &[Vec<f64>],
) {
    let outcome = runner.both(case, dtypes, offset, &case.all_wanted());
    let fail = |e: String| panic!("{e}: {}", case.context(dtypes));
    let round = |values: &[f64], dtype| -> Vec<f64> {
        values.iter().map(|&v| dtypes::round(dtype, v)).collect()
    };
    equal(&round(output, dtypes.lanes), &outcome.output).unwrap_or_else(fail);
    for ((spec, want), got) in case.op.inputs().iter().zip(grads).zip(&outcome.grads) {
        let want = round(want, dtypes::of(spec, dtypes));
        let fail = |e: String| panic!("grad_{}, {e}: {}", spec.name, case.context(dtypes));
        equal(&want, got).unwrap_or_else(fail);
    }
}

pub(crate) fn to_f64(values: &[i128]) -> Vec<f64> {
    values.iter().map(|&v| v as f64).collect()
}

/// Compares all elements of all gradients with derivatives of the reference.
fn every_element(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in exact_operators(&basis) {
        let case = Case::new(algebra, &basis, &spec, tiny(&basis), Fill::Integers, 17);
        let output = to_f64(&case.reference::<i128>());
        let grads = case.derivatives().gradients::<i128>();
        let grads: Vec<Vec<f64>> = grads.iter().map(|g| to_f64(g)).collect();
        for (i, dtypes) in dtypes::ALL.into_iter().enumerate() {
            check(&mut runner, &case, dtypes, i % 3, &output, &grads);
        }
    }
}

/// Compares the output with the reference, and the gradients with the CPU, which is exact too.
fn many_lanes(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let shapes = match basis.len() {
        ..=16 => [[7, 37, 7], [2, 128, 2]],
        _ => [[3, 19, 3], [1, 64, 1]],
    };
    let mut runner = Runner::new(device());
    for spec in exact_operators(&basis) {
        for shape in shapes {
            let case = Case::new(algebra, &basis, &spec, shape, Fill::Integers, 19);
            let output = to_f64(&case.reference::<i128>());
            let (on_cpu, grads) = case.on_cpu(&case.all_wanted());
            equal(&output, &on_cpu).expect("the CPU is exact");
            informative(&output).unwrap_or_else(|e| panic!("{e}: {spec:?}"));
            for (i, dtypes) in dtypes::ALL.into_iter().enumerate() {
                check(&mut runner, &case, dtypes, (i + 1) % 2, &output, &grads);
            }
        }
    }
}
