//! Runs each skeleton once, at small shapes, for compute-sanitizer. Every buffer is a separate allocation of exactly
//! the size that it must have, and outputs have never been written before.
//!
//! initcheck does not see the writes of bulk copies, and so takes a copy of results to the host for a read of memory
//! that nothing has written. With `FLASHCLIFF_READ_BACK=0` results are not copied.
//!
//! * `attention`, `block_sparse`, `items`, `sums` - kernels of transformers, by their addresses.
//! * `numbers` - the memory that they get.

mod attention;
mod block_sparse;
mod items;
mod numbers;
mod sums;

use std::env;

use flashcliff::cuda::{Dtypes, MatmulPrecision};
use flashcliff::ops::{LinearOptions, LinearSgpOptions, ProductOptions};
use flashcliff::{Algebra, Norm, Signature};

use crate::case::{Case, Fill, has_smooth_norm, main_lane_operators};
use crate::cases::Spec;
use crate::device::device;
use crate::dtypes::{BF16, F32, F64};
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use crate::{adam, network, packing};
use flashcliff_program::reference::Basis;

/// The variable that says whether results are copied to the host and checked.
const READ_BACK: &str = "FLASHCLIFF_READ_BACK";

pub(crate) fn add(tests: &mut Tests) {
    tests.add(Needs::Gpu, "sanitize::rows", rows);
    tests.add(Needs::Gpu, "sanitize::long_rows", long_rows);
    tests.add(Needs::Gpu, "sanitize::points", points);
    tests.add(Needs::CublasLt, "sanitize::linear", linear);
    tests.add(Needs::CublasLt, "sanitize::linear_sgp", linear_sgp);
    tests.add(Needs::CublasLt, "sanitize::blocks", blocks);
    tests.add(Needs::CublasLt, "sanitize::many_tiles", many_tiles);
    tests.add(Needs::Gpu, "sanitize::attention", attention::run);
    tests.add(Needs::Gpu, "attention::many_heads", attention::many_heads);
    tests.add(Needs::Gpu, "sanitize::block_sparse", block_sparse::run);
    tests.add(Needs::Gpu, "sanitize::items", items::run);
    tests.add(Needs::Gpu, "sanitize::sums", sums::run);
    tests.add(Needs::Gpu, "sanitize::network", network_parts);
    tests.add(Needs::Gpu, "sanitize::adam", adam_steps);
    tests.add(Needs::CublasLt, "sanitize::packing", packed_weights);
}

fn reads_back() -> bool {
    env::var_os(READ_BACK).is_none_or(|value| value != "0")
}

fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::of(p, q, r)).expect("shipped")
}

/// Runs both passes, with and without the gradients of parameters, and checks that results are numbers.
fn run(algebra: Algebra, spec: &Spec, shape: [usize; 3], dtypes: Dtypes, offset: usize) {
    let basis = Basis::new(algebra.signature());
    let fill = match has_smooth_norm(spec) {
        true => Fill::Separated,
        false => Fill::Reals,
    };
    let case = Case::new(algebra, &basis, spec, shape, fill, 73);
    both(&case.rounded(dtypes), dtypes, offset);
}

fn both(case: &Case<'_>, dtypes: Dtypes, offset: usize) {
    let reads_back = reads_back();
    let mut runner = Runner::apart(device(), reads_back);
    for wanted in [
        case.all_wanted(),
        (0..case.inputs.len()).map(|t| t == 0).collect(),
    ] {
        let outcome = runner.both(case, dtypes, offset, &wanted);
        if !reads_back {
            continue;
        }
        let written = outcome.output.iter().chain(outcome.grads.iter().flatten());
        let finite = written.clone().all(|value| value.is_finite());
        assert!(finite && written.count() > 0, "{}", case.context(dtypes));
    }
}

/// Rows within a CTA: copied in bulk, by vectors, and element by element.
fn rows() {
    for algebra in [algebra(2, 0, 0), algebra(3, 0, 0), algebra(5, 0, 0)] {
        let basis = Basis::new(algebra.signature());
        for spec in main_lane_operators(&basis) {
            run(algebra, &spec, [5, 32, 32], F32, 0);
            run(algebra, &spec, [3, 28, 28], BF16, 0);
            run(algebra, &spec, [3, 7, 7], F32, 1);
        }
        let sgp = Spec::Sgp(ProductOptions::default());
        run(algebra, &sgp, [300, 16, 16], F32, 0);
        run(algebra, &sgp, [3, 256, 256], F32, 0);
        run(algebra, &sgp, [3, 64, 64], BF16, 0);
        run(algebra, &sgp, [3, 33, 33], BF16, 1);
        run(algebra, &sgp, [3, 20, 20], F64, 0);
    }
}

/// Rows of a cluster, and rows in tiles. The tests of `skeletons` check that these sizes reach them.
fn long_rows() {
    let sgp = Spec::Sgp(ProductOptions::default());
    for channels in [2048, 20_000] {
        run(algebra(3, 0, 0), &sgp, [2, channels, channels], F32, 0);
    }
    let algebra = algebra(2, 0, 0);
    for spec in [
        Spec::Sgp(ProductOptions::default()),
        Spec::GradeRms(Norm::Invariant, 1e-6),
        Spec::row("mv_layer_norm"),
    ] {
        for channels in [2048, 4096, 4100, 20_001] {
            run(algebra, &spec, [2, channels, channels], F32, 0);
        }
        run(algebra, &spec, [1, 4101, 4101], BF16, 1);
    }
}

fn points() {
    for algebra in [algebra(3, 0, 0), algebra(3, 0, 1)] {
        let spec = Spec::Product(flashcliff::ProductKind::Geometric, None, None);
        run(algebra, &spec, [5, 64, 64], F32, 0);
        run(algebra, &spec, [5, 33, 33], BF16, 0);
        run(algebra, &spec, [5, 33, 33], F32, 1);
    }
}

/// The kernels around the matrix products: packing, unpacking, column sums, broadcasting.
fn linear() {
    for per_grade in [true, false] {
        let spec = Spec::Linear(LinearOptions::default().with_per_grade(per_grade));
        let mixed = Dtypes {
            params: F32.params,
            ..BF16
        };
        for dtypes in [F32, BF16, mixed] {
            run(algebra(3, 0, 0), &spec, [300, 20, 12], dtypes, 0);
            run(algebra(3, 0, 0), &spec, [5, 7, 3], dtypes, 1);
            run(algebra(3, 0, 0), &spec, [5, 0, 3], dtypes, 0);
        }
    }
}

/// A linear map and a product in one operator, whose matrix products add to the results of the product.
fn linear_sgp() {
    for recompute in [false, true] {
        let spec = Spec::LinearSgp(LinearSgpOptions::default().with_recompute(recompute));
        for dtypes in [F32, BF16] {
            run(algebra(3, 0, 0), &spec, [300, 20, 20], dtypes, 0);
            run(algebra(3, 0, 0), &spec, [5, 7, 7], dtypes, 1);
        }
    }
}

/// The kernels around the matrix products of the fully connected product: path products, their gradients, norms,
/// weights in another order.
fn blocks() {
    let spec = Spec::Fcgp(ProductOptions::default());
    for algebra in [algebra(2, 0, 0), algebra(3, 0, 1), algebra(5, 0, 0)] {
        run(algebra, &spec, [40, 20, 12], F32, 0);
        run(algebra, &spec, [5, 7, 3], F64, 0);
        run(algebra, &spec, [5, 7, 3], F32, 1);
        run(algebra, &spec, [5, 0, 3], F32, 0);
    }
    for precision in [MatmulPrecision::Tf32, MatmulPrecision::Bf16] {
        for (algebra, shape) in [
            (algebra(2, 0, 0), [40, 20, 12]),
            (algebra(3, 0, 0), [5, 160, 20]),
            (algebra(3, 0, 1), [9, 7, 3]),
        ] {
            scaled(algebra, &spec, shape, precision);
        }
    }
    let mixed = Dtypes {
        params: F32.params,
        ..BF16
    };
    for dtypes in [BF16, mixed] {
        run(algebra(3, 0, 0), &spec, [5, 8, 4], dtypes, 0);
        run(algebra(3, 0, 1), &spec, [5, 7, 3], dtypes, 1);
    }
}

/// Runs a product whose matrix products have 16-bit operands.
fn scaled(algebra: Algebra, spec: &Spec, shape: [usize; 3], precision: MatmulPrecision) {
    let basis = Basis::new(algebra.signature());
    let mut case = Case::new(algebra, &basis, spec, shape, Fill::Reals, 79).rounded(F32);
    case.gpu = case.gpu.clone().with_precision(precision);
    both(&case, F32, 0);
}

/// Matrices so large that the weight gradients of two grades are one product. Not for initcheck: at these sizes
/// cuBLASLt stores results by bulk copies, so initcheck takes every read of them for a read of memory that nothing has
/// written.
fn many_tiles() {
    if !reads_back() {
        return;
    }
    let spec = Spec::Fcgp(ProductOptions::default());
    for shape in [[36, 128, 384], [35, 130, 386]] {
        scaled(algebra(3, 0, 0), &spec, shape, MatmulPrecision::Tf32);
    }
}

/// The parts of a network that are not operators. Their test has small shapes, and memory of just their size.
fn network_parts() {
    network::numbers::<f32>(1e-6);
    network::numbers::<f64>(1e-14);
}

/// Steps of optimisers: of the slots of a program, and of a list, with averages and without.
fn adam_steps() {
    adam::recurrence();
    adam::lion();
    adam::lists();
    adam::averages();
}

/// Weights that are packed for many operators at once, and their gradients.
fn packed_weights() {
    packing::bits_of(&[[70, 9, 5]], &packing::SOME_TYPES, reads_back());
}
