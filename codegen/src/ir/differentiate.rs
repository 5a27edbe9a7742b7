//! Reverse-mode differentiation of a program into its adjoint program.

use super::graph::Graph;
use super::node::{Function, Id, Node};
use super::program::{ColumnSum, LaneTensor, Program};

/// The adjoint of a program: from its inputs and the gradients of its outputs to the gradients of
/// its inputs and parameters.
///
/// The adjoint starts as a copy of the program, so it can recompute any value; a gradient that
/// passes a sum over channels becomes such a sum, a gradient that passes a cut becomes a cut, and
/// the gradient of a parameter becomes a sum over the batch. The result is an ordinary program and
/// can be differentiated again. The program's own row sums come first among the adjoint's and are
/// marked as saved.
///
/// New inputs are named `grad_` and the name of the output; new outputs `grad_` and the name of
/// the input.
pub fn differentiate(program: &Program) -> Program {
    let mut adjoint = Adjoint {
        gradients: vec![None; program.graph.len()],
        cut_gradients: vec![None; program.cuts.len()],
        out: Program {
            name: format!("{}_grad", program.name),
            formula: format!("adjoint of {}", program.formula),
            outputs: Vec::new(),
            column_sums: Vec::new(),
            saved_row_sums: program.row_sums.len(),
            ..program.clone()
        },
    };
    adjoint.seed(program);
    for id in program.graph.ids().rev() {
        adjoint.pull_back(program, id);
    }
    adjoint.finish(program)
}

struct Adjoint {
    // By node of the original program.
    gradients: Vec<Option<Id>>,
    // By cut of the original program: the components of its gradient, themselves a cut.
    cut_gradients: Vec<Option<Vec<Id>>>,
    out: Program,
}

impl Adjoint {
    fn graph(&mut self) -> &mut Graph {
        &mut self.out.graph
    }

    fn seed(&mut self, program: &Program) {
        for output in &program.outputs {
            let name = format!("grad_{}", output.tensor.name);
            let seeds = self.out.input(&name, output.tensor.components.clone());
            for (&value, seed) in output.values.iter().zip(seeds) {
                self.add(value, seed);
            }
        }
        for sum in &program.column_sums {
            let name = format!("grad_{}_{}", program.params[sum.param].name, sum.index);
            let seed = self.out.param(&name, 1)[0];
            self.add(sum.value, seed);
        }
    }

    fn add(&mut self, id: Id, gradient: Id) {
        let total = match self.gradients[id.index()] {
            Some(so_far) => self.graph().add(so_far, gradient),
            None => gradient,
        };
        self.gradients[id.index()] = Some(total);
    }

    fn subtract(&mut self, id: Id, gradient: Id) {
        let total = match self.gradients[id.index()] {
            Some(so_far) => self.graph().sub(so_far, gradient),
            None => self.graph().neg(gradient),
        };
        self.gradients[id.index()] = Some(total);
    }

    /// Hands the gradient of a node on to its operands. All users of the node come later in the
    /// graph and so have been visited.
    fn pull_back(&mut self, program: &Program, id: Id) {
        if let Node::Cut { cut, component } = program.graph.node(id) {
            return self.pull_back_cut(program, cut, component);
        }
        let Some(gradient) = self.gradients[id.index()] else {
            return;
        };
        match program.graph.node(id) {
            Node::Add(a, b) => {
                self.add(a, gradient);
                self.add(b, gradient);
            }
            Node::Sub(a, b) => {
                self.add(a, gradient);
                self.subtract(b, gradient);
            }
            Node::Mul(a, b) if a == b => {
                let two = self.graph().constant(2.0);
                let twice = self.graph().mul(gradient, two);
                let to_a = self.graph().mul(twice, a);
                self.add(a, to_a);
            }
            Node::Mul(a, b) => {
                let to_a = self.graph().mul(gradient, b);
                let to_b = self.graph().mul(gradient, a);
                self.add(a, to_a);
                self.add(b, to_b);
            }
            Node::Div(a, b) if let Some(square) = root_below_one(&program.graph, a, b) => {
                // 1 / sqrt(a) has the slope -(1 / sqrt(a))^3 / 2: no further root, no quotient.
                let g = self.graph();
                let half = g.constant(0.5);
                let power = g.mul(id, id);
                let cube = g.mul(power, id);
                let slope = g.mul(cube, half);
                let to_square = g.mul(gradient, slope);
                self.subtract(square, to_square);
            }
            Node::Div(a, b) => {
                let to_a = self.graph().div(gradient, b);
                self.add(a, to_a);
                let to_b = self.graph().mul(to_a, id);
                self.subtract(b, to_b);
            }
            Node::Neg(a) => self.subtract(a, gradient),
            Node::Call(function, a) => {
                let slope = slope(self.graph(), function, a, id);
                let to_a = self.graph().mul(gradient, slope);
                self.add(a, to_a);
            }
            Node::RowSum(index) => {
                let to_summand = self.out.row_sum(gradient);
                self.add(program.row_sums[index], to_summand);
            }
            Node::Cut { .. } | Node::Constant(_) | Node::Uniform(_) => {}
            // Collected by `finish`.
            Node::Lane { .. } | Node::Param { .. } => {}
        }
    }

    /// The components of a cut are consecutive nodes, so at the first visit of a cut (its last
    /// component) all its users have been visited.
    fn pull_back_cut(&mut self, program: &Program, cut: usize, component: usize) {
        if self.cut_gradients[cut].is_none() {
            let zero = self.graph().constant(0.0);
            let values = (0..program.cuts[cut].len())
                .map(|component| {
                    let node = self.out.graph.intern(Node::Cut { cut, component });
                    self.gradients[node.index()].unwrap_or(zero)
                })
                .collect();
            self.cut_gradients[cut] = Some(self.out.cut(values));
        }
        if let Some(gradients) = &self.cut_gradients[cut] {
            let gradient = gradients[component];
            self.add(program.cuts[cut][component], gradient);
        }
    }

    fn finish(mut self, program: &Program) -> Program {
        for (tensor, input) in program.inputs.iter().enumerate() {
            let LaneTensor { name, components } = input.clone();
            let values = (0..components.len())
                .map(|component| {
                    let lane = self.out.graph.lane(tensor, component);
                    self.gradient_or_zero(lane)
                })
                .collect();
            self.out.output(&format!("grad_{name}"), components, values);
        }
        for (param, parameter) in program.params.iter().enumerate() {
            for index in 0..parameter.count {
                let element = self.out.graph.param(param, index);
                let value = self.gradient_or_zero(element);
                self.out.column_sums.push(ColumnSum {
                    param,
                    index,
                    value,
                });
            }
        }
        self.out
    }

    fn gradient_or_zero(&mut self, id: Id) -> Id {
        let known = self.gradients.get(id.index()).copied().flatten();
        known.unwrap_or_else(|| self.graph().constant(0.0))
    }
}

/// The `x` of `1 / sqrt(x)`.
fn root_below_one(g: &Graph, one: Id, root: Id) -> Option<Id> {
    match g.node(root) {
        Node::Call(Function::Sqrt, x) if g.constant_value(one) == Some(1.0) => Some(x),
        _ => None,
    }
}

/// The derivative of `value = function(a)` by `a`.
fn slope(g: &mut Graph, function: Function, a: Id, value: Id) -> Id {
    match function {
        Function::Sqrt => {
            let half = g.constant(0.5);
            g.div(half, value)
        }
        Function::Sigmoid => {
            let one = g.constant(1.0);
            let rest = g.sub(one, value);
            g.mul(value, rest)
        }
        Function::Gate { order } => g.call(Function::Gate { order: order + 1 }, a),
    }
}
