//! Operators of the programs of steps, some of which the build script compiled.

use std::sync::Arc;

use flashcliff::program::Program;
use flashcliff::{Algebra, Gate, Operator, ProgramOptions};

use super::programs::lean;
use crate::Error;

/// What the build script wrote.
#[cfg(feature = "compiled")]
mod ahead {
    include!(concat!(env!("OUT_DIR"), "/programs.rs"));
}

/// Lets operators that are made from now on find the kernels of steps.
fn register() {
    #[cfg(feature = "compiled")]
    ahead::register();
}

/// The operator, which may come from a host or a file, with the kernels that there are for its program.
pub(super) fn with_kernels(operator: Arc<Operator>) -> Result<Arc<Operator>, Error> {
    register();
    match (
        operator.recipe(),
        operator.program(),
        operator.program_options(),
    ) {
        (None, Some(program), Some(options)) => {
            let found = Operator::of(operator.algebra(), &lean(program), &options)?;
            Ok(Arc::new(found.with_tier(operator.tier())?))
        }
        _ => Ok(operator),
    }
}

/// The operator of a program, whose gate is the normal distribution function.
pub(super) fn operator(algebra: Algebra, program: &Program) -> Result<Operator, Error> {
    let options = ProgramOptions {
        gate: Gate::Gelu,
        ..ProgramOptions::default()
    };
    Ok(Operator::of(algebra, program, &options)?)
}

#[cfg(all(test, feature = "compiled"))]
mod tests;
