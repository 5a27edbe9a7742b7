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

/// A map. Versors have the blades of even grades (parity 0) or those of odd grades (parity 1).
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
    /// `a exp(t log(reverse(a) b))` of versors `a`, `b` of a parity, and a number `t`.
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
            Self::Interpolate(_) => "interpolate",
        }
    }

    fn formula(self) -> &'static str {
        match self {
            Self::Exp => "o = exp(x)",
            Self::Log => "o = log(x)",
            Self::Inverse(_) => "o = reverse(x) (x reverse(x))^(-1)",
            Self::Normalized(_) => "o = (x reverse(x))^(-1/2) x",
            Self::Interpolate(_) => "o = a exp(t log(reverse(a) b))",
        }
    }

    /// The blades of what the map reads, `t` apart, and of what it writes.
    pub fn blades(self, algebra: &Algebra) -> [Vec<usize>; 2] {
        let of = |wanted: &dyn Fn(usize) -> bool| -> Vec<usize> {
            let all = 0..algebra.blade_count();
            all.filter(|&blade| wanted(algebra.grade_of(blade)))
                .collect()
        };
        let versors = |parity: usize| of(&|grade| grade % 2 == parity);
        let bivectors = || of(&|grade| grade == 2);
        match self {
            Self::Exp => [bivectors(), versors(0)],
            Self::Log => [versors(0), bivectors()],
            Self::Inverse(parity) | Self::Normalized(parity) | Self::Interpolate(parity) => {
                [versors(parity), versors(parity)]
            }
        }
    }

    /// The program of the map in an algebra of at most [`LARGEST_DIM`] dimensions; `None` if one of its tensors would have no blades. It is made
    /// for 64-bit numbers.
    pub fn program(self, algebra: &Algebra) -> Option<Program> {
        let [reads, writes] = self.blades(algebra);
        if reads.is_empty() || writes.is_empty() || algebra.dim() > LARGEST_DIM {
            return None;
        }
        let names = |blades: &[usize]| -> Vec<String> {
            let blades = blades.iter();
            blades.map(|&blade| algebra.blade_name(blade)).collect()
        };
        let mut p = Program::new(self.name(), self.formula());
        let read = |p: &mut Program, name: &str| -> Parts {
            let values = p.input(name, names(&reads));
            reads.iter().copied().zip(values).collect()
        };
        let inputs = match self {
            Self::Interpolate(_) => vec![read(&mut p, "a"), read(&mut p, "b")],
            _ => vec![read(&mut p, "x")],
        };
        let t = match self {
            Self::Interpolate(_) => Some(p.input("t", vec!["t".to_owned()])[0]),
            _ => None,
        };
        let result = Builder::new(&mut p.graph, algebra).map(self, &inputs, t);
        let zero = p.graph.constant(0.0);
        let value = |blade: &usize| result.get(blade).copied().unwrap_or(zero);
        let values: Vec<Id> = writes.iter().map(value).collect();
        p.output("o", names(&writes), values);
        Some(p)
    }
}
