//! The maps between bivectors and versors, as programs, for algebras of at most five dimensions with any signature.
//!
//! * `maps` - exponentials, logarithms, inverses, normalised versors, interpolation.
//! * `ring` - functions of a scalar and a 4-vector.
//! * `parts` - multivectors blade by blade, and their products.
//! * `choice` - values where a condition holds.
//!
//! A program has no branches: it computes every formula and chooses. A formula that does not hold for an item runs on numbers that it can
//! take, so that no derivative of the ones that hold is lost to an infinity. An item without a result, such as the inverse of zero, is NaN;
//! its gradient is zero, whatever the gradient of the result is.

mod choice;
mod maps;
mod parts;
mod ring;

use cayley::Algebra;

use crate::ir::{Id, Program};
use maps::Builder;
use parts::Parts;

/// The largest number of dimensions. From six on the square of a bivector generates a larger ring.
pub const LARGEST_DIM: usize = 5;

/// A map. Versors have the blades of even grades (parity 0) or of odd grades (parity 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// `exp(B)`, from bivectors to even versors.
    Exp,
    /// The logarithm, from even versors to bivectors.
    Log,
    /// The inverse of versors of a parity.
    Inverse(usize),
    /// The normalised versor of a parity.
    Normalized(usize),
    /// `log(reverse(a) b)` of normalised versors `a`, `b` of a parity, with `-b` in place of `b` if that is nearer.
    Between(usize),
    /// `a exp(t B)` of a versor `a` of a parity, a number `t`, and a bivector `B`.
    Along(usize),
    /// [`Self::Along`] of [`Self::Between`], of versors that are normalised first: `a exp(t log(reverse(a) b))`.
    Interpolate(usize),
}

impl Map {
    /// The name of the map.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Inverse(_) => "inverse",
            Self::Normalized(_) => "normalized",
            Self::Between(_) => "between",
            Self::Along(_) => "along",
            Self::Interpolate(_) => "interpolate",
        }
    }

    fn formula(self) -> &'static str {
        match self {
            Self::Exp => "o = exp(x)",
            Self::Log => "o = log(x)",
            Self::Inverse(_) => "o = reverse(x) (x reverse(x))^(-1)",
            Self::Normalized(_) => "o = (x reverse(x))^(-1/2) x",
            Self::Between(_) => "o = log(reverse(a) b)",
            Self::Along(_) => "o = a exp(t B)",
            Self::Interpolate(_) => "o = a exp(t log(reverse(a) b))",
        }
    }

    /// The blades of versors of a parity.
    pub fn versors(algebra: &Algebra, parity: usize) -> Vec<usize> {
        blades(algebra, |grade| grade % 2 == parity)
    }

    /// What the map reads, by name, with its blades. A number has the one of scalars.
    pub fn reads(self, algebra: &Algebra) -> Vec<(&'static str, Vec<usize>)> {
        let versors = |parity| Self::versors(algebra, parity);
        let bivectors = || blades(algebra, |grade| grade == 2);
        match self {
            Self::Exp => vec![("x", bivectors())],
            Self::Log => vec![("x", versors(0))],
            Self::Inverse(parity) | Self::Normalized(parity) => vec![("x", versors(parity))],
            Self::Between(parity) => vec![("a", versors(parity)), ("b", versors(parity))],
            Self::Along(parity) => vec![("a", versors(parity)), ("t", vec![0]), ("B", bivectors())],
            Self::Interpolate(parity) => {
                vec![
                    ("a", versors(parity)),
                    ("b", versors(parity)),
                    ("t", vec![0]),
                ]
            }
        }
    }

    /// The blades of what the map writes.
    pub fn writes(self, algebra: &Algebra) -> Vec<usize> {
        match self {
            Self::Exp => Self::versors(algebra, 0),
            Self::Log | Self::Between(_) => blades(algebra, |grade| grade == 2),
            Self::Inverse(parity)
            | Self::Normalized(parity)
            | Self::Along(parity)
            | Self::Interpolate(parity) => Self::versors(algebra, parity),
        }
    }

    /// The program of the map in an algebra of at most [`LARGEST_DIM`] dimensions; `None` if one of its tensors would
    /// have no blades. It is made for 64-bit numbers.
    pub fn program(self, algebra: &Algebra) -> Option<Program> {
        let (reads, writes) = (self.reads(algebra), self.writes(algebra));
        let is_empty = reads.iter().any(|(_, blades)| blades.is_empty()) || writes.is_empty();
        if is_empty || algebra.dim() > LARGEST_DIM {
            return None;
        }
        let names = |blades: &[usize]| -> Vec<String> {
            let blades = blades.iter();
            blades.map(|&blade| algebra.blade_name(blade)).collect()
        };
        let mut p = Program::new(self.name(), self.formula());
        let mut inputs: Vec<Parts> = Vec::new();
        for (name, blades) in reads {
            let values = p.input(name, names(&blades));
            inputs.push(blades.into_iter().zip(values).collect());
        }
        let result = Builder::new(&mut p.graph, algebra).map(self, &inputs);
        let zero = p.graph.constant(0.0);
        let value = |blade: &usize| result.get(blade).copied().unwrap_or(zero);
        let values: Vec<Id> = writes.iter().map(value).collect();
        p.output("o", names(&writes), values);
        Some(p)
    }
}

/// The blades of some grades.
fn blades(algebra: &Algebra, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
    let all = 0..algebra.blade_count();
    all.filter(|&blade| wanted(algebra.grade_of(blade)))
        .collect()
}
