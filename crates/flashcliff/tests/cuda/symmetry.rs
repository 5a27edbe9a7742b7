//! Equivariance: an operator commutes with reflections, bit for bit. `symmetries` says with which. The forward pass is that of the CPU
//! within bounds, and the suite of the CPU has all versors.

use flashcliff::{Algebra, Bias, Gate, Norm, ProductKind, Signature};

use crate::case::{Case, Fill, lane_operators};
use crate::cases::Spec;
use crate::compare::close;
use crate::device::device;
use crate::dtypes::{BF16, F32, F64};
use crate::measure::equal;
use crate::random::Random;
use crate::runner::Runner;
use crate::symmetries::{Image, moved_inputs, moved_output, symmetry};
use crate::trials::{Needs, Tests};
use crate::versors::{Action, Group};
use flashcliff::cuda::Dtypes;
use flashcliff_program::reference::Basis;

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::Gpu, "symmetry::reflections", |algebra| {
        reflections(algebra, &lane_operators(&Basis::new(algebra.signature())));
    });
    tests.add(
        Needs::Gpu,
        "symmetry::those_that_are_not_there_are_caught",
        false_symmetries,
    );
}

/// `op(action(inputs))` and `action(op(inputs))`.
fn both_ways(
    runner: &mut Runner,
    case: &Case<'_>,
    dtypes: Dtypes,
    image: Image,
    action: &Action,
) -> (Vec<f64>, Vec<f64>) {
    let mut moved = case.rounded(dtypes);
    moved.inputs = moved_inputs(case.basis, case.spec, &case.op, action, &moved.inputs);
    let got = runner.forward(&moved, dtypes, 1, false).output;
    let output = runner
        .forward(&case.rounded(dtypes), dtypes, 1, true)
        .output;
    let want = moved_output(case.basis, case.spec, image, action, &output);
    (got, want)
}

/// A reflection along a basis vector only flips signs, and rounding does not depend on signs.
pub(crate) fn reflections(algebra: Algebra, specs: &[Spec]) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in specs {
        let Some(symmetry) = symmetry(spec) else {
            continue;
        };
        let case = Case::new(algebra, &basis, spec, [2, 19, 5], Fill::Reals, 23);
        for vector in 0..basis.dim {
            let action = Action::reflection(&basis, vector);
            for dtypes in [F32, F64, BF16] {
                let (got, want) = both_ways(&mut runner, &case, dtypes, symmetry.image, &action);
                let fail = |e: String| panic!("{e}: {}", case.context(dtypes));
                equal(&want, &got).unwrap_or_else(fail);
            }
        }
    }
}

/// The symmetries that the table of `symmetries` denies are indeed broken, so the checks can fail.
fn false_symmetries() {
    let spacetime = Algebra::new(Signature::of(1, 3, 0)).expect("shipped");
    let basis = Basis::new(spacetime.signature());
    let mut runner = Runner::new(device());
    let mut random = Random::new(3);
    let boost = Action::random(&basis, Group::Pin, 2, &mut random);
    let mirror = Action::reflection(&basis, 1);
    let regressive = Spec::Product(ProductKind::Regressive, None, None);
    let cases = [
        (Spec::GradeRms(Norm::Rms, 1e-6), Image::Along, &boost, false),
        (Spec::row("dual"), Image::Along, &mirror, false),
        (regressive, Image::Along, &mirror, false),
        (Spec::row("reverse"), Image::Invariant, &mirror, false),
        (Spec::Gate(Gate::Gelu), Image::Invariant, &mirror, false),
        (Spec::row("norm"), Image::Invariant, &mirror, true),
    ];
    for (spec, image, action, holds) in cases {
        let case = Case::new(spacetime, &basis, &spec, [2, 3, 2], Fill::Reals, 23);
        let (got, want) = both_ways(&mut runner, &case, F64, image, action);
        let result = close::<f64>(&want, &got, 1e-3);
        assert_eq!(result.is_ok(), holds, "{spec:?} as {image:?}: {result:?}");
        if !holds {
            assert!(equal(&want, &got).is_err(), "{spec:?} as {image:?}");
        }
    }
}

/// Linear maps with a bias that no versor leaves unchanged.
pub(crate) fn broken_by_bias(algebra: Algebra, specs: &[Spec]) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    let mut caught = 0;
    for spec in specs {
        let everywhere = |o: &flashcliff::ops::LinearOptions| o.bias == Bias::EveryBlade;
        if !matches!(spec, Spec::Linear(o) if everywhere(o)) || symmetry(spec).is_some() {
            continue;
        }
        let case = Case::new(algebra, &basis, spec, [2, 3, 2], Fill::Reals, 23);
        let action = Action::reflection(&basis, 0);
        let (got, want) = both_ways(&mut runner, &case, F32, Image::Along, &action);
        assert!(
            equal(&want, &got).is_err(),
            "{spec:?} passes for equivariant"
        );
        caught += 1;
    }
    assert!(caught > 0, "no such map");
}
