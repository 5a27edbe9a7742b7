//! The sandwich as a quadratic form of the versor, for each pair of blades.

use std::collections::BTreeMap;

use cayley::{Algebra, GradeSet, ProductKind};

use crate::rotor::BLADES;

/// A term `factor V_first V_second` of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    first: usize,
    second: usize,
    factor: f64,
}

/// The part of `V x reverse(V)` that takes one blade to another.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The blade of the result, counted among the blades of the multivectors.
    pub(super) output: usize,
    /// The blade of `x`, counted alike.
    pub(super) input: usize,
    /// Blades are counted among the blades of the versor.
    pub(super) terms: Vec<Term>,
}

impl Pair {
    /// The number that takes the one blade to the other.
    pub(super) fn entry(&self, versor: impl Fn(usize) -> f64) -> f64 {
        let terms = self.terms.iter();
        terms
            .map(|term| term.factor * versor(term.first) * versor(term.second))
            .sum()
    }

    /// Adds the gradient of the versor for the gradient of the entry.
    pub(super) fn pull_back(
        &self,
        versor: impl Fn(usize) -> f64,
        slope: f64,
        total: &mut [f64; BLADES],
    ) {
        for term in &self.terms {
            let slope = term.factor * slope;
            total[term.first] += slope * versor(term.second);
            total[term.second] += slope * versor(term.first);
        }
    }
}

/// All pairs that some versor connects, in order of the output and the input.
pub(super) fn pairs(algebra: &Algebra, versors: GradeSet, kept: GradeSet) -> Vec<Pair> {
    let count = algebra.blade_count();
    let mut products = vec![(0, 0_i8); count * count];
    for term in algebra.product(ProductKind::Geometric) {
        products[term.left * count + term.right] = (term.output, term.sign);
    }
    let blades = |grades: GradeSet| -> Vec<usize> {
        let all = 0..count;
        all.filter(|&blade| grades.contains(algebra.grade_of(blade)))
            .collect()
    };
    let (own, kept) = (blades(versors), blades(kept));
    let mut factors: BTreeMap<[usize; 4], i32> = BTreeMap::new();
    for (input, &blade) in kept.iter().enumerate() {
        for (e, &left) in own.iter().enumerate() {
            let (half, sign) = products[left * count + blade];
            for (f, &right) in own.iter().enumerate() {
                let (whole, other) = products[half * count + right];
                let factor = sign * other * algebra.reverse_sign(right);
                let Some(output) = kept.iter().position(|&b| b == whole) else {
                    continue;
                };
                if factor != 0 {
                    let key = [output, input, e.min(f), e.max(f)];
                    *factors.entry(key).or_default() += i32::from(factor);
                }
            }
        }
    }
    let mut pairs: Vec<Pair> = Vec::new();
    for ([output, input, first, second], factor) in factors {
        if factor == 0 {
            continue;
        }
        let term = Term {
            first,
            second,
            factor: f64::from(factor),
        };
        match pairs.last_mut() {
            Some(pair) if (pair.output, pair.input) == (output, input) => pair.terms.push(term),
            _ => pairs.push(Pair {
                output,
                input,
                terms: vec![term],
            }),
        }
    }
    pairs
}
