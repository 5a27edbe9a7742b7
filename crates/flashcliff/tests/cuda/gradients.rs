//! Compares the backward pass with the CPU in `f64`, which is tested against derivatives of the reference, and with these
//! derivatives themselves.

use flashcliff::Algebra;
use flashcliff::cuda::Dtypes;

use crate::case::{Case, Fill, lane_operators, main_lane_operators, tiny};
use crate::compare::informative;
use crate::device::device;
use crate::dtypes;
use crate::measure::within;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use flashcliff_program::reference::Basis;

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::Gpu, "gradients::elements", every_element);
    tests.add_for_each_algebra(Needs::Gpu, "gradients::options", every_option);
}

/// Compares a call with the CPU in `f64`: the output and the wanted gradients.
pub(crate) fn check_against_cpu(
    runner: &mut Runner,
    case: &Case<'_>,
    dtypes: Dtypes,
    offset: usize,
    wanted: &[bool],
) {
    let case = case.rounded(dtypes);
    let outcome = runner.both(&case, dtypes, offset, wanted);
    let (output, grads) = case.on_cpu(wanted);
    // The units of the type that the GPU computes in.
    let unit = dtypes::unit(dtypes.arithmetic());
    let fail = |name: &str, e: String| panic!("{name}, {e}: {}", case.context(dtypes));
    let spread = || case.spread(unit, wanted).0;
    within(&output, &outcome.output, dtypes.lanes, spread)
        .unwrap_or_else(|e| fail("the output", e));
    for (tensor, spec) in case.op.inputs().iter().enumerate() {
        let (want, got) = (&grads[tensor], &outcome.grads[tensor]);
        let spread = || case.spread(unit, wanted).1.swap_remove(tensor);
        within(want, got, dtypes::of(spec, dtypes), spread)
            .unwrap_or_else(|e| fail(&format!("grad_{}", spec.name), e));
    }
}

/// Compares all elements of all gradients with derivatives of the reference.
fn every_element(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in main_lane_operators(&basis) {
        let case = Case::new(algebra, &basis, &spec, tiny(&basis), Fill::Reals, 29);
        for (i, dtypes) in dtypes::ALL.into_iter().enumerate() {
            let case = case.rounded(dtypes);
            let want = case.derivatives().gradients::<f64>();
            let outcome = runner.both(&case, dtypes, i % 2, &case.all_wanted());
            let unit = dtypes::unit(dtypes.arithmetic());
            for (tensor, spec) in case.op.inputs().iter().enumerate() {
                let got = &outcome.grads[tensor];
                let spread = || case.spread(unit, &case.all_wanted()).1.swap_remove(tensor);
                let what = || format!("grad_{}: {}", spec.name, case.context(dtypes));
                within(&want[tensor], got, dtypes::of(spec, dtypes), spread)
                    .unwrap_or_else(|e| panic!("{e}, {}", what()));
                informative(got).unwrap_or_else(|e| panic!("{e}, {}", what()));
            }
        }
    }
}

fn every_option(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in lane_operators(&basis) {
        for (shape, fill) in [([3, 5, 3], Fill::Reals), ([2, 33, 2], Fill::Separated)] {
            let case = Case::new(algebra, &basis, &spec, shape, fill, 31);
            for (i, dtypes) in dtypes::ALL.into_iter().enumerate() {
                check_against_cpu(&mut runner, &case, dtypes, i % 2, &case.all_wanted());
            }
        }
    }
}
