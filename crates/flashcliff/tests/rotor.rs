//! Rotors against matrix exponentials, as groups, and their gradients against differences.

use flashcliff::rotor::{RotorMap, Rotors};
use flashcliff::{Algebra, Error, Signature, Tensor, TensorMut, threads};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// All signatures of 1 to 5 dimensions.
fn signatures() -> impl Iterator<Item = (usize, usize, usize)> {
    (1..=5_usize)
        .flat_map(|n| (0..=n).flat_map(move |p| (0..=n - p).map(move |q| (p, q, n - p - q))))
}

struct Case {
    algebra: Algebra,
    rotors: Rotors,
    /// The vectors of each blade as bits, and their squares: the oracle has signs of its own.
    bits: Vec<u32>,
    squares: Vec<f64>,
    bivectors: Vec<usize>,
    even: Vec<usize>,
}

impl Case {
    fn new((p, q, r): (usize, usize, usize)) -> Result<Self> {
        let algebra = Algebra::new(Signature::new(p, q, r)?)?;
        let n = p + q + r;
        let mut bits: Vec<u32> = (0..1 << n).collect();
        // By grade, then in the order of the lists of vectors.
        let list = |blade: u32| (0..n).filter(|i| blade >> i & 1 == 1).collect::<Vec<_>>();
        bits.sort_by_key(|&blade| (blade.count_ones(), list(blade)));
        let of = |count: usize, square: f64| vec![square; count];
        let blades = |grade: &dyn Fn(u32) -> bool| {
            let found = bits.iter().enumerate();
            found
                .filter(|(_, b)| grade(b.count_ones()))
                .map(|(i, _)| i)
                .collect()
        };
        Ok(Self {
            algebra,
            rotors: Rotors::new(algebra)?,
            squares: [of(r, 0.0), of(p, 1.0), of(q, -1.0)].concat(),
            bivectors: blades(&|grade| grade == 2),
            even: blades(&|grade| grade % 2 == 0),
            bits,
        })
    }

    fn multiply(&self, x: &[f64], y: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; x.len()];
        for (i, &a) in self.bits.iter().enumerate() {
            for (k, &b) in self.bits.iter().enumerate() {
                let mut factor = x[i] * y[k];
                for vector in 0..self.squares.len() {
                    if b >> vector & 1 == 1 && (a >> (vector + 1)).count_ones() % 2 == 1 {
                        factor = -factor;
                    }
                    if a & b & (1 << vector) != 0 {
                        factor *= self.squares[vector];
                    }
                }
                if let Some(output) = self.bits.iter().position(|&blade| blade == a ^ b) {
                    result[output] += factor;
                }
            }
        }
        result
    }

    /// The exponential by scaling and squaring, from the product alone.
    fn exponential(&self, b: &[f64]) -> Vec<f64> {
        let small: Vec<f64> = self
            .whole(&self.bivectors, b)
            .iter()
            .map(|x| x / 1024.0)
            .collect();
        let mut term = self.whole(&self.even[..1], &[1.0]);
        let mut sum = term.clone();
        for k in 1..12 {
            term = self
                .multiply(&term, &small)
                .iter()
                .map(|x| x / f64::from(k))
                .collect();
            for (sum, term) in sum.iter_mut().zip(&term) {
                *sum += term;
            }
        }
        for _ in 0..10 {
            sum = self.multiply(&sum, &sum);
        }
        self.even.iter().map(|&blade| sum[blade]).collect()
    }

    fn whole(&self, blades: &[usize], x: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; self.bits.len()];
        for (&blade, &value) in blades.iter().zip(x) {
            result[blade] = value;
        }
        result
    }

    fn product(&self, x: &[f64], y: &[f64]) -> Vec<f64> {
        let result = self.multiply(&self.whole(&self.even, x), &self.whole(&self.even, y));
        self.even.iter().map(|&blade| result[blade]).collect()
    }

    /// A map of one item.
    fn map(&self, map: RotorMap, x: &[f64]) -> Result<Vec<f64>> {
        let len = match map {
            RotorMap::Exp => self.even.len(),
            RotorMap::Log => self.bivectors.len(),
            _ => x.len(),
        };
        let mut out = vec![0.0; len];
        let x = Tensor::new(x, &[x.len(), 1, 1])?;
        self.rotors
            .map(map, x, TensorMut::new(&mut out, &[len, 1, 1])?)?;
        Ok(out)
    }

    fn random(&self, scale: f64, seed: u64) -> Vec<f64> {
        numbers(seed, self.bivectors.len())
            .iter()
            .map(|x| x * scale)
            .collect()
    }
}

/// Numbers between -1 and 1.
fn numbers(mut seed: u64, len: usize) -> Vec<f64> {
    let mut next = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    next();
    (0..len).map(|_| next()).collect()
}

#[track_caller]
fn close(got: &[f64], wanted: &[f64], tolerance: f64) {
    let size = wanted.iter().fold(0.0_f64, |size, x| size.max(x.abs()));
    assert_eq!(got.len(), wanted.len());
    for (got, wanted) in got.iter().zip(wanted) {
        let error = (got - wanted).abs();
        assert!(
            error <= tolerance * size,
            "{got} is not {wanted}: {}",
            error / size
        );
    }
}

#[test]
fn exp_is_the_matrix_exponential_and_log_its_inverse() -> Result {
    for signature in signatures() {
        let case = Case::new(signature)?;
        for (seed, scale) in [(1, 1e-9), (2, 1e-3), (3, 0.6), (4, 2.5)] {
            let b = case.random(scale, seed);
            let r = case.map(RotorMap::Exp, &b)?;
            close(&r, &case.exponential(&b), 1e-12);
            if scale < 1.0 {
                close(&case.map(RotorMap::Log, &r)?, &b, 1e-13);
            }
        }
    }
    Ok(())
}

#[test]
fn rotors_are_groups() -> Result {
    for signature in signatures() {
        let case = Case::new(signature)?;
        let b = case.random(1.0, 5);
        let times = |t: f64| b.iter().map(|x| t * x).collect::<Vec<_>>();
        let first = case.map(RotorMap::Exp, &times(0.7))?;
        let second = case.map(RotorMap::Exp, &times(-1.2))?;
        close(
            &case.product(&first, &second),
            &case.map(RotorMap::Exp, &times(-0.5))?,
            1e-13,
        );
        let one = case.product(&first, &case.map(RotorMap::Inverse, &first)?);
        close(&one, &case.map(RotorMap::Exp, &times(0.0))?, 1e-13);
        let twice: Vec<f64> = first.iter().map(|x| 2.0 * x).collect();
        close(&case.map(RotorMap::Normalized, &twice)?, &first, 1e-13);
        // Half of the way twice is all of it.
        let shape = [first.len(), 1, 1];
        let mut middle = vec![0.0; first.len()];
        case.rotors.interpolate(
            Tensor::new(&first, &shape)?,
            Tensor::new(&second, &shape)?,
            0.5,
            TensorMut::new(&mut middle, &shape)?,
        )?;
        let step = case.product(&case.map(RotorMap::Inverse, &first)?, &middle);
        let end = case.product(&middle, &step);
        let sign = if end[0] * second[0] < 0.0 { -1.0 } else { 1.0 };
        let end: Vec<f64> = end.iter().map(|x| sign * x).collect();
        close(&end, &second, 1e-11);
    }
    Ok(())
}

#[test]
fn special_points() -> Result {
    let space = Case::new((3, 0, 0))?;
    assert!(
        space
            .map(RotorMap::Log, &[-1.0, 0.0, 0.0, 0.0])?
            .iter()
            .all(|x| x.is_nan())
    );
    // The short way around.
    let plane = Case::new((2, 0, 0))?;
    let r = plane.map(RotorMap::Exp, &[4.0])?;
    close(
        &plane.map(RotorMap::Log, &r)?,
        &[4.0 - std::f64::consts::TAU],
        1e-14,
    );
    let near = std::f64::consts::PI - 1e-6;
    let r = plane.map(RotorMap::Exp, &[near])?;
    close(&plane.map(RotorMap::Log, &r)?, &[near], 1e-9);
    // Translations are linear, exactly.
    let pga = Case::new((3, 0, 1))?;
    let r = pga.map(RotorMap::Exp, &[0.3, -2.0, 1e6, 0.0, 0.0, 0.0])?;
    assert_eq!(r, [1.0, 0.3, -2.0, 1e6, 0.0, 0.0, 0.0, 0.0]);
    // Angles of any size, and boosts up to the largest number.
    let r = plane.map(RotorMap::Exp, &[1e5])?;
    close(&r, &[1e5_f64.cos(), 1e5_f64.sin()], 1e-9);
    let boost = Case::new((1, 1, 0))?.map(RotorMap::Exp, &[700.0])?;
    close(&boost, &[700.0_f64.cosh(), 700.0_f64.sinh()], 1e-11);
    for bad in [f64::NAN, f64::INFINITY] {
        assert!(!plane.map(RotorMap::Exp, &[bad])?[0].is_finite());
    }
    Ok(())
}

#[test]
fn inverses_of_odd_multivectors() -> Result {
    let case = Case::new((4, 1, 0))?;
    let odd: Vec<usize> = (0..32)
        .filter(|&i| case.bits[i].count_ones() % 2 == 1)
        .collect();
    let mut x = numbers(7, odd.len());
    x[0] += 4.0;
    let inverse = case.map(RotorMap::InverseOdd, &x)?;
    let one = case.multiply(&case.whole(&odd, &x), &case.whole(&odd, &inverse));
    close(&one, &case.whole(&[0], &[1.0]), 1e-14);
    let unit = case.map(RotorMap::NormalizedOdd, &x)?;
    let back = case.map(RotorMap::InverseOdd, &unit)?;
    let reverse = |i: usize, x: f64| {
        if case.bits[odd[i]].count_ones() == 3 {
            -x
        } else {
            x
        }
    };
    let reversed: Vec<f64> = unit
        .iter()
        .enumerate()
        .map(|(i, &x)| reverse(i, x))
        .collect();
    close(&back, &reversed, 1e-13);
    Ok(())
}

#[test]
fn gradients_are_differences() -> Result {
    let maps = [
        RotorMap::Exp,
        RotorMap::Log,
        RotorMap::Inverse,
        RotorMap::Normalized,
    ];
    for signature in signatures().filter(|&(p, q, r)| p + q + r > 1) {
        let case = Case::new(signature)?;
        let b = case.random(0.6, 9);
        let r: Vec<f64> = case
            .map(RotorMap::Exp, &b)?
            .iter()
            .map(|x| 1.3 * x)
            .collect();
        for map in maps {
            for x in if map == RotorMap::Exp {
                vec![b.clone(), vec![0.0; b.len()]]
            } else {
                vec![r.clone()]
            } {
                let grad = numbers(11, case.map(map, &x)?.len());
                let mut got = vec![0.0; x.len()];
                case.rotors.gradient(
                    map,
                    Tensor::new(&x, &[x.len(), 1, 1])?,
                    Tensor::new(&grad, &[grad.len(), 1, 1])?,
                    TensorMut::new(&mut got, &[x.len(), 1, 1])?,
                )?;
                let step = 1e-3;
                for (index, got) in got.iter().enumerate() {
                    let at = |steps: f64| -> Result<f64> {
                        let mut x = x.clone();
                        x[index] += steps * step;
                        let out = case.map(map, &x)?;
                        Ok(out.iter().zip(&grad).map(|(o, g)| o * g).sum())
                    };
                    // Differences of fourth order.
                    let slope =
                        (8.0 * (at(1.0)? - at(-1.0)?) - (at(2.0)? - at(-2.0)?)) / (12.0 * step);
                    assert!(
                        (got - slope).abs() < 1e-8 * (1.0 + slope.abs()),
                        "{map:?} of {signature:?}: {got}, {slope}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_of_interpolation_are_differences() -> Result {
    let case = Case::new((3, 0, 1))?;
    let ends = [1, 2].map(|seed| case.random(0.6, seed));
    let ends = [
        case.map(RotorMap::Exp, &ends[0])?,
        case.map(RotorMap::Exp, &ends[1])?,
    ];
    let shape = [8, 1, 1];
    let grad = numbers(3, 8);
    let value = |ends: &[Vec<f64>; 2]| -> Result<f64> {
        let mut out = [0.0; 8];
        let [a, b] = ends;
        let (a, b) = (Tensor::new(a, &shape)?, Tensor::new(b, &shape)?);
        case.rotors
            .interpolate(a, b, 0.3, TensorMut::new(&mut out, &shape)?)?;
        Ok(out.iter().zip(&grad).map(|(o, g)| o * g).sum())
    };
    let mut got = [[0.0; 8]; 2];
    let [to_a, to_b] = &mut got;
    case.rotors.interpolate_gradient(
        Tensor::new(&ends[0], &shape)?,
        Tensor::new(&ends[1], &shape)?,
        0.3,
        Tensor::new(&grad, &shape)?,
        [TensorMut::new(to_a, &shape)?, TensorMut::new(to_b, &shape)?],
    )?;
    for side in 0..2 {
        for index in 0..8 {
            let at = |step: f64| {
                let mut ends = ends.clone();
                ends[side][index] += step;
                value(&ends)
            };
            let slope = (8.0 * (at(1e-3)? - at(-1e-3)?) - (at(2e-3)? - at(-2e-3)?)) / 12e-3;
            assert!((got[side][index] - slope).abs() < 1e-8);
        }
    }
    Ok(())
}

#[test]
fn items_are_independent_of_each_other_and_of_threads() -> Result {
    let case = Case::new((4, 0, 0))?;
    let (batch, channels) = (37, 29);
    let x: Vec<f32> = numbers(1, 6 * batch * channels)
        .iter()
        .map(|&x| x as f32)
        .collect();
    let run = |ceiling| -> Result<Vec<f32>> {
        let mut out = vec![f32::NAN; 8 * batch * channels];
        threads::at_most(ceiling, || {
            let x = Tensor::new(&x, &[6, batch, channels])?;
            case.rotors.map(
                RotorMap::Exp,
                x,
                TensorMut::new(&mut out, &[8, batch, channels])?,
            )
        })?;
        Ok(out)
    };
    let out = run(1)?;
    assert_eq!(out, run(2)?);
    for item in [0, 500, batch * channels - 1] {
        let own: Vec<f64> = x
            .iter()
            .skip(item)
            .step_by(batch * channels)
            .map(|&x| x.into())
            .collect();
        let own = case.map(RotorMap::Exp, &own)?;
        let found = out.iter().skip(item).step_by(batch * channels);
        assert!(found.zip(own).all(|(&found, own)| found == own as f32));
    }
    Ok(())
}

#[test]
fn errors_say_what_was_expected() -> Result {
    let six = Algebra::new(Signature::new(6, 0, 0)?)?;
    let error = Rotors::new(six).unwrap_err();
    assert!(matches!(
        error,
        Error::TooManyDimensions { expected: 5, .. }
    ));
    assert!(
        error.to_string().contains("at most 5 dimensions"),
        "{error}"
    );
    let case = Case::new((3, 0, 0))?;
    assert_eq!(case.algebra.dim(), 3);
    let (x, mut out) = ([0.0_f32; 6], [0.0_f32; 8]);
    let x = Tensor::new(&x, &[3, 1, 2])?;
    let error = case
        .rotors
        .map(RotorMap::Exp, x, TensorMut::new(&mut out, &[4, 2, 1])?)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "exp: tensor `out` must be [4, 1, 2], got [4, 2, 1]"
    );
    let error = case
        .rotors
        .map(RotorMap::Log, x, TensorMut::new(&mut out, &[4, 1, 2])?)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "log: tensor `x` must be [4, batch, channels], got [3, 1, 2]"
    );
    Ok(())
}
