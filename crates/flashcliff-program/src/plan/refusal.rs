//! Refusals: why a program is not an operator. The library asks when it makes an operator, and a build script before it compiles one.

use std::fmt;

use super::{Excess, Limits, plan_for_cpu};
use crate::ir::{Flaw, Program, differentiate};

/// The reason why a program is not an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Something refers to what the program does not declare.
    Flawed(Flaw),
    /// The tensors do not fit an operator.
    Form {
        /// The name of the program.
        program: String,
        /// What was expected, and what came.
        reason: String,
    },
    /// The program or its adjoint has more tensors or sums than kernels have room for.
    TooLarge(Excess),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flawed(flaw) => flaw.fmt(f),
            Self::Form { program, reason } => write!(f, "the program `{program}`: {reason}"),
            Self::TooLarge(excess) => write!(
                f,
                "{excess}: split the program, or join tensors into one with more components"
            ),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Flawed(flaw) => Some(flaw),
            Self::TooLarge(excess) => Some(excess),
            Self::Form { .. } => None,
        }
    }
}

impl Program {
    /// Checks that the program is an operator: it is valid, has tensors with components, and kernels for CPUs have room for it and for its
    /// adjoint.
    ///
    /// # Errors
    /// The first reason why it is none.
    pub fn check_operator(&self) -> Result<(), Refusal> {
        self.check_statement()?;
        self.check_room()
    }

    /// The part of [`Self::check_operator`] that reads the program alone.
    ///
    /// # Errors
    /// The first reason why it is none.
    pub fn check_statement(&self) -> Result<(), Refusal> {
        self.validate().map_err(Refusal::Flawed)?;
        self.check_form().map_err(|reason| Refusal::Form {
            program: self.name.clone(),
            reason,
        })
    }

    /// The part of [`Self::check_operator`] that derives the adjoint: kernels have room for both. Programs of one
    /// [digest](Self::digest) have the same answer.
    ///
    /// # Errors
    /// What there is no room for.
    pub fn check_room(&self) -> Result<(), Refusal> {
        for pass in [self, &differentiate(self)] {
            let (pass, plan) = plan_for_cpu(pass);
            let room = Limits::CPU.check(&pass, &plan);
            room.map_err(Refusal::TooLarge)?;
        }
        Ok(())
    }

    /// The reason why the program lacks the tensors of an operator.
    fn check_form(&self) -> Result<(), String> {
        let fault = if self.results.is_empty() {
            "expected at least one output, got none"
        } else if self.saved_row_sums > 0 {
            "expected a program that saves no sums, got one with saved sums"
        } else if self.vanishes_from().is_none() {
            "expected sums over the batch that are zero where all inputs are, got others"
        } else if let Some(name) = self.empty_tensor() {
            return Err(format!(
                "expected tensors with components, and `{name}` has none"
            ));
        } else if self.inputs.is_empty() {
            "expected at least one multivector among the inputs, got none"
        } else {
            return Ok(());
        };
        Err(fault.to_owned())
    }

    /// The name of the first tensor without components.
    fn empty_tensor(&self) -> Option<&str> {
        let inputs = self.inputs.iter();
        let inputs = inputs.map(|input| (&input.name, input.components.len()));
        let params = self.params.iter();
        let params = params.map(|param| (&param.name, param.count));
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|output| (&output.tensor.name, output.values.len()));
        let sums = self.sums.iter();
        let sums = sums.map(|sum| (&sum.tensor.name, sum.values.len()));
        let mut tensors = inputs.chain(params).chain(outputs).chain(sums);
        let found = tensors.find(|(_, count)| *count == 0);
        found.map(|(name, _)| name.as_str())
    }
}
