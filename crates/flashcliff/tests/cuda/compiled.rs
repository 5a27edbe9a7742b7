//! Kernels that are compiled when they are first used: for signatures and grades that no build has kernels of, and, bit for bit, in the
//! place of kernels that it has.

use flashcliff::cuda::Dtypes;
use flashcliff::ops::ProductOptions;
use flashcliff::{Algebra, Gate, GradeSet, Norm, ProductKind, Signature};

use crate::case::{Case, Fill};
use crate::cases::{Spec, is_nothing, main_of};
use crate::device::device;
use crate::dtypes::{BF16, F32, F64};
use crate::gradients::check_against_cpu;
use crate::measure::equal;
use crate::random::Random;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use flashcliff_program::reference::Basis;

/// Signatures that are not shipped: the element types that they are compared in, and whether all main operators are.
const SIGNATURES: [([usize; 3], &[Dtypes], bool); 12] = [
    ([0, 0, 1], &[F32], true),
    ([1, 1, 0], &[F32, F64], true),
    ([0, 1, 1], &[F32], true),
    ([1, 1, 1], &[F32, BF16, F64], true),
    ([0, 3, 0], &[F32], true),
    ([2, 1, 0], &[F32], true),
    ([2, 1, 1], &[F32, BF16], true),
    ([0, 4, 0], &[F32], true),
    ([1, 1, 2], &[F32], true),
    ([3, 2, 0], &[F32], false),
    ([2, 2, 1], &[F32], false),
    ([6, 0, 0], &[F32], false),
];

/// Signatures of 7 and 8 dimensions, whose kernels take long to compile.
const LARGE: [[usize; 3]; 2] = [[7, 0, 0], [4, 4, 0]];

pub(crate) fn add(tests: &mut Tests) {
    for (signature, dtypes, all) in SIGNATURES {
        let [p, q, r] = signature;
        let name = format!("compiled::signatures::{p}_{q}_{r}");
        tests.add(Needs::CublasLt, name, move || {
            compare(Signature::of(p, q, r), dtypes, all)
        });
    }
    for signature in LARGE {
        for (name, spec) in few() {
            let [p, q, r] = signature;
            let name = format!("compiled::large::{p}_{q}_{r}::{name}");
            tests.add(Needs::Gpu, name, move || {
                large(Signature::of(p, q, r), &spec)
            });
        }
    }
    tests.add(Needs::CublasLt, "compiled::same_bits", || {
        same_bits(Signature::of(3, 0, 0))
    });
    tests.add(Needs::Gpu, "compiled::grades", any_grades);
}

/// Products that are most of the work of a network, plain and with everything.
fn products() -> Vec<Spec> {
    let plain = ProductOptions::default()
        .with_gate(Gate::None)
        .with_norm(Norm::None);
    let mut specs = vec![Spec::Sgp(ProductOptions::default()), Spec::Fcgp(plain)];
    specs.extend(ProductKind::ALL.map(|kind| Spec::Product(kind, None, None)));
    specs
}

fn compare(signature: Signature, dtypes: &[Dtypes], all: bool) {
    let algebra = Algebra::new(signature).expect("any signature");
    assert!(!algebra.is_compiled(), "{signature} is shipped");
    let basis = Basis::new(signature);
    let specs = if all { main_of(&basis) } else { products() };
    let mut runner = Runner::new(device());
    for spec in specs.iter().filter(|spec| !is_nothing(&basis, spec)) {
        // Rows of whole and of broken vectors; several rows a CTA.
        for shape in [[5, 8, 4], [2, 33, 3]] {
            let case = Case::new(algebra, &basis, spec, shape, Fill::Separated, 53);
            for (i, &dtypes) in dtypes.iter().enumerate() {
                // Matrix products of 16-bit operands have other bounds.
                if dtypes == BF16 && multiplies_matrices(spec) {
                    continue;
                }
                check_against_cpu(&mut runner, &case, dtypes, i % 2, &case.all_wanted());
            }
        }
    }
}

/// Operators of large algebras whose kernels are compiled within a minute. Products of all blades with all are not.
fn few() -> [(&'static str, Spec); 2] {
    let vector = Some(GradeSet::single(1));
    let of = |kind, left| Spec::Product(kind, left, None);
    [
        ("geometric_by_vectors", of(ProductKind::Geometric, vector)),
        ("exterior", of(ProductKind::Exterior, None)),
    ]
}

fn large(signature: Signature, spec: &Spec) {
    let algebra = Algebra::new(signature).expect("any signature");
    let basis = Basis::new(signature);
    let mut runner = Runner::new(device());
    let case = Case::new(algebra, &basis, spec, [2, 33, 3], Fill::Separated, 53);
    check_against_cpu(&mut runner, &case, F32, 0, &case.all_wanted());
}

fn multiplies_matrices(spec: &Spec) -> bool {
    matches!(spec, Spec::Fcgp(_) | Spec::Linear(_) | Spec::LinearSgp(_))
}

/// An algebra that was asked for without kernels gives the results of the built ones.
fn same_bits(signature: Signature) {
    let built = Algebra::new(signature).expect("shipped");
    let other = Algebra::interpreted(signature).expect("any signature");
    assert!(built.is_compiled() && !other.is_compiled());
    let basis = Basis::new(signature);
    let mut runner = Runner::new(device());
    for spec in main_of(&basis) {
        for (dtypes, shape) in [
            (F32, [9, 64, 32]),
            (F32, [3, 33, 5]),
            (BF16, [5, 64, 32]),
            (F64, [3, 16, 8]),
        ] {
            let mut outcome = |algebra| {
                let case =
                    Case::new(algebra, &basis, &spec, shape, Fill::Reals, 59).rounded(dtypes);
                let outcome = runner.both(&case, dtypes, 0, &case.all_wanted());
                (outcome, case.context(dtypes))
            };
            let ((want, what), (got, _)) = (outcome(built), outcome(other));
            equal(&want.output, &got.output).unwrap_or_else(|e| panic!("{e}: {what}"));
            for (want, got) in want.grads.iter().zip(&got.grads) {
                equal(want, got).unwrap_or_else(|e| panic!("gradients, {e}: {what}"));
            }
        }
    }
}

/// Products of grades for which no build has kernels.
fn any_grades() {
    let signature = Signature::of(3, 0, 0);
    let algebra = Algebra::new(signature).expect("shipped");
    let basis = Basis::new(signature);
    let mut random = Random::new(61);
    let mut runner = Runner::new(device());
    let mut compared = 0;
    while compared < 12 {
        let mut grades = || {
            let chosen = (0..4).filter(|_| random.unit() > 0.0).map(GradeSet::single);
            let chosen = chosen.fold(GradeSet::EMPTY, GradeSet::union);
            Some(chosen).filter(|set| !set.is_empty())
        };
        let (Some(left), Some(right)) = (grades(), grades()) else {
            continue;
        };
        let mut options = ProductOptions::default();
        options = options.with_left(Some(left)).with_right(Some(right));
        for spec in [
            Spec::Sgp(options),
            Spec::Product(ProductKind::Geometric, Some(left), Some(right)),
        ] {
            if is_nothing(&basis, &spec) {
                continue;
            }
            let case = Case::new(algebra, &basis, &spec, [3, 20, 4], Fill::Reals, 67);
            check_against_cpu(&mut runner, &case, F32, 0, &case.all_wanted());
            compared += 1;
        }
    }
}
