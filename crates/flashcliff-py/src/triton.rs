//! Operators as text of Triton kernels.

use codegen::emit::triton::{self, Options};
use flashcliff::Operator;

/// A kernel for rows of several blocks: the name, the width of its lanes, whether an instance has one block.
type Part = (String, usize, bool);

/// The text, the kernels for rows of several blocks, how many numbers these keep for each row, and those whose sum each total is.
pub(crate) type Source = (String, Vec<Part>, usize, Vec<Vec<usize>>);

/// The kernels of an operator that is one program.
pub(crate) fn source(operator: &Operator) -> Option<Source> {
    let (program, options) = (operator.program()?, operator.program_options()?);
    let source = triton::emit(
        program,
        &Options {
            gate: options.gate.name(),
            eps: options.eps,
        },
    );
    let parts = source.split.into_iter();
    let parts = parts.map(|part| (part.name, part.width.index(), part.is_of_block));
    Some((source.text, parts.collect(), source.numbers, source.totals))
}
