//! Which tensors of a stage lie in scratch memory, vector by vector.

use super::{Source, Stage, Target};
use crate::ir::Program;

/// How many values a channel has in each packed tensor of a stage: cuts, parameters and gradients of
/// parameters, which are scratch memory. `None` for inputs and outputs, which lie as the caller has
/// them.
#[derive(Debug)]
pub struct Packing {
    /// The tensors that it reads.
    pub sources: Vec<Option<usize>>,
    /// The tensors that it writes.
    pub targets: Vec<Option<usize>>,
    /// The parameters that it reads.
    pub params: Vec<Option<usize>>,
    /// The gradients of parameters to which it adds.
    pub grads: Vec<Option<usize>>,
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
        let count = |&param: &usize| Some(program.params[param].count);
        Self {
            sources: sources.collect(),
            targets: targets.collect(),
            params: stage.params.iter().map(count).collect(),
            grads: stage.param_grads.iter().map(count).collect(),
        }
    }
}
