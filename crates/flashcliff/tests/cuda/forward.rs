//! Compares the forward pass with the reference, within its error bounds, and with the CPU.

use flashcliff::{Algebra, Dtype};

use crate::case::{Case, Fill, lane_operators};
use crate::compare::{bounded, informative};
use crate::device::device;
use crate::dtypes::{self, F32, F64};
use crate::measure::{agree, stored};
use crate::numbers::Bounded;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use flashcliff_program::reference::Basis;

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::Gpu, "forward", every_option);
}

/// The factor on error bounds. In `f64` the reference has errors as large as the bounds. In `f32` the normal
/// distribution function is within three units of one on the GPU, while the bounds are made for the CPU, half as large.
const SLACK: f64 = 2.0;

/// The output of the reference, with bounds for its computation in the arithmetic of a type and rounding to the type.
pub(crate) fn bounds(case: &Case<'_>, dtype: Dtype) -> Vec<Bounded<24>> {
    match dtype.arithmetic() {
        Dtype::F64 => stored(&case.reference::<Bounded<53>>(), dtype),
        _ => stored(&case.reference::<Bounded<24>>(), dtype),
    }
}

fn every_option(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let shapes = match basis.len() {
        ..=16 => [[3, 5, 3], [2, 18, 2]],
        _ => [[2, 5, 2], [1, 16, 1]],
    };
    let mut runner = Runner::new(device());
    let mut worst = 0.0_f64;
    for spec in lane_operators(&basis) {
        for shape in shapes {
            let case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 23);
            for (i, dtypes) in dtypes::ALL.into_iter().enumerate() {
                let case = case.rounded(dtypes);
                let want = bounds(&case, dtypes.lanes);
                let outcome = runner.forward(&case, dtypes, i % 2, true);
                let what = || case.context(dtypes);
                let used = bounded(&want, &outcome.output, SLACK);
                worst = worst.max(used.unwrap_or_else(|e| panic!("{e}: {}", what())));
                informative(&outcome.output).unwrap_or_else(|e| panic!("{e}: {}", what()));
                let finite = outcome.saved.iter().all(|s| s.is_finite());
                assert!(finite, "saved: {}", what());
                let on_cpu = match dtypes {
                    F32 => case.on_cpu_in_f32(),
                    F64 => case.on_cpu(&vec![false; case.inputs.len()]).0,
                    _ => continue,
                };
                agree(&want, &on_cpu, &outcome.output)
                    .unwrap_or_else(|e| panic!("CPU against GPU, {e}: {}", what()));
            }
        }
    }
    assert!(worst > 0.0, "nothing was ever off");
}
