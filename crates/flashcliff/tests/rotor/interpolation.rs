//! Interpolation of rotors and of reflections.

use flashcliff::rotor::{InterpolationGradients, Parity, RotorMap};
use flashcliff::{Tensor, TensorMut};

use super::Result;
use super::case::{Case, close, dot, numbers, signatures, slope};

impl Case {
    pub(super) fn between(&self, parity: Parity, ends: [&[f64]; 2], t: f64) -> Result<Vec<f64>> {
        let shape = [ends[0].len(), 1, 1];
        let mut out = vec![0.0; shape[0]];
        let [a, b] = [Tensor::new(ends[0], &shape)?, Tensor::new(ends[1], &shape)?];
        let t = [t];
        let t = Tensor::new(&t, &[1, 1])?;
        self.rotors
            .interpolate(parity, [a, b], t, TensorMut::new(&mut out, &shape)?)?;
        Ok(out)
    }

    fn ends(&self, scale: f64) -> Result<[Vec<f64>; 2]> {
        let [a, b] = [5, 6].map(|seed| self.random(scale, seed));
        Ok([self.map(RotorMap::Exp, &a)?, self.map(RotorMap::Exp, &b)?])
    }

    /// A mirror before a rotor.
    fn mirrored(&self, mirror: &[f64], r: &[f64]) -> Vec<f64> {
        let whole = self.multiply(mirror, &self.whole(&self.even, r));
        self.odd.iter().map(|&blade| whole[blade]).collect()
    }
}

#[test]
fn half_of_the_way_twice_is_all_of_it() -> Result {
    for signature in signatures() {
        let case = Case::new(signature)?;
        let b = case.random(1.0, 5);
        let [first, second] = [0.7, -1.2].map(|t| b.iter().map(|x| t * x).collect::<Vec<_>>());
        let first = case.map(RotorMap::Exp, &first)?;
        let second = case.map(RotorMap::Exp, &second)?;
        let middle = case.between(Parity::Even, [&first, &second], 0.5)?;
        let step = case.product(&case.map(RotorMap::Inverse, &first)?, &middle);
        let end = case.product(&middle, &step);
        let sign = if end[0] * second[0] < 0.0 { -1.0 } else { 1.0 };
        let end: Vec<f64> = end.iter().map(|x| sign * x).collect();
        close(&end, &second, 1e-11);
    }
    Ok(())
}

/// The path from `n a` to `n b` is `n` before the path from `a` to `b`, for a mirror `n`.
#[test]
fn a_mirror_before_both_ends_is_one_before_the_path() -> Result {
    let mirrors = |(p, q, r): (usize, usize, usize)| {
        // Null vectors come first, then those that square to 1, then those that square to -1.
        let positive = (p > 0).then_some(1 + r);
        let negative = (q > 0).then_some(1 + r + p);
        let blades = positive.into_iter().chain(negative);
        blades.map(move |blade| ((p, q, r), blade))
    };
    for (signature, blade) in signatures().flat_map(mirrors) {
        let case = Case::new(signature)?;
        let mut mirror = vec![0.0; case.bits.len()];
        mirror[blade] = 1.0;
        let ends = case.ends(0.4)?;
        let [a, b] = ends.each_ref().map(|r| case.mirrored(&mirror, r));
        for t in [0.0, 0.3, 1.0] {
            let path = case.between(Parity::Even, [&ends[0], &ends[1]], t)?;
            let wanted = case.mirrored(&mirror, &path);
            close(&case.between(Parity::Odd, [&a, &b], t)?, &wanted, 1e-11);
        }
        let start = case.between(Parity::Odd, [&a, &b], 0.0)?;
        close(&start, &a, 1e-12);
    }
    Ok(())
}

#[test]
fn gradients_are_differences() -> Result {
    for signature in [(3, 0, 1), (4, 0, 0), (1, 3, 0), (2, 1, 1)] {
        let case = Case::new(signature)?;
        let mut mirror = vec![0.0; case.bits.len()];
        mirror[1 + signature.2] = 1.0;
        for parity in [Parity::Even, Parity::Odd] {
            let mut ends = case.ends(0.5)?;
            if parity == Parity::Odd {
                ends = ends.map(|r| case.mirrored(&mirror, &r));
            }
            check_gradients(&case, parity, ends)?;
        }
    }
    Ok(())
}

fn check_gradients(case: &Case, parity: Parity, ends: [Vec<f64>; 2]) -> Result {
    let len = ends[0].len();
    let shape = [len, 1, 1];
    let grad = numbers(3, len);
    let value = |ends: &[Vec<f64>; 2], t: f64| -> Result<f64> {
        Ok(dot(&case.between(parity, [&ends[0], &ends[1]], t)?, &grad))
    };
    let (mut of_a, mut of_b, mut of_t) = (vec![9.0; len], vec![9.0; len], [9.0]);
    case.rotors.interpolate_gradient(
        parity,
        [
            Tensor::new(&ends[0], &shape)?,
            Tensor::new(&ends[1], &shape)?,
        ],
        Tensor::new(&[0.3], &[1, 1])?,
        Tensor::new(&grad, &shape)?,
        InterpolationGradients {
            a: Some(TensorMut::new(&mut of_a, &shape)?),
            b: Some(TensorMut::new(&mut of_b, &shape)?),
            t: Some(TensorMut::new(&mut of_t, &[1, 1])?),
        },
    )?;
    for (side, got) in [of_a, of_b].into_iter().enumerate() {
        for (index, got) in got.into_iter().enumerate() {
            let wanted = slope(|step| {
                let mut ends = ends.clone();
                ends[side][index] += step;
                value(&ends, 0.3)
            })?;
            assert!((got - wanted).abs() < 1e-8, "{parity:?}: {got}, {wanted}");
        }
    }
    let wanted = slope(|step| value(&ends, 0.3 + step))?;
    assert!((of_t[0] - wanted).abs() < 1e-9, "{} {wanted}", of_t[0]);
    Ok(())
}

#[test]
fn positions_are_repeated_along_axes_of_length_one() -> Result {
    let case = Case::new((2, 0, 0))?;
    let (batch, channels) = (3, 2);
    let shape = [2, batch, channels];
    let (a, b) = (numbers(1, 12), numbers(2, 12));
    let t = numbers(3, batch * channels);
    let run = |t: &[f64], axes: &[usize]| -> Result<Vec<f64>> {
        let mut out = vec![0.0; 12];
        case.rotors.interpolate(
            Parity::Even,
            [Tensor::new(&a, &shape)?, Tensor::new(&b, &shape)?],
            Tensor::new(t, axes)?,
            TensorMut::new(&mut out, &shape)?,
        )?;
        Ok(out)
    };
    let of = |f: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..batch * channels)
            .map(|item| f(item / channels, item % channels))
            .collect()
    };
    assert_eq!(run(&t[..2], &[1, 2])?, run(&of(&|_, c| t[c]), &[3, 2])?);
    assert_eq!(run(&t[..3], &[3, 1])?, run(&of(&|b, _| t[b]), &[3, 2])?);
    assert_eq!(run(&t[..1], &[1, 1])?, run(&of(&|_, _| t[0]), &[3, 2])?);
    assert_ne!(run(&t, &[3, 2])?, run(&of(&|_, _| t[0]), &[3, 2])?);
    let error = run(&t[..2], &[2, 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "interpolate: tensor `t` must be [3, 2], or 1 for an axis along which it is repeated, got [2, 1]"
    );
    Ok(())
}
