//! Operators of the programs of steps, some of which the build script compiled.

use flashcliff::program::Program;
use flashcliff::{Algebra, Gate, Operator, ProgramOptions};

use crate::Error;

/// What the build script wrote.
#[cfg(feature = "compiled")]
mod ahead {
    include!(concat!(env!("OUT_DIR"), "/programs.rs"));
}

/// Lets operators that are made from now on find the kernels of steps.
pub(crate) fn register() {
    #[cfg(feature = "compiled")]
    ahead::register();
}

/// The operator of a program, whose gate is the normal distribution function.
pub(super) fn operator(algebra: Algebra, program: &Program) -> Result<Operator, Error> {
    register();
    let options = ProgramOptions {
        gate: Gate::Gelu,
        ..ProgramOptions::default()
    };
    Ok(Operator::of(algebra, program, &options)?)
}
