//! Results have the same bits from run to run, gradients of parameters included, whatever the buffers held before.

use flashcliff::cuda::{Array, Scratch};
use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Dtype, Pass, Signature};

use crate::case::{Case, Fill, main_lane_operators};
use crate::cases::Spec;
use crate::device::device;
use crate::dtypes::{BF16, F32};
use crate::memory::Memory;
use crate::random::Random;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use flashcliff_program::reference::Basis;

const REPEATS: usize = 100;

pub(crate) fn add(tests: &mut Tests) {
    tests.add_for_each_algebra(Needs::Gpu, "repeats", |algebra| {
        a_hundred(
            algebra,
            &main_lane_operators(&Basis::new(algebra.signature())),
        );
    });
    tests.add(Needs::Gpu, "repeats::on_the_whole_gpu", on_the_whole_gpu);
}

pub(crate) fn a_hundred(algebra: Algebra, specs: &[Spec]) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    let channels = 70;
    let batch = 40_000 / basis.len() / channels;
    for (i, spec) in specs.iter().enumerate() {
        let dtypes = [F32, BF16][i % 2];
        let case = Case::new(
            algebra,
            &basis,
            spec,
            [batch, channels, 24],
            Fill::Reals,
            47,
        );
        let case = case.rounded(dtypes);
        let first = runner.both(&case, dtypes, 0, &case.all_wanted());
        assert!(!first.bytes.is_empty());
        for repeat in 1..REPEATS {
            let again = runner.both(&case, dtypes, 0, &case.all_wanted());
            let same = first.bytes == again.bytes;
            assert!(same, "repeat {repeat}: {}", case.context(dtypes));
        }
    }
}

/// So many rows that all multiprocessors take part in the gradients of the weights.
fn on_the_whole_gpu() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let op = ops::sgp_norm(algebra, &ProductOptions::default()).expect("shipped");
    let op = op.on_cuda(device()).expect("a kernel");
    let stream = device().new_stream().expect("a stream");
    let (lanes, weights) = ([8, 3001, 512], [512, 20]);
    let mut random = Random::new(53);
    let mut upload = |shape: &[usize]| {
        let values = random.reals(shape.iter().product());
        let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        Array::from_host(&stream, &values, shape).expect("memory")
    };
    let inputs = [upload(&lanes), upload(&lanes), upload(&weights)];
    let grad_output = upload(&lanes);
    let views = inputs.each_ref().map(|array| array.view().expect("3 axes"));
    let dims = op.bind(&[&lanes, &lanes, &weights]).expect("fits");
    let bytes = op.workspace_bytes(&dims, Pass::Backward, F32);
    let mut workspace = Memory::new(device(), bytes.expect("a kernel"));
    let evaluation = op.evaluate(&stream, &views).expect("forward");
    let mut first: Option<Vec<Vec<f32>>> = None;
    for repeat in 0..REPEATS {
        let mut grads = [&lanes[..], &lanes, &weights]
            .map(|shape| Array::zeros(&stream, Dtype::F32, shape).expect("memory"));
        workspace.fill(&stream, 0xff);
        let mut wanted = Vec::new();
        for grad in &mut grads {
            wanted.push(Some(grad.view_mut().expect("3 axes")));
        }
        // SAFETY: the memory has this size, and outlives the waits of the copies below.
        let scratch = unsafe { Scratch::from_raw(workspace.address(), workspace.bytes(), 0) };
        let done = op.backward(
            &stream,
            &views,
            evaluation.output.view().expect("3 axes"),
            Some(evaluation.saved.view().expect("1 axis")),
            grad_output.view().expect("3 axes"),
            &mut wanted,
            Some(scratch),
        );
        done.expect("backward");
        // The first and last repeat compare everything, the others only the values that are summed across CTAs.
        let all = repeat == 0 || repeat + 1 == REPEATS;
        let from = if all { 0 } else { 2 };
        let host = grads[from..].iter().map(|g| g.to_host(&stream));
        let host: Vec<Vec<f32>> = host.map(|g| g.expect("a copy")).collect();
        match &first {
            None => first = Some(host),
            Some(first) => assert!(first[from..] == host[..], "repeat {repeat}"),
        }
    }
    let first = first.unwrap_or_default();
    assert!(first.iter().flatten().all(|g| g.is_finite()));
    assert!(first.iter().all(|g| g.iter().any(|&g| g != 0.0)));
}
