//! Derivatives as separate programs, which save nothing and are differentiated again.

use super::differentiate::differentiate;
use super::program::{Argument, Program, Returned};

/// The gradient of a program as a function of its arguments and the gradients of its results: the
/// [adjoint](differentiate()), which computes every row sum itself.
pub fn gradient(program: &Program) -> Program {
    let mut gradient = differentiate(&all_sums_computed(program));
    gradient.saved_row_sums = 0;
    gradient.with_sums_at_once()
}

/// The directional derivative of a program (forward mode): from its arguments, and a tangent for each of them, to the tangents of its
/// results. Tangents are named `tangent_` and the name of what they belong to.
pub fn tangent(program: &Program) -> Program {
    tangent_along(program, &vec![true; program.arguments.len()])
}

/// The directional derivative along changes of some arguments alone: there are tangents for those for which `along` is true.
///
/// The gradient is linear in the gradients of the results. The gradient with respect to these is the transpose of a transpose, which is
/// the directional derivative.
pub fn tangent_along(program: &Program, along: &[bool]) -> Program {
    let all = gradient(program);
    let changed = all.results.iter().zip(along);
    let changed: Vec<Returned> = changed
        .filter(|(_, own)| **own)
        .map(|(own, _)| *own)
        .collect();
    let first = all.rebuilt(|result| changed.contains(&result), |_, _| None);
    let mut second = gradient(&first);
    let (arguments, results) = (program.arguments.len(), program.results.len());
    // The arguments of `second`: the arguments of the program, gradients of its results, tangents of its arguments.
    let seeds = second.arguments[arguments..arguments + results].to_vec();
    let tangents = second.arguments[arguments + results..].to_vec();
    let changed = program.arguments.iter().zip(along);
    let changed = changed.filter(|(_, own)| **own).map(|(own, _)| own);
    for (&tangent, &argument) in tangents.iter().zip(changed) {
        let name = match argument {
            Argument::Input(at) => &program.inputs[at].name,
            Argument::Param(at) => &program.params[at].name,
            Argument::RowValue(at) => &program.row_values[at],
        };
        *name_of(&mut second, tangent) = format!("tangent_{name}");
    }
    let kept = second.results[arguments..].to_vec();
    let mut tangent = second.rebuilt(|result| kept.contains(&result), |_, _| None);
    tangent.name = format!("{}_tangent", program.name);
    tangent.formula = format!("tangent of {}", program.formula);
    for (at, &result) in program.results.iter().enumerate() {
        let (name, new) = match (result, tangent.results[at]) {
            (Returned::Output(from), Returned::Output(to)) => (
                &program.outputs[from].tensor.name,
                &mut tangent.outputs[to].tensor.name,
            ),
            (Returned::Sum(from), Returned::Sum(to)) => (
                &program.sums[from].tensor.name,
                &mut tangent.sums[to].tensor.name,
            ),
            (Returned::Total(from), Returned::Total(to)) => {
                (&program.totals[from].name, &mut tangent.totals[to].name)
            }
            _ => unreachable!("a tangent has the form of its result"),
        };
        *new = format!("tangent_{name}");
    }
    tangent.without_unread(|argument| seeds.contains(&argument))
}

/// The program without saved sums.
fn all_sums_computed(program: &Program) -> Program {
    Program {
        saved_row_sums: 0,
        ..program.clone()
    }
}

fn name_of(program: &mut Program, argument: Argument) -> &mut String {
    match argument {
        Argument::Input(at) => &mut program.inputs[at].name,
        Argument::Param(at) => &mut program.params[at].name,
        Argument::RowValue(at) => &mut program.row_values[at],
    }
}
