//! Operators with scalar channels beside the channels, or with one number for each row among their inputs and results: the norm of
//! L-GATr-slim (arXiv 2512.17011), of vectors and scalars together, and products times a number of the row, beside scalars.

use flashcliff::program::Width;
use flashcliff::{
    Dim, Dims, Element, Error, Operator, ProgramOptions, Tensor, TensorSpec, Tier, threads,
};
use flashcliff_program::ir::{Argument, Data, Function, Program, Returned, RunTime, evaluate};

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
    operator.results(&tensors(operator, sizes, inputs)?)
}

/// The inputs of an operator as tensors.
fn tensors<'a, T: Element>(
    operator: &Operator,
    sizes: [usize; 3],
    inputs: &'a [Vec<T>],
) -> Result<Vec<Tensor<'a, T>>, Error> {
    let pairs = inputs.iter().zip(operator.inputs());
    pairs
        .map(|(data, spec)| Tensor::new(data, &spec.shape(&dims(sizes))))
        .collect()
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
    let tensors = tensors(&operator, sizes, &given)?;
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

fn one() -> Vec<String> {
    vec!["1".to_owned()]
}

fn own(program: &Program) -> Result<Operator, Error> {
    Operator::of("cl010".parse()?, program, &ProgramOptions::default())
}

/// `t = 2 s` beside `o = 3 x`, and the sum of all `x` of a row: where there are no scalars, `t` is empty and the others are not.
#[test]
fn a_first_result_without_elements_leaves_the_others() -> Result<(), Error> {
    let mut p = Program::new("both", "t = 2 s, o = 3 x, u = sum x");
    let x = p.input("x", one())[0];
    let s = p.input_of(Width::Scalars, "s", one())[0];
    let [two, three] = [2.0, 3.0].map(|number| p.graph.constant(number));
    let (t, o) = (p.graph.mul(s, two), p.graph.mul(x, three));
    p.output_of(Width::Scalars, "t", one(), vec![t]);
    p.output("o", one(), vec![o]);
    p.total("u", [Some(x), None]);
    let got = results(&own(&p)?, [2, 2, 0], &[vec![1.0, 2.0, 3.0, 4.0], vec![]])?;
    assert_eq!(got, [vec![], vec![3.0, 6.0, 9.0, 12.0], vec![3.0, 7.0]]);
    Ok(())
}

/// Sums over the batch are zero where there are no rows, and gradients of their summands too.
#[test]
fn sums_over_no_rows_are_zero() -> Result<(), Error> {
    let mut p = Program::new("sum", "sum over the batch of x w");
    let x = p.input("x", one())[0];
    let w = p.param("w", 1)[0];
    let product = p.graph.mul(x, w);
    p.sum("o", vec![product]);
    let operator = own(&p)?;
    let weights = [1.0_f32, 2.0];
    let inputs = [
        Tensor::new(&[], &[1, 0, 2])?,
        Tensor::new(&weights, &[2, 1])?,
    ];
    let evaluation = operator.evaluate(&inputs)?;
    assert_eq!(evaluation.output, [0.0, 0.0]);
    let seed = Tensor::new(&weights, &[2, 1])?;
    let gradients = operator.gradients(&inputs, &evaluation, seed)?;
    assert_eq!(gradients, [vec![], vec![0.0, 0.0]]);
    Ok(())
}

/// `u = n c` for `c` channels, and `t = 1` for each scalar: nothing reads the values of `x` and `s`, but their shapes.
#[test]
fn what_says_the_counts_is_read() -> Result<(), Error> {
    let mut p = Program::new("counts", "u = sum n, t = 1");
    let _ = p.input("x", one());
    let _ = p.input("y", one());
    let _ = p.input_of(Width::Scalars, "s", one());
    let n = p.row_value("n");
    let number = p.graph.constant(1.0);
    p.total("u", [Some(n), None]);
    p.output_of(Width::Scalars, "t", one(), vec![number]);
    let (operator, reads) = own(&p)?.reading();
    assert_eq!(reads, [true, false, true, true]);
    let got = results(
        &operator,
        [1, 3, 2],
        &[vec![0.0; 3], vec![0.0; 2], vec![5.0]],
    )?;
    assert_eq!(got, [vec![15.0], vec![1.0, 1.0]]);
    Ok(())
}

/// The gradient of a total is one number for each row, also where it passes a cut of scalars.
#[test]
fn cuts_keep_their_lanes_in_derivatives() -> Result<(), Error> {
    let mut p = Program::new("cut", "u = sum x + sum s t");
    let x = p.input("x", one())[0];
    let s = p.input_of(Width::Scalars, "s", one())[0];
    let t = p.input_of(Width::Scalars, "t", one())[0];
    let product = p.graph.mul(s, t);
    let cut = p.cut(vec![product])[0];
    // Nothing reads this one.
    let _ = p.cut(vec![product]);
    p.total("u", [Some(x), Some(cut)]);
    let operator = own(&p)?;
    for sizes in [[2, 7, 3], [2, 3, 19]] {
        for operator in [&operator, &operator.gradient()?, &operator.tangent()?] {
            let off = off(operator, sizes, 7)?;
            assert!(off < 1e-7, "{}, {sizes:?}: {off:e}", operator.name());
        }
    }
    let sizes = [2, 2, 13];
    let given = inputs::<f64>(&operator, sizes, 3);
    let tensors = tensors(&operator, sizes, &given)?;
    let evaluation = operator.evaluate(&tensors)?;
    let gradients = operator.gradients(&tensors, &evaluation, Tensor::new(&[1.0; 2], &[2])?)?;
    assert_eq!(
        gradients,
        [vec![1.0; 4], given[2].clone(), given[1].clone()]
    );
    Ok(())
}

/// Steps `v = sqrt(v / 2) + x`, each of which the next one reads once.
#[test]
fn long_programs_do_not_fill_the_stack() -> Result<(), Error> {
    let mut p = Program::new("long", "v = sqrt(v / 2) + x, many times");
    let x = p.input("x", one())[0];
    let mut v = x;
    let half = p.graph.constant(0.5);
    for _ in 0..40_000 {
        let part = p.graph.mul(v, half);
        let root = p.graph.call(Function::Sqrt, part);
        v = p.graph.add(root, x);
    }
    p.output("o", one(), vec![v]);
    let got = results(&own(&p)?, [1, 1, 0], &[vec![1.0]])?;
    // v = 1 + sqrt(v / 2).
    let v: f64 = got[0][0];
    assert!((v - 1.0 - (0.5 * v).sqrt()).abs() < 1e-6, "{v}");
    Ok(())
}
