//! Compares `op::apply` with the core's own evaluation and gradients, bit for bit.

mod common;

use candle_core::{DType, Device, Tensor, Var, WithDType};
use common::{noise, random};
use flashcliff::ops::{self, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::program::{Multivector, Program};
use flashcliff::{
    Algebra, Element, Evaluation, GradeSet, Invariant, Operator, ProductKind, ProgramOptions,
    Signature,
};
use flashcliff_candle::op::{GpuOptions, apply, apply_with};

const BATCH: usize = 7;
const CHANNELS: usize = 5;

/// CAN's interaction of two multivectors, `w (x y + x ^ y)`, where the larger of the scalars of `x` and `y` scales
/// it: an operator that a user writes.
fn interaction(algebra: Algebra) -> Operator {
    let all = GradeSet::full(algebra.dim());
    let mut p = Program::new("interaction", "o = w max(x_1, y_1) (x y + x ^ y)");
    let x = Multivector::input(&mut p, &algebra, "x", all);
    let y = Multivector::input(&mut p, &algebra, "y", all);
    let w = p.param("w", 1)[0];
    let geometric = x.product(&mut p.graph, &algebra, ProductKind::Geometric, &y);
    let exterior = x.product(&mut p.graph, &algebra, ProductKind::Exterior, &y);
    let g = &mut p.graph;
    let larger = g.max(x.components[0], y.components[0]);
    let scale = g.mul(w, larger);
    let pairs = geometric.components.into_iter().zip(exterior.components);
    let sums = pairs.map(|(a, b)| {
        let sum = g.add(a, b);
        g.mul(scale, sum)
    });
    let components = sums.collect();
    let o = Multivector {
        grades: all,
        components,
    };
    o.output(&mut p, &algebra);
    Operator::of(algebra, &p, &ProgramOptions::default()).unwrap()
}

/// Operators with one to five inputs, with the shapes of these.
fn cases(a: Algebra) -> Vec<(Operator, Vec<Vec<usize>>)> {
    let x = vec![a.blade_count(), BATCH, CHANNELS];
    let w = vec![CHANNELS, a.path_count()];
    let g = vec![CHANNELS, a.grade_count()];
    let steerable = |first_order, normalize| {
        let options = SteerableOptions::default()
            .with_first_order(first_order)
            .with_normalize(normalize);
        ops::steerable_product(a, &options).unwrap()
    };
    let product = ops::product(a, ProductKind::Geometric, None, None).unwrap();
    let fully = vec![a.path_count(), CHANNELS, 3];
    let options = ProductOptions::default();
    vec![
        (ops::reverse(a).unwrap(), vec![x.clone()]),
        (product, vec![x.clone(), x.clone()]),
        (ops::grade_norm(a).unwrap(), vec![x.clone(), g.clone()]),
        (
            ops::mv_silu(a, Invariant::Norm).unwrap(),
            vec![x.clone(), g.clone(), g.clone()],
        ),
        (
            ops::sgp_norm(a, &options).unwrap(),
            vec![x.clone(), x.clone(), w.clone()],
        ),
        (
            ops::fcgp_norm(a, &options).unwrap(),
            vec![x.clone(), x.clone(), fully],
        ),
        (
            ops::mv_linear_sgp_norm(a, &LinearSgpOptions::default()).unwrap(),
            vec![
                x.clone(),
                vec![CHANNELS, CHANNELS, a.grade_count()],
                vec![CHANNELS],
                w.clone(),
            ],
        ),
        (
            steerable(false, true),
            vec![x.clone(), x.clone(), w.clone(), g.clone()],
        ),
        (
            steerable(true, false),
            vec![x.clone(), x.clone(), w.clone(), x.clone()],
        ),
        (
            interaction(a),
            vec![x.clone(), x.clone(), vec![CHANNELS, 1]],
        ),
        (steerable(true, true), vec![x.clone(), x.clone(), w, g, x]),
    ]
}

fn algebra(p: usize, q: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, 0).unwrap()).unwrap()
}

fn compare<T: Element + WithDType>(algebra: Algebra) {
    for (operator, shapes) in cases(algebra) {
        let data: Vec<Vec<T>> = shapes
            .iter()
            .enumerate()
            .map(|(i, shape)| {
                let values = noise(shape.iter().product(), 3 + i as u64);
                values.into_iter().map(<T as Element>::from_f64).collect()
            })
            .collect();
        let inputs: Vec<_> = data
            .iter()
            .zip(&shapes)
            .map(|(data, shape)| flashcliff::Tensor::new(data, shape).unwrap())
            .collect();
        let evaluation = operator.evaluate(&inputs).unwrap();
        let cotangent: Vec<T> = noise(evaluation.output.len(), 50)
            .into_iter()
            .map(<T as Element>::from_f64)
            .collect();
        let grad_output = flashcliff::Tensor::new(&cotangent, &evaluation.output_shape).unwrap();
        let expected = operator
            .gradients(&inputs, &evaluation, grad_output)
            .unwrap();

        let vars: Vec<Var> = data
            .iter()
            .zip(&shapes)
            .map(|(data, shape)| Var::from_slice(data, shape.as_slice(), &Device::Cpu).unwrap())
            .collect();
        let tensors: Vec<&Tensor> = vars.iter().map(Var::as_tensor).collect();
        let output = apply(&operator, &tensors).unwrap();
        is_the_cores(&operator, output, &evaluation, &expected, &cotangent, &vars);
        // Options for GPUs make no difference on the CPU.
        for block_bytes in [None, Some(0), Some(4096), Some(usize::MAX)] {
            let options = GpuOptions::default().with_block_bytes(block_bytes);
            let output = apply_with(&operator, &options, &tensors).unwrap();
            is_the_cores(&operator, output, &evaluation, &expected, &cotangent, &vars);
        }
    }
}

/// Checks that the output and the gradients agree with the core, bit for bit.
fn is_the_cores<T: Element + WithDType>(
    operator: &Operator,
    output: Tensor,
    evaluation: &Evaluation<T>,
    expected: &[Vec<T>],
    cotangent: &[T],
    vars: &[Var],
) {
    assert_eq!(output.dims(), evaluation.output_shape);
    let got: Vec<T> = output.flatten_all().unwrap().to_vec1().unwrap();
    assert!(got == evaluation.output, "{}", operator.name());

    let cotangent = Tensor::from_slice(cotangent, output.dims(), &Device::Cpu).unwrap();
    let loss = (output * cotangent).unwrap().sum_all().unwrap();
    for _ in 0..2 {
        let grads = loss.backward().unwrap();
        for (i, var) in vars.iter().enumerate() {
            let got: Vec<T> = grads
                .get(var)
                .unwrap()
                .flatten_all()
                .unwrap()
                .to_vec1()
                .unwrap();
            assert!(got == expected[i], "{}, gradient {i}", operator.name());
        }
    }
}

#[test]
fn values_and_gradients_are_the_cores() {
    for (p, q) in [(2, 0), (3, 0), (1, 3)] {
        compare::<f32>(algebra(p, q));
        compare::<f64>(algebra(p, q));
    }
}

#[test]
fn a_square_has_twice_the_gradient() {
    let product = ops::product(algebra(3, 0), ProductKind::Geometric, None, None).unwrap();
    let x = Var::from_tensor(&random(&[8, 2, 3], 8)).unwrap();
    let y = Var::from_tensor(&x).unwrap();
    let grads = |output: Tensor| output.sum_all().unwrap().backward().unwrap();
    let same = grads(apply(&product, &[&x, &x]).unwrap());
    let copy = Var::from_tensor(&y.copy().unwrap()).unwrap();
    let apart = grads(apply(&product, &[&x, &copy]).unwrap());
    let sum = (apart.get(&x).unwrap() + apart.get(&copy).unwrap()).unwrap();
    assert_eq!(common::values(same.get(&x).unwrap()), common::values(&sum));
}

#[test]
fn views_are_read_as_they_are_seen() {
    let reverse = ops::reverse(algebra(3, 0)).unwrap();
    // The tensor has CGENN's layout [batch, channels, blades] and is seen as [blades, batch, channels].
    let stored = Var::from_tensor(&random(&[2, 3, 8], 4)).unwrap();
    let seen = stored.permute((2, 0, 1)).unwrap();
    let output = apply(&reverse, &[&seen]).unwrap();
    let expected = apply(&reverse, &[&seen.force_contiguous().unwrap().detach()]).unwrap();
    assert_eq!(common::values(&output), common::values(&expected));
    let grads = output.sum_all().unwrap().backward().unwrap();
    let grad = grads.get(&stored).unwrap();
    assert_eq!(grad.dims(), [2, 3, 8]);
    let signs = [1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0];
    assert_eq!(common::values(grad), signs.repeat(6));
    // A narrowed tensor starts inside its storage.
    let long = random(&[16, 2, 3], 6);
    let tail = long.narrow(0, 8, 8).unwrap();
    let got = apply(&reverse, &[&tail]).unwrap();
    let expected = apply(&reverse, &[&tail.copy().unwrap()]).unwrap();
    assert_eq!(common::values(&got), common::values(&expected));
}

#[test]
fn the_cores_error_text_arrives() {
    let product = ops::product(algebra(3, 0), ProductKind::Geometric, None, None).unwrap();
    let x = Tensor::zeros((8, 2, 3), DType::F32, &Device::Cpu).unwrap();
    let y = Tensor::zeros((4, 2, 3), DType::F32, &Device::Cpu).unwrap();
    let shapes: [&[usize]; 2] = [&[8, 2, 3], &[4, 2, 3]];
    let expected = product.bind(&shapes).unwrap_err().to_string();
    let got = apply(&product, &[&x, &y]).unwrap_err().to_string();
    assert!(got.contains(&expected), "`{got}` lacks `{expected}`");
    let count = apply(&product, &[&x]).unwrap_err().to_string();
    assert!(
        count.contains("expected 2") && count.contains("got 1"),
        "{count}"
    );
}
