//! The references of operators in f64, one batch element at a time. They stand in the files of the operators.

use cayley::Algebra;
use flashcliff_program::operators::{self, Entry, Settings};
use flashcliff_program::reference::{self, Basis};

use crate::Error;

/// The reference of an operator in an algebra.
#[derive(Debug)]
pub(crate) struct Formula {
    entry: &'static Entry,
    settings: Settings,
    basis: Basis,
}

impl Formula {
    /// The reference of an operator of the table, with the defaults of its options.
    ///
    /// # Errors
    /// [`Error::NoFormula`].
    pub(crate) fn new(operator: &'static str, algebra: &Algebra) -> Result<Self, Error> {
        let entry = operators::find(operator).ok_or(Error::NoFormula { operator })?;
        Ok(Self {
            entry,
            settings: Settings::of(&entry.row),
            basis: Basis::new(algebra.signature()),
        })
    }

    /// The output `[components, to]` of one batch element. Multivectors are `[blades, from]`; parameters have the layout of the operator.
    pub(crate) fn row(&self, inputs: &[Vec<f64>], from: usize, to: usize) -> Vec<f64> {
        reference::evaluate(
            self.entry,
            &self.settings,
            &self.basis,
            [1, from, to],
            inputs,
        )
    }
}

#[cfg(test)]
mod tests {
    use cayley::Signature;
    use flashcliff::ops::TABLE;

    use super::*;

    #[test]
    fn every_operator_of_the_table_has_a_formula() {
        let algebra = Algebra::new(Signature::of(2, 0, 0));
        for operator in TABLE {
            Formula::new(operator.name, &algebra).unwrap();
        }
        let error = Formula::new("nothing", &algebra).unwrap_err();
        assert!(error.to_string().contains("nothing: expected a formula"));
    }
}
