//! Tests with numbers of every size: outputs and gradients in `f32` and the plain formula in `f32` are both compared
//! with `f64`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flashcliff::{Algebra, Norm, ops};

use crate::cases::sizes;
use crate::harness::Call;
use crate::plain::{Tensors, Trial, Verdict};
use crate::random::Random;
use crate::sweep::{algebras, jobs};

/// The output and the gradients on the CPU.
fn on_cpu(trial: &Trial<'_>) -> Tensors {
    let call = Call::<f32>::new(trial.op, trial.dims, &trial.inputs, 0);
    let forward = call.forward();
    let wanted = vec![true; trial.inputs.len()];
    let grads = call.backward(&forward, &trial.grad_output, &wanted);
    let tensors = [forward.output.get().to_vec()].into_iter().chain(grads);
    tensors
        .map(|values| values.into_iter().map(f64::from).collect())
        .collect()
}

/// Checks every operator of every algebra at every `step`th size.
fn check(step: usize) {
    let jobs = jobs(algebras());
    let (next, total) = (AtomicUsize::new(0), Mutex::new(Verdict::default()));
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let verdict = job.judge(step, on_cpu);
            let mut total = total.lock().expect("no panic");
            total.compared += verdict.compared;
            total.failures.extend(verdict.failures);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(work);
        }
    });
    total.into_inner().expect("no panic").demand();
}

#[test]
fn no_size_is_worse_than_the_plain_formula() {
    check(4);
}

#[test]
#[ignore = "takes minutes: every size for every operator"]
fn no_size_of_any_operator_is_worse_than_the_plain_formula() {
    check(1);
}

/// Without epsilon a power of two does not change a norm: the output keeps its bits, and the gradient is divided by the
/// power, exactly. The test runs in both formats, as long as squares stay in range.
#[test]
fn norms_do_not_see_powers_of_two() {
    fn check<T: flashcliff::Element>(powers: &[i32]) {
        for algebra in Algebra::shipped() {
            for norm in [Norm::Rms, Norm::Invariant] {
                let op = ops::grade_rms(algebra, norm, 0.0).expect("shipped");
                let dims = sizes(&op, 2, 5, 5);
                let mut random = Random::new(8);
                let len = op.output_shape(&dims).iter().product();
                let (x, seed) = (random.reals(len), random.reals(len));
                let run = |power: i32| {
                    let factor = 2_f64.powi(power);
                    let x = x.iter().map(|x| x * factor).collect();
                    let inputs = [x];
                    let call = Call::<T>::new(&op, dims, &inputs, 0);
                    let forward = call.forward();
                    let grads = call.backward(&forward, &seed, &[true]);
                    let output: Vec<f64> =
                        forward.output.get().iter().map(|x| x.to_f64()).collect();
                    let grad = grads[0].iter().map(|g| g.to_f64() * factor);
                    (output, grad.collect::<Vec<f64>>())
                };
                let want = run(0);
                for &power in powers {
                    let got = run(power);
                    assert_eq!(want, got, "{} {norm} 2^{power}", algebra.name());
                }
            }
        }
    }
    check::<f32>(&[-50, -30, 20, 40, 55]);
    check::<f64>(&[-400, -200, 150, 370, 450]);
}
