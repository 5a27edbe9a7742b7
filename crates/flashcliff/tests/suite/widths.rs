//! Operators with scalar channels beside the channels: the norm of L-GATr-slim (arXiv 2512.17011), of vectors and scalars together.

use flashcliff::{Dims, Element, Error, Operator, Tensor, Tier, threads};

use crate::random::Random;
use crate::slim_norm::{EPS, METRIC, operator};

/// The sizes of a call: rows, channels, scalar channels.
type Sizes = [usize; 3];

/// The inputs of the norm: vectors, scalars, and both gains.
struct Inputs<T> {
    data: [Vec<T>; 4],
    sizes: Sizes,
}

impl<T: Element> Inputs<T> {
    fn random(sizes: Sizes, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let [rows, channels, scalars] = sizes;
        let counts = [4 * rows * channels, rows * scalars, channels, scalars];
        let data = counts.map(|count| random.reals(count).into_iter().map(T::from_f64).collect());
        Self { data, sizes }
    }

    fn tensors(&self) -> Result<Vec<Tensor<'_, T>>, Error> {
        let [rows, channels, scalars] = self.sizes;
        let shapes = [
            &[4, rows, channels][..],
            &[1, rows, scalars],
            &[channels, 1],
            &[scalars, 1],
        ];
        let pairs = self.data.iter().zip(shapes);
        pairs
            .map(|(data, shape)| Tensor::new(data, shape))
            .collect()
    }
}

/// The norm by loops.
fn by_loops(inputs: &Inputs<f64>) -> [Vec<f64>; 2] {
    let [rows, channels, scalars] = inputs.sizes;
    let [x, s, a, b] = &inputs.data;
    let mut out = [vec![0.0; x.len()], vec![0.0; s.len()]];
    for row in 0..rows {
        let vector = |k: usize, c: usize| (k * rows + row) * channels + c;
        let mut total = 0.0;
        for c in 0..channels {
            let square: f64 = (0..4).map(|k| METRIC[k] * x[vector(k, c)].powi(2)).sum();
            total += square.abs();
        }
        total += (0..scalars)
            .map(|c| s[row * scalars + c].powi(2))
            .sum::<f64>();
        let root = (total / (channels + scalars) as f64 + EPS).sqrt();
        for c in 0..channels {
            (0..4).for_each(|k| out[0][vector(k, c)] = a[c] * x[vector(k, c)] / root);
        }
        for c in 0..scalars {
            out[1][row * scalars + c] = b[c] * s[row * scalars + c] / root;
        }
    }
    out
}

const SIZES: [Sizes; 7] = [
    [3, 5, 7],
    [2, 16, 32],
    [4, 8, 1],
    [1, 1, 19],
    [3, 6, 0],
    [3, 0, 6],
    [0, 4, 4],
];

#[test]
fn a_norm_of_vectors_and_scalars_is_right() -> Result<(), Error> {
    for sizes in SIZES {
        let inputs = Inputs::<f64>::random(sizes, 3);
        let got = operator()?.results(&inputs.tensors()?)?;
        for (got, want) in got.iter().zip(by_loops(&inputs)) {
            assert_eq!(got.len(), want.len(), "{sizes:?}");
            let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs());
            assert!(off.fold(0.0, f64::max) < 1e-14, "{sizes:?}");
        }
    }
    Ok(())
}

/// The gradient against central differences, and the gradient of the gradient against differences of the gradient.
#[test]
fn derivatives_are_those_of_differences() -> Result<(), Error> {
    let first = operator()?.gradient()?;
    for (op, order) in [(operator()?, 1), (first, 2)] {
        for sizes in [[2, 3, 5], [3, 8, 16], [2, 5, 0], [2, 0, 5]] {
            let off = differences(&op, sizes, order)?;
            assert!(off < 1e-7, "order {order}, {sizes:?}: {off:e}");
        }
    }
    Ok(())
}

/// How far the gradient of a weighted sum of results is from its central difference along a direction.
fn differences(op: &Operator, [rows, channels, scalars]: Sizes, seed: u64) -> Result<f64, Error> {
    let mut random = Random::new(seed);
    let dims = Dims {
        batch: rows,
        in_channels: channels,
        out_channels: channels,
        scalar_channels: scalars,
    };
    let shapes: Vec<Vec<usize>> = op.inputs().iter().map(|spec| spec.shape(&dims)).collect();
    let mut numbers = |shape: &Vec<usize>| random.reals(shape.iter().product());
    let at: Vec<Vec<f64>> = shapes.iter().map(&mut numbers).collect();
    let along: Vec<Vec<f64>> = shapes.iter().map(&mut numbers).collect();
    let of_results: Vec<Vec<usize>> = op.outputs().iter().map(|spec| spec.shape(&dims)).collect();
    let weights: Vec<Vec<f64>> = of_results.iter().map(&mut numbers).collect();
    let tensors = |data: &[Vec<f64>]| -> Result<Vec<Vec<f64>>, Error> {
        let given = data.iter().zip(&shapes);
        let given: Result<Vec<_>, _> = given
            .map(|(data, shape)| Tensor::new(data, shape))
            .collect();
        op.results(&given?)
    };
    let moved = |step: f64| -> Result<f64, Error> {
        let moved = at.iter().zip(&along);
        let moved =
            moved.map(|(at, along)| at.iter().zip(along).map(|(a, b)| a + step * b).collect());
        let results = tensors(&moved.collect::<Vec<Vec<f64>>>())?;
        Ok(dot(&results, &weights))
    };
    let step = 1e-6;
    let want = (moved(step)? - moved(-step)?) / (2.0 * step);
    let mut given = Vec::new();
    let all = at
        .iter()
        .zip(&shapes)
        .chain(weights.iter().zip(&of_results));
    for (data, shape) in all {
        given.push(Tensor::new(data, shape)?);
    }
    let got = op.gradient()?.results(&given)?;
    let size: f64 = got.iter().flatten().map(|x| x.abs()).sum();
    Ok((dot(&got, &along) - want).abs() / size.max(1.0))
}

fn dot(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| a * b).sum()
}

/// Neither the number of threads nor a repetition changes a bit; the tiers agree but for rounding.
#[test]
fn runs_give_the_same_bits() -> Result<(), Error> {
    let inputs = Inputs::<f32>::random([300, 24, 40], 9);
    let op = operator()?;
    let bits = |op: &Operator| -> Result<Vec<u32>, Error> {
        let results = op.results(&inputs.tensors()?)?;
        Ok(results.into_iter().flatten().map(f32::to_bits).collect())
    };
    let first = bits(&op)?;
    for count in [1, 2, 3] {
        assert_eq!(threads::at_most(count, || bits(&op))?, first);
    }
    for tier in Tier::available() {
        let other = bits(&operator()?.with_tier(tier)?)?;
        for (a, b) in first.iter().zip(other) {
            let [a, b] = [*a, b].map(f32::from_bits);
            assert!((a - b).abs() <= 1e-6 * (1.0 + a.abs()), "{tier}: {a} {b}");
        }
    }
    Ok(())
}

#[test]
fn axes_are_told_apart() -> Result<(), Error> {
    let op = operator()?;
    let names: Vec<String> = op.inputs().iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "x [4, batch, in]",
            "s [1, batch, scalars]",
            "a [in, 1]",
            "b [scalars, 1]"
        ]
    );
    let dims = op.bind(&[&[4, 2, 3], &[1, 2, 5], &[3, 1], &[5, 1]])?;
    assert_eq!((dims.in_channels, dims.scalar_channels), (3, 5));
    let error = op
        .bind(&[&[4, 2, 3], &[1, 2, 5], &[3, 1], &[4, 1]])
        .unwrap_err();
    assert!(error.to_string().contains("[scalars = 5, 1]"), "{error}");
    Ok(())
}
