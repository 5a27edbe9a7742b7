//! The programs of second derivatives that a build may compile.

use super::Operator;
use crate::ir::{Gate, Program, Returned, gradient, resolved};

/// The gates for which second derivatives are compiled: the usual one, and none. With others they are interpreted.
const GATES: [Gate; 2] = [Gate::Gelu, Gate::None];

impl Operator {
    /// The second derivatives that training takes: the gradient of the gradient, and the gradient of the part of the gradient that belongs to
    /// lane inputs, as forces are one. They are the programs that the library makes of an operator in the same steps.
    pub fn second_derivatives(&self) -> Vec<Program> {
        let gates = match self.program.calls_gate() {
            true => &GATES[..],
            // The gate changes nothing.
            false => &GATES[..1],
        };
        let mut programs = Vec::new();
        for &gate in gates {
            let first = resolved(gate, gradient(&self.program));
            programs.push(resolved(gate, gradient(&first)));
            if !first.sums.is_empty() {
                let of_inputs = |result| matches!(result, Returned::Output(_));
                let forces = first.rebuilt(of_inputs, |_, _| None);
                programs.push(resolved(gate, gradient(&forces)));
            }
        }
        programs
    }
}
