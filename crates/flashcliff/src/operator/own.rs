//! Operators of programs that users write.

use flashcliff_program::ir::{self, differentiate};
use flashcliff_program::plan::{Limits, plan_for_cpu};

use super::{Kind, LaneOperator, Operator};
use crate::ops::make::check_number;
use crate::programs::Known;
use crate::{Algebra, Error, Gate};

/// Options of the operator of a program: the values of a call that the program leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgramOptions {
    /// The function that `Function::Gate` stands for; by default [`Gate::None`], for which gates are 1.
    pub gate: Gate,
    /// The number that `Uniform::Eps` stands for; by default 1e-6.
    pub eps: f64,
}

impl Default for ProgramOptions {
    fn default() -> Self {
        Self {
            gate: Gate::None,
            eps: 1e-6,
        }
    }
}

impl Operator {
    /// The operator that a [program](crate::program) states. Its gradient is derived.
    ///
    /// Inputs and parameters are the program's arguments, in the order in which it declares them: multivectors
    /// `[components, batch, channels]`, and parameters `[channels, count]`. The results are the program's, in that order too: multivectors,
    /// and sums over the batch `[channels, count]`. An operator with several is called by [`Self::run`]. A program
    /// that the build has kernels of, whatever its names, runs on them; all others are interpreted on the CPU, and compiled
    /// on CUDA at the first call, with the feature `jit`.
    ///
    /// `algebra` is the one that the operator names in messages and answers [`Self::algebra`] with; the program says by
    /// itself what is computed.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for an `eps` that is negative or not finite.
    ///
    /// [`Error::UnsupportedProgram`] for a program that refers to what it does not declare, without a result, with an empty tensor, with
    /// sums over the batch that are not zero where all inputs are, or with more tensors than kernels have room for.
    pub fn of(
        algebra: Algebra,
        program: &ir::Program,
        options: &ProgramOptions,
    ) -> Result<Self, Error> {
        check_number("eps", options.eps)?;
        check(program).map_err(|reason| Error::UnsupportedProgram { reason })?;
        let known = Known::of(program.clone(), algebra.is_compiled());
        let lane = LaneOperator::of(known)
            .with_gate(options.gate)
            .with_eps(options.eps);
        Ok(Self::new(&known.source().name, algebra, Kind::Lanes(lane)))
    }
}

/// The reason why a program is no operator.
fn check(program: &ir::Program) -> Result<(), String> {
    program.validate().map_err(|flaw| flaw.to_string())?;
    let told = |reason: String| format!("the program `{}`: {reason}", program.name);
    check_form(program).map_err(told)?;
    for pass in [program, &differentiate(program)] {
        let (pass, plan) = plan_for_cpu(pass);
        let room = Limits::CPU.check(&pass, &plan);
        room.map_err(|excess| excess.to_string())?;
    }
    Ok(())
}

/// The reason why a program has not the tensors of an operator.
fn check_form(program: &ir::Program) -> Result<(), String> {
    if program.results.is_empty() {
        return Err("expected at least one output, got none".to_owned());
    }
    if program.saved_row_sums > 0 {
        return Err("expected a program that saves no sums, got one with saved sums".to_owned());
    }
    if program.vanishes_from().is_none() {
        return Err(
            "expected sums over the batch that are zero where all inputs are, got others"
                .to_owned(),
        );
    }
    let inputs = program
        .inputs
        .iter()
        .map(|input| (&input.name, input.components.len()));
    let params = program
        .params
        .iter()
        .map(|param| (&param.name, param.count));
    let outputs = program.outputs.iter();
    let outputs = outputs.map(|output| (&output.tensor.name, output.values.len()));
    let sums = program.sums.iter();
    let sums = sums.map(|sum| (&sum.tensor.name, sum.values.len()));
    if let Some((name, _)) = inputs
        .chain(params)
        .chain(outputs)
        .chain(sums)
        .find(|(_, count)| *count == 0)
    {
        return Err(format!(
            "expected tensors with components, and `{name}` has none"
        ));
    }
    if program.inputs.is_empty() {
        return Err("expected at least one multivector among the inputs, got none".to_owned());
    }
    Ok(())
}
