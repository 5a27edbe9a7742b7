//! The sweep of magnitudes on the GPU, in `f32`: the same calls and the same rule as on the CPU.

use flashcliff::Algebra;

use crate::case::Case;
use crate::device::device;
use crate::dtypes::F32;
use crate::plain::{Tensors, Trial, Verdict};
use crate::runner::Runner;
use crate::sweep::jobs;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::CublasLt, "magnitudes::sweep", sweep);
}

fn sweep(algebra: Algebra) {
    let mut runner = Runner::new(device());
    let mut total = Verdict::default();
    for job in jobs([algebra]) {
        let verdict = job.judge(1, |trial| on_gpu(&mut runner, trial));
        total.compared += verdict.compared;
        total.failures.extend(verdict.failures);
    }
    total.demand();
}

/// The output and the gradients on the GPU.
fn on_gpu(runner: &mut Runner, trial: &Trial<'_>) -> Tensors {
    let gpu = trial.op.on_cuda(device());
    let case = Case {
        basis: trial.basis,
        spec: trial.spec,
        op: trial.op.clone(),
        gpu: gpu.unwrap_or_else(|e| panic!("{:?}: {e}", trial.spec)),
        dims: trial.dims,
        inputs: trial.inputs.clone(),
        grad_output: trial.grad_output.clone(),
    };
    let outcome = runner.both(&case, F32, 0, &case.all_wanted());
    [outcome.output].into_iter().chain(outcome.grads).collect()
}
