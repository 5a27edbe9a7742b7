//! Programs with additions before or after them, so that one kernel does both.

use super::node::{Id, Node};
use super::program::{LaneTensor, Program, Returned};

impl Program {
    /// The program of sums: each lane input is a sum of two. The second summands, named `added_` and the name of the
    /// input, are further arguments after all others. The sums, named `total_` and the name of the input, are further
    /// results.
    ///
    /// # Panics
    /// If the program has saved sums.
    #[must_use]
    pub fn of_sums(&self) -> Self {
        let own = self.inputs.len();
        let mut program = self.rebuilt(
            |_| true,
            |graph, node| match node {
                Node::Lane { tensor, component } => {
                    let [one, other] = [tensor, own + tensor].map(|at| graph.lane(at, component));
                    Some(graph.add(one, other))
                }
                _ => None,
            },
        );
        program.name = format!("{}_of_sums", self.name);
        program.formula = format!("{}, of sums", self.formula);
        for (at, input) in self.inputs.iter().enumerate() {
            let more = program.declare(named("added", input));
            let ones = (0..more.len()).map(|component| program.graph.lane(at, component));
            let ones: Vec<_> = ones.collect();
            let sums = ones.into_iter().zip(more);
            let sums = sums.map(|(one, other)| program.graph.add(one, other));
            let (sums, total) = (sums.collect(), named("total", input));
            program.output_of(total.width, &total.name, total.components, sums);
        }
        program
    }

    /// The program whose lane outputs are added to further arguments, which come after all others and are named
    /// `added_` and the name of the output.
    ///
    /// # Panics
    /// If the program has saved sums.
    #[must_use]
    pub fn adding(&self) -> Self {
        let mut program = self.rebuilt(|_| true, |_, _| None);
        program.name = format!("{}_adding", self.name);
        program.formula = format!("{}, added", self.formula);
        for result in program.results.clone() {
            let Returned::Output(at) = result else {
                continue;
            };
            let more = program.declare(named("added", &program.outputs[at].tensor));
            let values = program.outputs[at].values.clone().into_iter().zip(more);
            let sums = values.map(|(value, more)| program.graph.add(value, more));
            program.outputs[at].values = sums.collect();
        }
        program
    }

    /// Declares a lane input, and returns its components.
    fn declare(&mut self, tensor: LaneTensor) -> Vec<Id> {
        self.input_of(tensor.width, &tensor.name, tensor.components)
    }
}

/// A tensor like another, with its own name.
fn named(prefix: &str, tensor: &LaneTensor) -> LaneTensor {
    LaneTensor {
        name: format!("{prefix}_{}", tensor.name),
        ..tensor.clone()
    }
}
