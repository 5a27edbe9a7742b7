//! Operators with one number for each row among their inputs and results: products times a number of the row, beside scalars.

use flashcliff::{Dim, Dims, Element, Error, Operator, Tensor, Tier, threads};
use flashcliff_program::ir::{Data, RunTime, evaluate};

use crate::of_rows::{operator, program};
use crate::random::Random;

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

#[test]
fn rows_have_an_axis_of_their_own() -> Result<(), Error> {
    let operator = operator()?;
    let names = |specs: &[flashcliff::TensorSpec]| {
        let names: Vec<String> = specs.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
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

/// Numbers of rows are those of the interpreted program; those of no lanes are zero.
#[test]
fn operators_compute_what_programs_say() -> Result<(), Error> {
    let operator = operator()?;
    let program = program();
    let run_time = RunTime {
        eps: 0.0,
        gate: &|_, x| x,
    };
    for sizes in SIZES {
        let inputs = inputs::<f64>(&operator, sizes, 5);
        let [x, r, s, y, q] = &inputs[..] else {
            unreachable!("five inputs");
        };
        let data = Data {
            inputs: vec![x.clone(), s.clone(), y.clone()],
            row_values: vec![r.clone(), q.clone()],
            batch: sizes[0],
            channels: sizes[1],
            scalars: sizes[2],
            ..Data::default()
        };
        let mut want = evaluate(&program, &data, &run_time);
        let want = [
            want.outputs.swap_remove(0),
            want.totals.swap_remove(0),
            want.outputs.swap_remove(0),
        ];
        let got = results(&operator, sizes, &inputs)?;
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            assert!((got - want).abs() < 1e-13, "{sizes:?}: {got} {want}");
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
    let step = 1e-5;
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
    let operator = operator()?;
    for sizes in SIZES {
        for operator in [&operator, &operator.gradient()?, &operator.tangent()?] {
            let off = off(operator, sizes, 7)?;
            assert!(off < 1e-8, "{}, {sizes:?}: {off:e}", operator.name());
        }
    }
    Ok(())
}

/// Parts of an operator give the same, with the row sums that they need.
#[test]
fn selected_totals_stay() -> Result<(), Error> {
    let operator = operator()?;
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
    let operator = operator()?.gradient()?;
    let given = inputs::<f32>(&operator, sizes, 9);
    let bits = |operator: &Operator| -> Result<Vec<u32>, Error> {
        let results = results(operator, sizes, &given)?;
        Ok(results.into_iter().flatten().map(f32::to_bits).collect())
    };
    let first = bits(&operator)?;
    for count in [1, 2, 3] {
        assert_eq!(threads::at_most(count, || bits(&operator))?, first);
    }
    for tier in Tier::available() {
        let other = bits(&operator.clone().with_tier(tier)?)?;
        for (a, b) in first.iter().zip(other) {
            let [a, b] = [*a, b].map(f32::from_bits);
            assert!((a - b).abs() <= 1e-5 * (1.0 + a.abs()), "{tier}: {a} {b}");
        }
    }
    Ok(())
}

/// The backward pass of an operator with one output reads the sums that its forward pass saved.
#[test]
fn backward_passes_read_saved_sums() -> Result<(), Error> {
    let operator = operator()?.selecting(&[false, false, true])?;
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
