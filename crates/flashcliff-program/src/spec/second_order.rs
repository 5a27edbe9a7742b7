//! The programs of second derivatives that a build may compile.

use super::Operator;
use crate::ir::{Gate, Program, Returned, gradient, resolved};

/// The gates for which second derivatives are compiled: the usual one, and none. With others they are interpreted.
const GATES: [Gate; 2] = [Gate::Gelu, Gate::None];

/// The gradients of a program for a gate that training differentiates again: that by all arguments, and the part of it that belongs to lane
/// inputs, as forces are one. They are the programs that the library makes of an operator in the same steps.
pub fn first_derivatives(program: &Program, gate: Gate) -> Vec<Program> {
    let first = derivative(program, gate);
    if first.sums.is_empty() {
        return vec![first];
    }
    let of_inputs = |result| matches!(result, Returned::Output(_));
    let forces = first.rebuilt(of_inputs, |_, _| None);
    vec![first, forces]
}

/// The gradients of [`first_derivatives`], in their order.
pub fn second_derivatives(program: &Program, gate: Gate) -> Vec<Program> {
    let first = first_derivatives(program, gate).into_iter();
    first.map(|first| derivative(&first, gate)).collect()
}

fn derivative(program: &Program, gate: Gate) -> Program {
    resolved(gate, gradient(program))
}

impl Operator {
    /// The second derivatives that training takes.
    pub fn second_derivatives(&self) -> Vec<Program> {
        let gates = match self.program.calls_gate() {
            true => &GATES[..],
            // The gate changes nothing.
            false => &GATES[..1],
        };
        let gates = gates.iter();
        gates
            .flat_map(|&gate| second_derivatives(&self.program, gate))
            .collect()
    }
}
