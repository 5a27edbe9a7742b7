//! Checks that the sizes of these tests reach every skeleton: rows of a CTA, of a cluster and in tiles, with copies
//! ahead and without, and independent lanes.

use std::ptr;

use cayley::{Algebra, GradeSet, Signature};
use flashcliff_program::ir::{Digest, Program, differentiate};
use flashcliff_program::spec;
use flashcliff_sys as sys;

use crate::device::device;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    tests.add(Needs::Gpu, "skeletons", all_are_reached);
}

/// A program of cl300 on all grades, and its adjoint.
fn programs(name: &str) -> [Program; 2] {
    let (algebra, full) = (Algebra::new(Signature::of(3, 0, 0)), GradeSet::full(3));
    let found = spec::find(&algebra, name, full, full, None).expect("an operator");
    let adjoint = differentiate(&found.program);
    [found.program, adjoint]
}

/// The launch plan of a call.
fn plan(program: &Program, batch: i64, channels: i64) -> sys::fc_plan {
    device().context().bind_to_thread().expect("a context");
    let Digest(digest) = program.digest();
    let program = &program.name;
    // SAFETY: the function reads tables of the library.
    let kernel = unsafe { sys::fc_find((digest >> 64) as u64, digest as u64, 0) };
    assert!(!kernel.is_null(), "no kernel of {program}");
    let call = sys::fc_call {
        inputs: [ptr::null(); _],
        outputs: [ptr::null_mut(); _],
        params: [ptr::null(); _],
        sums: [ptr::null_mut(); _],
        column_sums: ptr::null_mut(),
        sums_all_components: 0,
        saved: ptr::null_mut(),
        workspace: ptr::null_mut(),
        workspace_bytes: 0,
        batch,
        channels,
        scalars: 0,
        eps: 1e-6,
        gate: sys::fc_gate::FC_GATE_GELU,
        lane_dtype: sys::fc_dtype::FC_F32,
        param_dtype: sys::fc_dtype::FC_F32,
        strided: 0,
        input_strides: Default::default(),
        output_strides: Default::default(),
        wide: 0,
    };
    let mut plan = sys::fc_plan::default();
    // SAFETY: the kernel is one of the library; only sizes and alignments of the call are read.
    let code = unsafe { sys::fc_plan_of(kernel, &raw const call, &raw mut plan) };
    assert_eq!(code, 0, "{program:?} at {batch} x {channels}");
    plan
}

fn all_are_reached() {
    let is_hopper = device().compute_capability().0 >= 9;
    let products = programs("geometric_product");
    for (layer, product) in programs("sgp_rms").iter().zip(&products) {
        let rows = |batch, channels| plan(layer, batch, channels);
        // A CTA has several rows, or one row.
        assert!(rows(5, 28).threads > rows(5, 28).threads_per_row);
        let whole = rows(5, 512);
        assert_eq!((whole.cluster, whole.tiles), (1, 1));
        assert!(whole.stages > 0, "rows are not copied ahead: {whole:?}");
        // There are more rows than CTAs.
        assert!(rows(9001, 512).ctas < 9001);
        let long = rows(2, 2048);
        if is_hopper {
            assert!(long.cluster > 1, "no cluster: {long:?}");
        } else {
            assert!(long.tiles > 1, "no tiles: {long:?}");
        }
        let longest = rows(1, 20_000);
        assert!(longest.tiles > 1, "no tiles: {longest:?}");
        let points = plan(product, 5, 33);
        assert_eq!((points.stages, points.shared_bytes), (0, 0));
    }
}
