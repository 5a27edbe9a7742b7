//! Operators of programs that users write.

use flashcliff_program::ir;
use flashcliff_program::plan::Refusal;

use super::{Kind, LaneOperator, Operator};
use crate::kept::Kept;
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
    /// and sums over the batch `[channels, count]`. An operator with several is called by [`Self::run`].
    ///
    /// A program that the build has kernels of, or that a [build script](crate::program#compiled-ahead) compiled,
    /// runs on them, whatever its names. All others are interpreted on the CPU. On CUDA they are compiled at the
    /// first call, with the feature `jit`.
    ///
    /// `algebra` is the one that the operator names in messages and answers [`Self::algebra`] with; the program says by
    /// itself what is computed.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for an `eps` that is negative or not finite.
    ///
    /// [`Error::UnsupportedProgram`] for a program that refers to what it does not declare, without a result, with an
    /// empty tensor, with an expression of channels and scalar channels, with sums over the batch that are not zero
    /// where all inputs are, or with more tensors than kernels have room for.
    pub fn of(
        algebra: Algebra,
        program: &ir::Program,
        options: &ProgramOptions,
    ) -> Result<Self, Error> {
        check_number("eps", options.eps)?;
        check(program)?;
        let known = Known::of(program.clone(), algebra.takes_kernels());
        let lane = LaneOperator::of(known)
            .with_gate(options.gate)
            .with_eps(options.eps);
        Ok(Self::new(&known.source().name, algebra, Kind::Lanes(lane)))
    }
}

/// The programs that kernels have room for.
static WITH_ROOM: Kept<ir::Digest> = Kept::new();

/// Checks that a program is an operator. Whether there is room is asked once: that derives the adjoint, and networks
/// make the same operators many times.
fn check(program: &ir::Program) -> Result<(), Error> {
    let refused = |refusal: Refusal| Error::UnsupportedProgram {
        reason: refusal.to_string(),
    };
    program.check_statement().map_err(refused)?;
    let digest = program.digest();
    if !WITH_ROOM.iter().any(|known| *known == digest) {
        program.check_room().map_err(refused)?;
        WITH_ROOM.add(digest);
    }
    Ok(())
}
