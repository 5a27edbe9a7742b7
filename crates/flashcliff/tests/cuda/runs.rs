//! Runs of the operators that have a forward pass: they give its bits, and need no memory but what they ask for.

use flashcliff::cuda::{Array, Dtypes, Scratch};
use flashcliff::ops::{self, LinearSgpOptions};
use flashcliff::{Algebra, Dtype, Error, Pass};

use crate::case::{Case, Fill};
use crate::cases::{all_operators, input_shapes, sizes};
use crate::device::device;
use crate::dtypes::{self, BF16, F32, F64};
use crate::memory::Memory;
use crate::trials::{Needs, Tests};
use flashcliff_program::reference::Basis;

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::CublasLt, "runs::bits", every_option);
    tests.add(Needs::CublasLt, "runs::workspace", workspace);
}

fn every_option(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    for spec in all_operators(&basis) {
        for shape in [[3, 5, 5], [64, 16, 16], [0, 3, 3]] {
            for dtypes in [F32, F64, BF16] {
                let case = Case::new(algebra, &basis, &spec, shape, Fill::Reals, 89);
                same_bits(&case.rounded(dtypes), dtypes);
            }
        }
    }
}

fn same_bits(case: &Case<'_>, dtypes: Dtypes) {
    let stream = device().new_stream().expect("a stream");
    let shapes = input_shapes(&case.op, &case.dims);
    let specs = case.op.inputs().iter().zip(&case.inputs).zip(&shapes);
    let inputs = specs.map(|((spec, values), shape)| {
        let dtype = dtypes::of(spec, dtypes);
        Array::from_f64(&stream, dtype, values, shape).expect("memory")
    });
    let inputs: Vec<Array> = inputs.collect();
    let views: Vec<_> = inputs.iter().map(|a| a.view().expect("3 axes")).collect();
    let forward = case.gpu.evaluate(&stream, &views).expect("forward");
    let ran = case.gpu.results(&stream, &views).expect("a run");
    let bits = |array: &Array| -> Vec<u64> {
        let values = array.to_f64(&stream).expect("a copy");
        values.into_iter().map(f64::to_bits).collect()
    };
    assert_eq!(ran.len(), 1);
    assert_eq!(
        bits(&ran[0]),
        bits(&forward.output),
        "{}",
        case.context(dtypes)
    );
}

/// A tensor that is kept has its place in the workspace of a run.
fn workspace() {
    let algebra: Algebra = "cl300".parse().expect("an algebra");
    let op = ops::mv_linear_sgp_norm(algebra, &LinearSgpOptions::default()).expect("an operator");
    let dims = sizes(&op, 33, 16, 16);
    let gpu = op.on_cuda(device()).expect("kernels");
    let needed = gpu.run_workspace_bytes(&dims, F32).expect("kernels");
    let pass = gpu.workspace_bytes(&dims, Pass::Forward, F32);
    let saved = gpu.saved_len(&dims, F32) * Dtype::F32.bytes();
    assert!(needed >= pass.expect("kernels") + saved, "{needed}");

    let stream = device().new_stream().expect("a stream");
    let zeros = |shape: &[usize]| Array::zeros(&stream, Dtype::F32, shape).expect("memory");
    let inputs: Vec<Array> = input_shapes(&op, &dims)
        .iter()
        .map(|shape| zeros(shape))
        .collect();
    let views: Vec<_> = inputs.iter().map(|a| a.view().expect("3 axes")).collect();
    let mut output = zeros(&op.output_shape(&dims));
    let memory = Memory::new(device(), needed);
    let mut run = |wanted: bool, bytes: usize| {
        let view = wanted.then(|| output.view_mut().expect("3 axes"));
        // SAFETY: the memory has so many bytes, and lives until the stream is done.
        let space = unsafe { Scratch::from_raw(memory.address(), bytes, device().ordinal()) };
        let done = gpu.run(&stream, &views, &mut [view], Some(space));
        stream.synchronize().expect("no kernel failed");
        done
    };
    let error = run(true, needed - 1);
    assert!(
        matches!(error, Err(Error::WorkspaceTooSmall { expected, .. }) if expected == needed),
        "{error:?}"
    );
    run(true, needed).expect("a run");
    run(false, needed).expect("nothing to do");
}
