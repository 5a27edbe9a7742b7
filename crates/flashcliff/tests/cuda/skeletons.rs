//! Checks that the sizes of these tests reach every skeleton: rows of a CTA, of a cluster and in tiles, with copies
//! ahead and without, and independent lanes.

use std::ptr;

use cayley::{Algebra, GradeSet, Signature};
use flashcliff_program::ir::Digest;
use flashcliff_program::spec;
use flashcliff_sys as sys;

use crate::device::device;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    tests.add(Needs::Gpu, "skeletons", all_are_reached);
}

/// The launch plan of a call of a program of cl300 on all grades.
fn plan(program: &str, pass: sys::fc_pass, batch: i64, channels: i64) -> sys::fc_plan {
    device().context().bind_to_thread().expect("a context");
    let (algebra, full) = (Algebra::new(Signature::of(3, 0, 0)), GradeSet::full(3));
    let found = spec::find(&algebra, program, full, full, None).expect("an operator");
    let Digest(digest) = found.program.digest();
    // SAFETY: the function reads tables of the library.
    let kernel = unsafe { sys::fc_find((digest >> 64) as u64, digest as u64, pass, 0) };
    assert!(!kernel.is_null(), "no kernel of {program}");
    let call = sys::fc_call {
        inputs: [ptr::null(); 4],
        outputs: [ptr::null_mut(); 4],
        params: [ptr::null(); 2],
        param_grads: [ptr::null_mut(); 2],
        column_sums: ptr::null_mut(),
        sums_all_components: 0,
        saved: ptr::null_mut(),
        workspace: ptr::null_mut(),
        workspace_bytes: 0,
        batch,
        channels,
        eps: 1e-6,
        gate: sys::fc_gate::FC_GATE_GELU,
        lane_dtype: sys::fc_dtype::FC_F32,
        param_dtype: sys::fc_dtype::FC_F32,
        strided: 0,
        input_strides: Default::default(),
        output_strides: Default::default(),
    };
    let mut plan = sys::fc_plan::default();
    // SAFETY: the kernel is one of the library; only sizes and alignments of the call are read.
    let code = unsafe { sys::fc_plan_of(kernel, &raw const call, &raw mut plan) };
    assert_eq!(code, 0, "{program:?} at {batch} x {channels}");
    plan
}

fn all_are_reached() {
    let is_hopper = device().compute_capability().0 >= 9;
    for pass in [sys::fc_pass::FC_FORWARD, sys::fc_pass::FC_BACKWARD] {
        let rows = |batch, channels| plan("sgp_rms", pass, batch, channels);
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
        let points = plan("geometric_product", pass, 5, 33);
        assert_eq!((points.stages, points.shared_bytes), (0, 0));
    }
}
