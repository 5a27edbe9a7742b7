//! Gradients of every order, and directional derivatives, as operators.

use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Dims, Error, Gate, Operator, Signature, Tensor, TensorMut, Tier};

use crate::cases::sizes;
use crate::higher_cases::{numbers, operators, results};
use crate::random::Random;

/// The step of central differences in `f64`.
const STEP: f64 = 1e-5;
/// The allowed difference from central differences, relative to the largest value of a tensor: rounding is about u / step = 1e-11, and
/// third derivatives times the square of the step about 1e-10, which norms near zero make larger.
const TOLERANCE: f64 = 1e-6;

fn dot(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| a * b).sum()
}

fn moved(at: &[Vec<f64>], along: &[Vec<f64>], step: f64) -> Vec<Vec<f64>> {
    let one = |(x, v): (&Vec<f64>, &Vec<f64>)| x.iter().zip(v).map(|(x, v)| x + step * v).collect();
    at.iter().zip(along).map(one).collect()
}

/// Checks the gradient of an operator, result by result and along a random direction, by central differences of the operator.
fn check_gradient(op: &Operator, dims: &Dims, random: &mut Random) {
    let gradient = op.gradient().expect("a derivative");
    let whole = numbers(&gradient, dims, random);
    let (at, weights) = whole.split_at(op.inputs().len());
    let loss = |at: &[Vec<f64>]| dot(&results::<f64>(op, dims, at), weights);
    let got = results::<f64>(&gradient, dims, &whole);
    for (index, got) in got.iter().enumerate() {
        // Only one input moves, so that each gradient is checked by itself: a wrong one of a weight hides in a sum.
        let mut along: Vec<Vec<f64>> = at.iter().map(|x| vec![0.0; x.len()]).collect();
        along[index] = random.reals(at[index].len());
        let rise = loss(&moved(at, &along, STEP)) - loss(&moved(at, &along, -STEP));
        let want = rise / (2.0 * STEP);
        let size: f64 = got
            .iter()
            .zip(&along[index])
            .map(|(g, v)| (g * v).abs())
            .sum();
        let got: f64 = got.iter().zip(&along[index]).map(|(g, v)| g * v).sum();
        assert!(
            (got - want).abs() <= TOLERANCE * size.max(1e-2),
            "{}: the derivative by `{}` is {got}, by differences {want}",
            gradient.name(),
            op.inputs()[index].name
        );
    }
}

#[test]
fn second_derivatives_are_those_of_differences() {
    for name in ["cl200", "cl300", "cl301", "cl130"] {
        let algebra: Algebra = name.parse().expect("an algebra");
        let mut random = Random::new(23);
        for (_, op) in operators(algebra, name == "cl200") {
            let dims = sizes(&op, 2, 3, 3);
            check_gradient(&op.gradient().expect("a derivative"), &dims, &mut random);
        }
    }
}

#[test]
fn third_derivatives_are_those_of_differences() {
    let algebra: Algebra = "cl200".parse().expect("an algebra");
    let mut random = Random::new(29);
    for (_, op) in operators(algebra, true) {
        let second = op.gradient().and_then(|first| first.gradient());
        let dims = sizes(&op, 2, 3, 3);
        check_gradient(&second.expect("a derivative"), &dims, &mut random);
    }
}

#[test]
fn tangents_are_those_of_differences() {
    let algebra: Algebra = "cl300".parse().expect("an algebra");
    let mut random = Random::new(31);
    for (_, op) in operators(algebra, true) {
        for op in [op.clone(), op.gradient().expect("a derivative")] {
            let tangent = op.tangent().expect("a derivative");
            let dims = sizes(&op, 2, 3, 3);
            let whole = numbers(&tangent, &dims, &mut random);
            let (at, along) = whole.split_at(op.inputs().len());
            let got = results::<f64>(&tangent, &dims, &whole);
            let [above, below] =
                [STEP, -STEP].map(|step| results::<f64>(&op, &dims, &moved(at, along, step)));
            for (index, got) in got.iter().enumerate() {
                let size = got.iter().fold(1e-2, |most: f64, x| most.max(x.abs()));
                for ((got, above), below) in got.iter().zip(&above[index]).zip(&below[index]) {
                    let want = (above - below) / (2.0 * STEP);
                    assert!(
                        (got - want).abs() <= TOLERANCE * size,
                        "{}: {got}, by differences {want}",
                        tangent.name()
                    );
                }
            }
        }
    }
}

/// The gradient as an operator gives what a backward pass gives: the same bits where no sums are saved and no matrices multiplied.
#[test]
fn a_gradient_is_the_backward_pass() {
    for name in ["cl200", "cl300"] {
        let algebra: Algebra = name.parse().expect("an algebra");
        let mut random = Random::new(37);
        for (_, op) in operators(algebra, true) {
            let gradient = op.gradient().expect("a derivative");
            let dims = sizes(&op, 3, 7, 7);
            let whole = numbers(&gradient, &dims, &mut random);
            let shapes: Vec<Vec<usize>> = gradient
                .inputs()
                .iter()
                .map(|spec| spec.shape(&dims))
                .collect();
            let tensors: Vec<Tensor<'_, f64>> = whole
                .iter()
                .zip(&shapes)
                .map(|(data, shape)| Tensor::new(data, shape).expect("the shape fits"))
                .collect();
            let (inputs, seed) = tensors.split_at(op.inputs().len());
            let evaluated = op.evaluate(inputs).expect("the call fits");
            let want = op
                .gradients(inputs, &evaluated, seed[0])
                .expect("the call fits");
            let got = gradient.results(&tensors).expect("the call fits");
            if op.saved_len(&dims) == 0 && !op.has_matrix_products() {
                assert_eq!(got, want, "{}", gradient.name());
            }
            for (got, want) in got.iter().zip(&want) {
                let size = want.iter().fold(1e-300, |most: f64, x| most.max(x.abs()));
                for (got, want) in got.iter().zip(want) {
                    assert!(
                        (got - want).abs() <= 1e-13 * size,
                        "{}: {got}, {want}",
                        gradient.name()
                    );
                }
            }
        }
    }
}

/// Results do not depend on the number of threads or on which of them are wanted, and single precision is near double precision.
#[test]
fn runs_are_the_same_for_all_threads_tiers_and_wishes() -> Result<(), Error> {
    let algebra: Algebra = "cl300".parse()?;
    let mut random = Random::new(41);
    for (_, op) in operators(algebra, false) {
        let second = op.gradient()?.gradient()?;
        // More rows than one task takes, and channels that fill no vector.
        let dims = sizes(&op, 37, 21, 21);
        let inputs = numbers(&second, &dims, &mut random);
        let whole = results::<f64>(&second, &dims, &inputs);
        let single = results::<f32>(&second, &dims, &inputs);
        for (single, double) in single.iter().zip(&whole) {
            let size = double.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
            for (single, double) in single.iter().zip(double) {
                assert!(
                    (single - double).abs() <= 2e-4 * size,
                    "{}: {single} in f32, {double} in f64",
                    second.name()
                );
            }
        }
        for tier in Tier::available() {
            let on_tier = results::<f64>(&second.clone().with_tier(tier)?, &dims, &inputs);
            for (index, (got, want)) in on_tier.iter().zip(&whole).enumerate() {
                let size = want.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
                for (got, want) in got.iter().zip(want) {
                    assert!(
                        (got - want).abs() <= 1e-12 * size,
                        "{} {tier} {index}",
                        second.name()
                    );
                }
            }
        }
        wanted_alone(&second, &dims, &inputs, &whole)?;
    }
    Ok(())
}

/// Each output by itself has the bits that it has among all.
fn wanted_alone(
    op: &Operator,
    dims: &Dims,
    inputs: &[Vec<f64>],
    whole: &[Vec<f64>],
) -> Result<(), Error> {
    let shapes: Vec<Vec<usize>> = op.inputs().iter().map(|spec| spec.shape(dims)).collect();
    let mut tensors = Vec::new();
    for (data, shape) in inputs.iter().zip(&shapes) {
        tensors.push(Tensor::new(data, shape)?);
    }
    for (index, spec) in op.outputs().iter().enumerate() {
        let shape = spec.shape(dims);
        let mut data = vec![f64::NAN; shape.iter().product()];
        let mut outputs: Vec<Option<TensorMut<'_, f64>>> =
            op.outputs().iter().map(|_| None).collect();
        outputs[index] = Some(TensorMut::new(&mut data, &shape)?);
        let mut workspace = vec![f64::NAN; op.run_workspace_len::<f64>(dims)];
        op.run(&tensors, &mut outputs, &mut workspace)?;
        drop(outputs);
        assert_eq!(data, whole[index], "{} {}", op.name(), spec.name);
    }
    Ok(())
}

#[test]
fn nothing_has_derivatives_of_zero() -> Result<(), Error> {
    let algebra: Algebra = "cl200".parse()?;
    for (_, op) in operators(algebra, false) {
        let second = op.gradient()?.gradient()?;
        for (batch, channels) in [(0, 3), (3, 0), (0, 0)] {
            let dims = sizes(&op, batch, channels, channels);
            let inputs = numbers(&second, &dims, &mut Random::new(1));
            for (result, spec) in results::<f64>(&second, &dims, &inputs)
                .iter()
                .zip(second.outputs())
            {
                let len = spec.shape(&dims).iter().product();
                assert_eq!(result, &vec![0.0; len], "{} {}", second.name(), spec.name);
            }
        }
    }
    Ok(())
}

#[test]
fn wrong_calls_are_errors() -> Result<(), Error> {
    let algebra: Algebra = "cl200".parse()?;
    let op = flashcliff::ops::product(algebra, flashcliff::ProductKind::Geometric, None, None)?;
    let gradient = op.gradient()?;
    let data = [1.0_f64; 8];
    let tensor = Tensor::new(&data, &[4, 2, 1])?;
    let inputs = [tensor; 3];
    let few = gradient.run(&inputs, &mut [None], &mut []);
    assert!(matches!(
        few,
        Err(Error::TensorCount {
            what: "outputs",
            expected: 2,
            got: 1,
            ..
        })
    ));
    let mut out = [0.0; 4];
    let wrong = TensorMut::new(&mut out, &[4, 1, 1])?;
    let wrong = gradient.run(&inputs, &mut [None, Some(wrong)], &mut []);
    assert!(
        matches!(wrong, Err(Error::ShapeMismatch { .. })),
        "{wrong:?}"
    );
    // An operator with two outputs has no forward pass with one.
    let error = gradient.evaluate(&inputs).map(drop);
    assert!(
        matches!(
            error,
            Err(Error::TensorCount {
                what: "outputs",
                ..
            })
        ),
        "{error:?}"
    );
    // Higher orders end where kernels have no room, with an error.
    let mut high = op;
    let mut orders = 0;
    let error = loop {
        match high.gradient() {
            Ok(next) => (high, orders) = (next, orders + 1),
            Err(error) => break error,
        }
    };
    assert!(orders >= 4, "{orders}");
    assert!(matches!(error, Error::NotDifferentiable { .. }), "{error}");
    Ok(())
}

/// The gradient of a second derivative has derivatives of a gate that no kernel has. They are counted all the same.
#[test]
fn the_cost_of_a_derivative_has_that_of_its_own_gradient() -> Result<(), Error> {
    let algebra: Algebra = "cl200".parse()?;
    let second = ops::sgp_norm(algebra, &ops::ProductOptions::default())?
        .gradient()?
        .gradient()?;
    let cost = second.cost(&sizes(&second, 3, 5, 5));
    assert!(cost.backward > cost.forward && cost.forward > 0, "{cost:?}");
    Ok(())
}

/// The flops of a run of an operator.
fn flops(operator: &Operator, dims: &Dims) -> usize {
    operator.cost(dims).forward
}

/// Matrix products take nearly all flops of a linear map of many channels, so flops count them.
#[test]
fn a_derivative_of_a_linear_map_has_no_needless_matrix_products() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("an algebra");
    // The scalar has a bias.
    let options = LinearOptions::default();
    let linear = ops::mv_linear(algebra, &options).expect("a linear map");
    let dims = Dims {
        batch: 1000,
        in_channels: 500,
        out_channels: 600,
        scalar_channels: 0,
    };
    let one = flops(&linear, &dims) as f64;
    let products =
        |operator: &Operator| (flops(operator, &dims) as f64 / one * 100.0).round() / 100.0;
    let gradient = linear.gradient().expect("a gradient");
    // By the input and by the weight.
    assert_eq!(products(&gradient), 2.0);
    let forces = gradient
        .selecting(&[true, false, false])
        .expect("the gradient of the input");
    assert_eq!(products(&forces), 1.0);
    // By the weight and by the gradient of the output; there is none by the input and by the bias.
    assert_eq!(products(&forces.gradient().expect("a derivative")), 2.0);
    // Both operands move.
    assert_eq!(products(&linear.tangent().expect("a tangent")), 2.0);
}

/// The bits of all results of an operator.
fn bits(op: &Operator, dims: &Dims, random: &mut Random) -> Vec<Vec<u32>> {
    let given: Vec<Vec<f32>> = numbers(op, dims, random)
        .iter()
        .map(|values| values.iter().map(|&value| value as f32).collect())
        .collect();
    let shapes = op.inputs().iter().map(|spec| spec.shape(dims));
    let shapes: Vec<Vec<usize>> = shapes.collect();
    let tensors: Vec<Tensor<'_, f32>> = given
        .iter()
        .zip(&shapes)
        .map(|(data, shape)| Tensor::new(data, shape).expect("its shape"))
        .collect();
    let results = op.results(&tensors).expect("a call");
    let bits = |values: &Vec<f32>| values.iter().map(|value| value.to_bits()).collect();
    results.iter().map(bits).collect()
}

#[test]
fn second_derivatives_that_a_build_compiles_have_the_bits_of_interpreted_ones() {
    let dims = Dims {
        batch: 3,
        in_channels: 37,
        out_channels: 37,
        scalar_channels: 0,
    };
    for (p, q, r) in [(2, 0, 0), (3, 0, 0)] {
        let signature = Signature::of(p, q, r);
        let built = Algebra::new(signature).expect("an algebra");
        let interpreted = Algebra::interpreted(signature).expect("an algebra");
        for gate in [Gate::Gelu, Gate::None, Gate::Silu] {
            let second = |algebra| {
                let options = ops::ProductOptions::default().with_gate(gate);
                let gradient = ops::sgp_norm(algebra, &options).and_then(|op| op.gradient());
                let gradient = gradient.expect("a gradient");
                let forces = gradient.selecting(&[true, true, false]).expect("a part");
                [gradient, forces].map(|op| op.gradient().expect("a derivative"))
            };
            for (built, interpreted) in second(built).iter().zip(&second(interpreted)) {
                let is_there = cfg!(feature = "second-order") && gate != Gate::Silu;
                let tier = Tier::available().last().expect("the scalar tier at least");
                if tier != Tier::Scalar {
                    assert_eq!(built.is_interpreted::<f32>(), !is_there, "{gate}");
                }
                let [a, b] = [built, interpreted].map(|op| bits(op, &dims, &mut Random::new(5)));
                assert!(a == b, "{gate} of {signature}");
            }
        }
    }
}

/// A derivative with one result has a backward pass, which gives what its gradient gives, or an error that says why it has none: gates have
/// no curvature in kernels, and adjoints of high derivatives more tensors than kernels have room for.
#[test]
fn backward_passes_of_derivatives_are_their_gradients_or_errors() {
    let algebra: Algebra = "cl200".parse().expect("an algebra");
    let mut random = Random::new(41);
    let [mut passes, mut gates, mut large] = [0; 3];
    for (_, op) in operators(algebra, true) {
        let first = op.tangent().expect("a derivative");
        // Kernels have no room for the derivatives of some derivatives.
        let second = first.tangent();
        let third = second.as_ref().ok().and_then(|op| op.tangent().ok());
        for op in [Some(first), second.ok(), third].into_iter().flatten() {
            let dims = sizes(&op, 2, 3, 3);
            let whole = numbers(&op, &dims, &mut random);
            let shapes: Vec<Vec<usize>> = op.inputs().iter().map(|of| of.shape(&dims)).collect();
            let tensors = whole.iter().zip(&shapes);
            let tensors: Vec<Tensor<'_, f64>> = tensors
                .map(|(data, shape)| Tensor::new(data, shape).expect("the shape fits"))
                .collect();
            let evaluated = op.evaluate(&tensors).expect("the call fits");
            let seed = random.reals(evaluated.output.len());
            let seed = Tensor::new(&seed, &evaluated.output_shape).expect("the shape fits");
            match op.gradients(&tensors, &evaluated, seed) {
                Ok(got) => {
                    passes += 1;
                    let gradient = op
                        .gradient()
                        .expect("what has a backward pass has a gradient");
                    let all: Vec<_> = tensors.iter().copied().chain([seed]).collect();
                    let want = gradient.results(&all).expect("the call fits");
                    for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
                        let size = want.abs().max(1.0);
                        assert!(
                            (got - want).abs() <= 1e-11 * size,
                            "{}: {got}, {want}",
                            op.name()
                        );
                    }
                }
                Err(error) => {
                    assert!(matches!(error, Error::NoBackwardPass { .. }), "{error:?}");
                    let text = error.to_string();
                    match text.contains("run `Operator::gradient` of it") {
                        true => gates += 1,
                        false => large += 1,
                    }
                    assert!(text.contains("gradient") || text.contains("room"), "{text}");
                }
            }
        }
    }
    println!("{passes} backward passes, {gates} with gates, {large} too large");
    assert!(
        passes > 20 && gates > 5 && large > 0,
        "{passes} {gates} {large}"
    );
}
