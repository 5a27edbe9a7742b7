//! The tensors of a stage that lie in scratch memory, vector by vector.

use super::{Source, Stage, Target};
use crate::ir::Program;

/// The number of values that a channel has in each packed tensor of a stage. Packed tensors are cuts, parameters and
/// sums over the batch, which lie in scratch memory. `None` is for inputs and outputs, which have the layout of the
/// caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packing {
    /// The tensors that the stage reads.
    pub sources: Vec<Option<usize>>,
    /// The tensors that the stage writes.
    pub targets: Vec<Option<usize>>,
    /// The parameters that the stage reads.
    pub params: Vec<Option<usize>>,
    /// The sums over the batch to which the stage adds.
    pub sums: Vec<Option<usize>>,
}

impl Packing {
    /// The packing of a stage of a program.
    pub fn of(program: &Program, stage: &Stage) -> Self {
        let sources = stage.sources.iter().map(|source| match *source {
            Source::Input(_) => None,
            Source::Cut(cut) => Some(program.cuts[cut].len()),
        });
        let targets = stage.targets.iter().map(|target| match *target {
            Target::Output(_) => None,
            Target::Cut(cut) => Some(program.cuts[cut].len()),
        });
        let param = |&param: &usize| Some(program.params[param].count);
        let sum = |&sum: &usize| Some(program.sums[sum].values.len());
        Self {
            sources: sources.collect(),
            targets: targets.collect(),
            params: stage.params.iter().map(param).collect(),
            sums: stage.sums.iter().map(sum).collect(),
        }
    }
}
