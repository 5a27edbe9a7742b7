//! If some gradients are not wanted, the others stay the same, bit for bit, in every combination. The same holds for a
//! forward pass that saves nothing.

use flashcliff::Algebra;

use crate::case::{Case, Fill, main_lane_operators};
use crate::cases::Spec;
use crate::device::device;
use crate::dtypes::{BF16, F32};
use crate::measure::equal;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use flashcliff_program::reference::Basis;

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::Gpu, "wanted", |algebra| {
        every_combination(
            algebra,
            &main_lane_operators(&Basis::new(algebra.signature())),
        );
    });
}

pub(crate) fn every_combination(algebra: Algebra, specs: &[Spec]) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in specs {
        for (dtypes, shape) in [(F32, [5, 33, 4]), (BF16, [3, 64, 32])] {
            let case = Case::new(algebra, &basis, spec, shape, Fill::Reals, 43);
            let case = case.rounded(dtypes);
            let fail = |e: String| panic!("{e}: {}", case.context(dtypes));
            let all = runner.both(&case, dtypes, 0, &case.all_wanted());
            let alone = runner.forward(&case, dtypes, 0, false);
            equal(&all.output, &alone.output).unwrap_or_else(fail);
            assert!(alone.saved.is_empty() || case.op.kept().is_some());
            let count = case.inputs.len();
            for choice in 0..1_usize << count {
                let wanted: Vec<bool> = (0..count).map(|i| choice >> i & 1 == 1).collect();
                let some = runner.both(&case, dtypes, 0, &wanted);
                equal(&all.output, &some.output).unwrap_or_else(fail);
                for (tensor, wanted) in wanted.iter().enumerate() {
                    let want: &[f64] = if *wanted { &all.grads[tensor] } else { &[] };
                    let fail = |e: String| fail(format!("gradient {tensor} of {choice:b}, {e}"));
                    equal(want, &some.grads[tensor]).unwrap_or_else(fail);
                }
            }
        }
    }
}
