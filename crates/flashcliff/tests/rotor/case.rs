//! Rotors of one item, and an oracle of plain loops.

#![allow(unreachable_pub, reason = "the file is a module of one test")]

use flashcliff::rotor::{RotorMap, Rotors};
use flashcliff::{Algebra, Signature, Tensor, TensorMut};

use super::Result;

/// All signatures of 1 to 5 dimensions.
pub fn signatures() -> impl Iterator<Item = (usize, usize, usize)> {
    (1..=5_usize)
        .flat_map(|n| (0..=n).flat_map(move |p| (0..=n - p).map(move |q| (p, q, n - p - q))))
}

/// An algebra, with products that share no code with the library.
pub struct Case {
    pub algebra: Algebra,
    pub rotors: Rotors,
    /// The vectors of each blade as bits, and their squares: the oracle has its own signs.
    pub bits: Vec<u32>,
    pub squares: Vec<f64>,
    pub bivectors: Vec<usize>,
    pub even: Vec<usize>,
    pub odd: Vec<usize>,
}

impl Case {
    pub fn new((p, q, r): (usize, usize, usize)) -> Result<Self> {
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
            odd: blades(&|grade| grade % 2 == 1),
            bits,
        })
    }

    pub fn multiply(&self, x: &[f64], y: &[f64]) -> Vec<f64> {
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
    pub fn exponential(&self, b: &[f64]) -> Vec<f64> {
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

    pub fn whole(&self, blades: &[usize], x: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; self.bits.len()];
        for (&blade, &value) in blades.iter().zip(x) {
            result[blade] = value;
        }
        result
    }

    pub fn product(&self, x: &[f64], y: &[f64]) -> Vec<f64> {
        let result = self.multiply(&self.whole(&self.even, x), &self.whole(&self.even, y));
        self.even.iter().map(|&blade| result[blade]).collect()
    }

    /// A map of one item.
    pub fn map(&self, map: RotorMap, x: &[f64]) -> Result<Vec<f64>> {
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

    pub fn random(&self, scale: f64, seed: u64) -> Vec<f64> {
        numbers(seed, self.bivectors.len())
            .iter()
            .map(|x| x * scale)
            .collect()
    }
}

/// Numbers between -1 and 1.
pub fn numbers(mut seed: u64, len: usize) -> Vec<f64> {
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
pub fn close(got: &[f64], wanted: &[f64], tolerance: f64) {
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

/// The slope of a function at 0, by differences of fourth order.
pub fn slope(mut at: impl FnMut(f64) -> Result<f64>) -> Result<f64> {
    let step = 1e-3;
    let near = at(step)? - at(-step)?;
    Ok((8.0 * near - (at(2.0 * step)? - at(-2.0 * step)?)) / (12.0 * step))
}

/// The sum of products.
pub fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}
