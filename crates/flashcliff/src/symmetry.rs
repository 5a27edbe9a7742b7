//! The transformations that each operator commutes with.

mod carried;
mod draws;
mod measured;
#[rustfmt::skip]
mod rows;
mod versors;

use crate::operator::{Implementation, Operator, each};
use crate::{Bias, Norm};

pub use flashcliff_operators::Symmetry;
pub use rows::SYMMETRIES;

/// Operators that commute with the same transformations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymmetryRow {
    /// The names of the operators.
    pub operators: &'static [&'static str],
    /// The option that these operators have, if the row is for one.
    pub option: Option<&'static str>,
    /// The symmetry where all vectors square to one sign.
    pub definite: Symmetry,
    /// The symmetry in all other algebras.
    pub otherwise: Symmetry,
}

impl SymmetryRow {
    /// The symmetry in an algebra.
    pub fn of(&self, algebra: &cayley::Algebra) -> Symmetry {
        match algebra.has_euclidean_norms() {
            true => self.definite,
            false => self.otherwise,
        }
    }
}

const BIAS: &str = "bias every_blade";
const RMS: &str = "norm rms";

impl Operator {
    /// The transformations that the operator commutes with, for its algebra and options, as [`SYMMETRIES`] states it: none for an
    /// operator that has no row there. [`Self::measured_symmetry`] answers for custom operators.
    pub fn symmetry(&self) -> Symmetry {
        let options = self.breaking_options();
        let own = |row: &&SymmetryRow| {
            row.operators.contains(&self.name())
                && row.option.is_none_or(|option| options.contains(&option))
        };
        // Rows of options that break more symmetries come later.
        let row = SYMMETRIES.iter().rev().find(own);
        row.map_or(Symmetry::None, |row| row.of(self.algebra().cayley()))
    }

    /// The options of this operator that have their own rows.
    fn breaking_options(&self) -> Vec<&'static str> {
        // Derivatives have their own names, and no row.
        let (norm, bias) = each!(self.kind(), of => (of.norm(), of.bias()));
        let norm = (norm == Norm::Rms).then_some(RMS);
        let bias = (bias == Bias::EveryBlade).then_some(BIAS);
        norm.into_iter().chain(bias).collect()
    }
}
