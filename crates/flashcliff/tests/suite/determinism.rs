//! Results have the same bits from run to run and for any number of threads.

use flashcliff::{Algebra, Dims, Error, Operator, Pass, Tensor, TensorMut};

use crate::cases::{Spec, input_shapes, is_nothing, main_operators, sizes};
use crate::compare::same;
use crate::harness::Call;
use crate::random::Random;
use flashcliff_program::reference::Basis;

/// The output and all gradients of an operator.
fn run(op: &Operator, dims: Dims, offset: usize) -> Vec<Vec<f32>> {
    let mut random = Random::new(31);
    let shapes = input_shapes(op, &dims);
    let inputs: Vec<Vec<f64>> = shapes
        .iter()
        .map(|s| random.reals(s.iter().product()))
        .collect();
    let grad_output = random.reals(op.output_shape(&dims).iter().product());
    let call = Call::<f32>::new(op, dims, &inputs, offset);
    let forward = call.forward();
    let mut results = call.backward(&forward, &grad_output, &vec![true; inputs.len()]);
    results.push(forward.output.get().to_vec());
    results
}

fn main_operators_of(names: &[&str]) -> Vec<(Spec, Operator)> {
    let mut found = Vec::new();
    for name in names {
        let algebra: Algebra = name.parse().expect("an algebra");
        let basis = Basis::new(algebra.signature());
        for spec in main_operators() {
            if !is_nothing(&basis, &spec) {
                let op = spec.operator(algebra).expect("a shipped operator");
                found.push((spec, op));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

fn expect_same(what: &str, want: &[Vec<f32>], got: &[Vec<f32>]) {
    assert_eq!(want.len(), got.len());
    for (tensor, (want, got)) in want.iter().zip(got).enumerate() {
        same(want, got).unwrap_or_else(|e| panic!("tensor {tensor} of {what}: {e}"));
    }
}

#[test]
fn a_hundred_repeats_are_bitwise_equal() {
    for (spec, op) in main_operators_of(&["cl200", "cl301"]) {
        let dims = sizes(&op, 9, 21, 6);
        let want = run(&op, dims, 0);
        for repeat in 1..100 {
            // The alignment must not matter either.
            let got = run(&op, dims, repeat % 3);
            expect_same(&format!("{spec:?}, repeat {repeat}"), &want, &got);
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let pools: Vec<rayon::ThreadPool> = [1, 2, 3]
        .map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("threads can be started")
        })
        .into();
    let mut shared = 0;
    for (spec, op) in main_operators_of(&["cl300", "cl130"]) {
        let dims = sizes(&op, 1500, 28, 20);
        let cost = op.cost(&dims);
        // Below a few million operations the work is not shared at all.
        shared += usize::from(cost.forward > 4 << 20);
        let want = pools[0].install(|| run(&op, dims, 0));
        for pool in &pools[1..] {
            for _ in 0..2 {
                let got = pool.install(|| run(&op, dims, 0));
                let threads = pool.current_num_threads();
                expect_same(&format!("{spec:?} on {threads} threads"), &want, &got);
            }
        }
    }
    assert!(shared >= 8, "only {shared} operators share their work");
}

/// The size of a workspace belongs to a pool: a workspace that is too small is refused, and not overrun.
#[test]
fn a_workspace_for_fewer_threads_is_refused() {
    let pool = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().expect("threads can be started")
    };
    let (_, op) = main_operators_of(&["cl300"]).remove(0);
    let dims = sizes(&op, 3000, 28, 28);
    let inputs: Vec<(Vec<usize>, Vec<f32>)> = input_shapes(&op, &dims)
        .into_iter()
        .map(|shape| (shape.clone(), vec![0.5; shape.iter().product()]))
        .collect();
    let tensors: Vec<Tensor<'_, f32>> = inputs
        .iter()
        .map(|(shape, data)| Tensor::new(data, shape).expect("fits"))
        .collect();
    let len =
        |pool: &rayon::ThreadPool| pool.install(|| op.workspace_len::<f32>(&dims, Pass::Forward));
    let (one, three) = (pool(1), pool(3));
    assert!(len(&one) < len(&three));
    let shape = op.output_shape(&dims);
    let run = |workspace: usize| {
        let mut output = vec![0.0_f32; shape.iter().product()];
        let mut saved = vec![0.0_f32; op.saved_len(&dims)];
        let mut workspace = vec![0.0_f32; workspace];
        let view = TensorMut::new(&mut output, &shape).expect("fits");
        op.forward(&tensors, view, &mut saved, &mut workspace)
    };
    let refused = three.install(|| run(len(&one)));
    assert!(matches!(refused, Err(Error::BufferTooSmall { .. })));
    assert_eq!(one.install(|| run(len(&three))), Ok(()));
}
