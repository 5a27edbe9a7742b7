//! Expression graphs of the operators of an algebra, and their costs.

use cayley::{Algebra, GradeSet};
use codegen::emit::dot;
use flashcliff_program::ir::{Cost, Program, cost, differentiate};
use flashcliff_program::spec;

use crate::error::Error;

/// The cost of one operator per lane (one channel of one batch element).
#[derive(Clone, Debug)]
pub(super) struct OperatorCost {
    pub(super) name: String,
    pub(super) forward: Cost,
    pub(super) backward: Cost,
}

/// The costs of the operators on full multivectors.
pub(super) fn costs(algebra: &Algebra) -> Vec<OperatorCost> {
    programs(algebra)
        .iter()
        .map(|program| OperatorCost {
            name: program.name.clone(),
            forward: cost(program),
            backward: cost(&differentiate(program)),
        })
        .collect()
}

/// The graph of an operator on full multivectors, or of its gradient.
///
/// # Errors
/// [`Error::UnknownOperator`].
pub(super) fn dot(algebra: &Algebra, name: &str, grad: bool) -> Result<String, Error> {
    let programs = programs(algebra);
    let Some(program) = programs.iter().find(|program| program.name == name) else {
        let names: Vec<&str> = programs
            .iter()
            .map(|program| program.name.as_str())
            .collect();
        return Err(Error::UnknownOperator {
            expected: names.join(", "),
            got: name.to_owned(),
        });
    };
    Ok(match grad {
        true => dot::emit(&differentiate(program)),
        false => dot::emit(program),
    })
}

/// The operators that users call, on full multivectors.
fn programs(algebra: &Algebra) -> Vec<Program> {
    let full = GradeSet::full(algebra.dim());
    // These are pieces of the fully connected product, not separate operators.
    let pieces = ["gate_pair", "path_product", "undo_grade_rms"];
    spec::operators(algebra)
        .into_iter()
        .filter(|operator| operator.left == full && operator.right == full)
        .map(|operator| operator.program)
        .filter(|program| !pieces.contains(&program.name.as_str()))
        .collect()
}
