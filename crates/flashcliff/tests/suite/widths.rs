//! Operators with scalar channels beside the channels, or with one number for each row among their inputs and results: the norm of
//! L-GATr-slim (arXiv 2512.17011), of vectors and scalars together, and products times a number of the row, beside scalars.

use flashcliff::{Dim, Dims, Element, Error, Operator, Tensor, TensorSpec, Tier, threads};
use flashcliff_program::ir::{Argument, Data, Program, Returned, RunTime, evaluate};

use crate::random::Random;
use crate::{of_rows, slim_norm};

/// Rows, channels, scalar channels.
const SIZES: [[usize; 3]; 8] = [
    [3, 5, 7],
    [2, 16, 32],
    [4, 8, 1],
    [1, 1, 19],
    [3, 6, 0],
    [3, 0, 6],
    [0, 4, 4],
    [3, 0, 0],
];

/// Each operator, with its program and its epsilon.
fn operators() -> Result<[(Operator, Program, f64); 2], Error> {
    Ok([
        (slim_norm::operator()?, slim_norm::program(), slim_norm::EPS),
        (of_rows::operator()?, of_rows::program(), 0.0),
    ])
}

fn dims([batch, channels, scalar_channels]: [usize; 3]) -> Dims {
    Dims {
        batch,
        in_channels: channels,
        out_channels: channels,
        scalar_channels,
    }
}

/// The inputs of an operator.
fn inputs<T: Element>(operator: &Operator, sizes: [usize; 3], seed: u64) -> Vec<Vec<T>> {
    let mut random = Random::new(seed);
    let specs = operator.inputs().iter();
    let mut reals = |len| random.reals(len).into_iter().map(T::from_f64).collect();
    specs
        .map(|spec| reals(spec.shape(&dims(sizes)).iter().product()))
        .collect()
}

fn results<T: Element>(
    operator: &Operator,
    sizes: [usize; 3],
    inputs: &[Vec<T>],
) -> Result<Vec<Vec<T>>, Error> {
    let pairs = inputs.iter().zip(operator.inputs());
    let tensors: Result<Vec<_>, Error> = pairs
        .map(|(data, spec)| Tensor::new(data, &spec.shape(&dims(sizes))))
        .collect();
    operator.results(&tensors?)
}

fn names(specs: &[TensorSpec]) -> String {
    let names: Vec<String> = specs.iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[test]
fn axes_are_told_apart() -> Result<(), Error> {
    let norm = slim_norm::operator()?;
    assert_eq!(
        names(norm.inputs()),
        "x [4, batch, in], s [1, batch, scalars], a [in, 1], b [scalars, 1]"
    );
    let dims = norm.bind(&[&[4, 2, 3], &[1, 2, 5], &[3, 1], &[5, 1]])?;
    assert_eq!((dims.in_channels, dims.scalar_channels), (3, 5));
    let refused = norm.bind(&[&[4, 2, 3], &[1, 2, 5], &[3, 1], &[4, 1]]);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("[scalars = 5, 1]"), "{said}");
    Ok(())
}

#[test]
fn rows_have_an_axis_of_their_own() -> Result<(), Error> {
    let operator = of_rows::operator()?;
    assert_eq!(
        names(operator.inputs()),
        "x [2, batch, in], r [batch], s [1, batch, scalars], y [2, batch, in], q [batch]"
    );
    assert_eq!(
        names(operator.outputs()),
        "o [2, batch, in], u [batch], t [1, batch, scalars]"
    );
    let gradient = operator.gradient()?;
    let own = gradient
        .outputs()
        .iter()
        .filter(|spec| spec.dims == [Dim::Batch]);
    assert_eq!(
        own.map(|spec| spec.name).collect::<Vec<_>>(),
        ["grad_r", "grad_q"]
    );
    let refused = operator.bind(&[&[2, 3, 4], &[2], &[1, 3, 5], &[2, 3, 4], &[3]]);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("[batch = 3]"), "{said}");
    Ok(())
}

/// The arguments of a program in the order of callers.
fn data(program: &Program, given: &[Vec<f64>], [batch, channels, scalars]: [usize; 3]) -> Data {
    let mut data = Data {
        inputs: vec![Vec::new(); program.inputs.len()],
        params: vec![Vec::new(); program.params.len()],
        row_values: vec![Vec::new(); program.row_values.len()],
        batch,
        channels,
        scalars,
    };
    for (argument, values) in program.arguments.iter().zip(given) {
        let to = match *argument {
            Argument::Input(at) => &mut data.inputs[at],
            Argument::Param(at) => &mut data.params[at],
            Argument::RowValue(at) => &mut data.row_values[at],
        };
        to.clone_from(values);
    }
    data
}

/// Operators give the results of the program, evaluated by loops, which the tests of programs compare with formulas.
#[test]
fn operators_compute_what_programs_say() -> Result<(), Error> {
    for (operator, program, eps) in operators()? {
        let run_time = RunTime {
            eps,
            gate: &|_, x| x,
        };
        for sizes in SIZES {
            let given = inputs::<f64>(&operator, sizes, 5);
            let want = evaluate(&program, &data(&program, &given, sizes), &run_time);
            let got = results(&operator, sizes, &given)?;
            assert_eq!(got.len(), program.results.len());
            for (got, result) in got.iter().zip(&program.results) {
                let want = match *result {
                    Returned::Output(at) => &want.outputs[at],
                    Returned::Sum(at) => &want.sums[at],
                    Returned::Total(at) => &want.totals[at],
                };
                assert_eq!(got.len(), want.len(), "{}, {sizes:?}", operator.name());
                for (got, want) in got.iter().zip(want) {
                    assert!((got - want).abs() < 1e-13, "{sizes:?}: {got} {want}");
                }
            }
        }
    }
    Ok(())
}

fn dot(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| a * b).sum()
}

/// How far the gradient of an operator is from central differences, along a random direction.
fn off(operator: &Operator, sizes: [usize; 3], seed: u64) -> Result<f64, Error> {
    let gradient = operator.gradient()?;
    let all = inputs::<f64>(&gradient, sizes, seed);
    let (at, seeds) = all.split_at(operator.inputs().len());
    let direction = inputs::<f64>(operator, sizes, seed + 1);
    let step = 1e-6;
    let moved = |step: f64| -> Result<f64, Error> {
        let pairs = at.iter().zip(&direction);
        let sum =
            |(x, v): (&Vec<f64>, &Vec<f64>)| x.iter().zip(v).map(|(x, v)| x + step * v).collect();
        let moved: Vec<Vec<f64>> = pairs.map(sum).collect();
        Ok(dot(&results(operator, sizes, &moved)?, seeds))
    };
    let want = (moved(step)? - moved(-step)?) / (2.0 * step);
    let got = dot(&results(&gradient, sizes, &all)?, &direction);
    Ok((got - want).abs() / (1.0 + want.abs()))
}

#[test]
fn derivatives_are_those_of_differences() -> Result<(), Error> {
    for (operator, ..) in operators()? {
        for sizes in SIZES {
            for operator in [&operator, &operator.gradient()?, &operator.tangent()?] {
                let off = off(operator, sizes, 7)?;
                assert!(off < 1e-7, "{}, {sizes:?}: {off:e}", operator.name());
            }
        }
    }
    Ok(())
}

/// Parts of an operator give the same, with the row sums that they need.
#[test]
fn selected_totals_stay() -> Result<(), Error> {
    let operator = of_rows::operator()?;
    for sizes in SIZES {
        let all = inputs::<f64>(&operator, sizes, 3);
        let whole = results(&operator, sizes, &all)?;
        let alone = operator.selecting(&[false, true, false])?;
        let got = results(&alone, sizes, &all)?;
        assert_eq!(got.len(), 1);
        for (got, want) in got[0].iter().zip(&whole[1]) {
            assert!((got - want).abs() < 1e-13, "{sizes:?}: {got} {want}");
        }
    }
    Ok(())
}

/// Neither the number of threads nor a repetition changes a bit; the tiers agree but for rounding.
#[test]
fn runs_give_the_same_bits() -> Result<(), Error> {
    let sizes = [300, 24, 40];
    for (operator, ..) in operators()? {
        for operator in [&operator, &operator.gradient()?] {
            let given = inputs::<f32>(operator, sizes, 9);
            let bits = |operator: &Operator| -> Result<Vec<u32>, Error> {
                let results = results(operator, sizes, &given)?;
                Ok(results.into_iter().flatten().map(f32::to_bits).collect())
            };
            let first = bits(operator)?;
            for count in [1, 2, 3] {
                assert_eq!(threads::at_most(count, || bits(operator))?, first);
            }
            for tier in Tier::available() {
                let other = bits(&operator.clone().with_tier(tier)?)?;
                for (a, b) in first.iter().zip(other) {
                    let [a, b] = [*a, b].map(f32::from_bits);
                    assert!((a - b).abs() <= 1e-5 * (1.0 + a.abs()), "{tier}: {a} {b}");
                }
            }
        }
    }
    Ok(())
}

/// The backward pass of an operator with one output reads the sums that its forward pass saved.
#[test]
fn backward_passes_read_saved_sums() -> Result<(), Error> {
    let operator = of_rows::operator()?.selecting(&[false, false, true])?;
    let sizes = [3, 5, 7];
    let given = inputs::<f64>(&operator, sizes, 11);
    let shapes: Vec<Vec<usize>> = operator
        .inputs()
        .iter()
        .map(|spec| spec.shape(&dims(sizes)))
        .collect();
    let pairs = given.iter().zip(&shapes);
    let tensors: Result<Vec<_>, Error> = pairs
        .map(|(data, shape)| Tensor::new(data, shape))
        .collect();
    let tensors = tensors?;
    let evaluation = operator.evaluate(&tensors)?;
    let seed = Random::new(2).reals(evaluation.output.len());
    let seed_tensor = Tensor::new(&seed, &evaluation.output_shape)?;
    let got = operator.gradients(&tensors, &evaluation, seed_tensor)?;
    let all: Vec<Vec<f64>> = given.iter().cloned().chain([seed.clone()]).collect();
    let want = results(&operator.gradient()?, sizes, &all)?;
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
        assert!((got - want).abs() < 1e-13, "{got} {want}");
    }
    Ok(())
}
