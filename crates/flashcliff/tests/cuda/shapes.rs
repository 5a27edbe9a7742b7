//! Tests of sizes: 0, 1, around the multiples of vectors, warps and CTAs, longer than a CTA, than a cluster and than
//! all of them. Each is used as batch and as channels; element types, alignments and wanted gradients take turns.

use flashcliff::ops::{ProductOptions, SteerableOptions};
use flashcliff::{Algebra, Gate, GradeSet, Invariant, Norm, ProductKind};

use crate::case::{Case, Fill, has_smooth_norm};
use crate::cases::Spec;
use crate::device::device;
use crate::dtypes::{self, F32};
use crate::gradients::check_against_cpu;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use flashcliff_program::reference::Basis;

const SIZES: [usize; 23] = [
    0, 1, 2, 3, 5, 28, 31, 32, 33, 96, 127, 128, 129, 255, 257, 512, 513, 1000, 1024, 1031, 2048,
    4100, 9001,
];

/// The sizes of the other axis, if there is room.
const PARTNERS: [usize; 8] = [3, 1, 5, 2, 28, 33, 7, 64];

/// The largest number of elements of a tensor, to keep the CPU fast.
const MOST_ELEMENTS: usize = 300_000;

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::Gpu, "shapes::batch", |algebra| {
        over_sizes(algebra, |size, partner| [size, partner, 1]);
    });
    tests.add_for_each_algebra(Needs::Gpu, "shapes::channels", |algebra| {
        over_sizes(algebra, |size, partner| [partner, size, 1]);
    });
}

/// The epsilon of RMS norms: not small compared with the values that are normalised. With a small one, a single channel
/// would keep nothing but its sign, and its gradient would be a difference of equal numbers.
const EPS: f64 = 4.0;

/// Operators with kernels of every kind: with and without parameters and row sums, and with many operands.
fn kinds() -> Vec<Spec> {
    let normalized = ProductOptions::default().with_eps(EPS);
    let plain = ProductOptions::default()
        .with_gate(Gate::None)
        .with_norm(Norm::None);
    let points = normalized.clone().with_left(Some(GradeSet::single(1)));
    vec![
        Spec::Sgp(normalized),
        Spec::Sgp(plain),
        Spec::Product(ProductKind::Geometric, None, None),
        Spec::row("mv_layer_norm"),
        Spec::GradeRms(Norm::Invariant, EPS),
        Spec::Steerable(SteerableOptions::default()),
        Spec::MvSilu(Invariant::Mag2),
        Spec::Sgp(points),
        Spec::row("grade_norm"),
        Spec::row("grade_norms"),
        Spec::Sandwich(None, None),
    ]
}

fn over_sizes(algebra: Algebra, shape: fn(usize, usize) -> [usize; 3]) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for (k, spec) in kinds().iter().enumerate() {
        let fill = match has_smooth_norm(spec) {
            true => Fill::Separated,
            false => Fill::Reals,
        };
        for (i, size) in SIZES.into_iter().enumerate() {
            let turn = i + 2 * k;
            let fits = |partner: &&usize| basis.len() * size * **partner <= MOST_ELEMENTS;
            let partners: Vec<&usize> = PARTNERS.iter().filter(fits).collect();
            let partner = *partners[turn % partners.len()];
            let case = Case::new(
                algebra,
                &basis,
                spec,
                shape(size, partner),
                fill,
                turn as u64,
            );
            check_against_cpu(&mut runner, &case, F32, turn % 3, &case.all_wanted());
            // The element type, the alignment and the choice of gradients change each time.
            let dtypes = dtypes::ALL[1 + turn % 5];
            let wanted: Vec<bool> = (0..case.inputs.len()).map(|t| t != turn % 4).collect();
            check_against_cpu(&mut runner, &case, dtypes, (turn + 1) % 2, &wanted);
        }
    }
}
