//! Reverse-mode differentiation: makes the adjoint program of a program.

use super::graph::Graph;
use super::node::{Function, Id, Node, Width};
use super::program::{Argument, Program, Returned};

/// The adjoint of a program: it computes the gradients of all arguments from the arguments and the gradients of
/// the results.
///
/// The adjoint starts as a copy of the program, so it can recompute any value; a gradient that passes a sum over
/// channels becomes such a sum, a gradient that passes a cut becomes a cut, the gradient of a parameter becomes a sum
/// over the batch, and that of a row value a total of the row. The result is an ordinary program and can be
/// differentiated again. The program's own row sums come first among the adjoint's and are marked as saved.
///
/// Gradients stay in the range of their values. For example, the norm `y = o r` with `r = 1 / sqrt(s)` has the gradient
/// `r g - y r mean(g y)`. The gradient of the logarithm of a reciprocal is `g y`, so neither a power of `r` nor a
/// product of `g` with a large `o` comes up.
///
/// The adjoint has one argument more for each result, and one result for each argument. Their names are `grad_` and the
/// name of what they belong to.
pub fn differentiate(program: &Program) -> Program {
    let mut adjoint = Adjoint {
        widths: program.widths(),
        gates: gates(program),
        gradients: vec![[None; 2]; program.graph.len()],
        log_gradients: vec![[None; 2]; program.graph.len()],
        cut_gradients: vec![None; program.cuts.len()],
        out: Program {
            name: format!("{}_grad", program.name),
            formula: format!("adjoint of {}", program.formula),
            outputs: Vec::new(),
            sums: Vec::new(),
            totals: Vec::new(),
            results: Vec::new(),
            saved_row_sums: program.row_sums.len(),
            ..program.clone()
        },
    };
    adjoint.seed(program);
    for id in program.graph.ids().rev() {
        for width in Width::ALL {
            adjoint.pull_back(program, id, width);
        }
    }
    adjoint.finish(program)
}

/// The most factors of a product that are looked through for one that belongs beside a value.
const MOST_FACTORS: usize = 64;

struct Adjoint {
    // The lanes of each node of the original program.
    widths: Vec<Option<Width>>,
    // Whether each node of the original program is a gate.
    gates: Vec<bool>,
    // The gradient of each node, by node of the original program, and by the lanes that it comes from. The gradient of a value that all
    // lanes share is the sum over them; it is taken where the value was a sum itself.
    gradients: Vec<[Option<Id>; 2]>,
    // The gradient of the logarithm of each reciprocal, by its node in the original program. It comes from the products
    // in which the reciprocal is a factor.
    log_gradients: Vec<[Option<Id>; 2]>,
    // The components of the gradient of each cut, by cut of the original program. They are themselves a cut.
    cut_gradients: Vec<Option<Vec<Id>>>,
    out: Program,
}

impl Adjoint {
    fn graph(&mut self) -> &mut Graph {
        &mut self.out.graph
    }

    fn seed(&mut self, program: &Program) {
        for &result in &program.results {
            let (width, values, seeds) = match result {
                Returned::Total(total) => {
                    let total = &program.totals[total];
                    let seed = self.out.row_value(&format!("grad_{}", total.name));
                    for (width, summand) in Width::ALL.into_iter().zip(total.summands) {
                        if let Some(summand) = summand {
                            self.add(summand, width, seed);
                        }
                    }
                    continue;
                }
                Returned::Output(output) => {
                    let output = &program.outputs[output];
                    let (width, name) = (output.tensor.width, &output.tensor.name);
                    let components = output.tensor.components.clone();
                    let name = format!("grad_{name}");
                    let seeds = self.out.input_of(width, &name, components);
                    (width, &output.values, seeds)
                }
                Returned::Sum(sum) => {
                    let sum = &program.sums[sum];
                    let (width, name) = (sum.tensor.width, format!("grad_{}", sum.tensor.name));
                    let seeds = self.out.param_of(width, &name, sum.tensor.count);
                    (width, &sum.values, seeds)
                }
            };
            for (&value, seed) in values.iter().zip(seeds) {
                self.add(value, width, seed);
            }
        }
    }

    fn add(&mut self, id: Id, width: Width, gradient: Id) {
        let so_far = self.gradients[id.index()][width.index()];
        let total = self.sum(so_far, gradient);
        self.gradients[id.index()][width.index()] = Some(total);
    }

    fn sum(&mut self, so_far: Option<Id>, gradient: Id) -> Id {
        match so_far {
            Some(so_far) => self.graph().add(so_far, gradient),
            None => gradient,
        }
    }

    fn subtract(&mut self, id: Id, width: Width, gradient: Id) {
        let total = match self.gradients[id.index()][width.index()] {
            Some(so_far) => self.graph().sub(so_far, gradient),
            None => self.graph().neg(gradient),
        };
        self.gradients[id.index()][width.index()] = Some(total);
    }

    /// Adds the gradient of a node, as far as it comes from lanes of a width, to its operands. All users of the node come later in the
    /// graph, so they have been visited.
    fn pull_back(&mut self, program: &Program, id: Id, width: Width) {
        if let Node::Cut { cut, component } = program.graph.node(id) {
            if self.widths[id.index()] == Some(width) {
                self.pull_back_cut(program, cut, component, width);
            }
            return;
        }
        self.pull_back_logarithm(program, id, width);
        let Some(gradient) = self.gradients[id.index()][width.index()] else {
            return;
        };
        match program.graph.node(id) {
            Node::Add(a, b) => {
                self.add(a, width, gradient);
                self.add(b, width, gradient);
            }
            Node::Sub(a, b) => {
                self.add(a, width, gradient);
                self.subtract(b, width, gradient);
            }
            Node::Mul(a, b) if a == b => {
                let two = self.graph().constant(2.0);
                let twice = self.graph().mul(gradient, two);
                let to_a = self.multiply_near(twice, a);
                self.add(a, width, to_a);
            }
            Node::Mul(a, b) => {
                let g = &program.graph;
                for (factor, other) in [(a, b), (b, a)] {
                    if denominator(g, factor).is_some() {
                        let to_logarithm = self.graph().mul(gradient, id);
                        let so_far = self.log_gradients[factor.index()][width.index()];
                        let total = self.sum(so_far, to_logarithm);
                        self.log_gradients[factor.index()][width.index()] = Some(total);
                    } else {
                        let to_factor = self.graph().mul(gradient, other);
                        self.add(factor, width, to_factor);
                    }
                }
            }
            Node::Damp(a, b) => {
                // A closed gate lets no gradient through either.
                let to_a = match self.gates[b.index()] {
                    true => self.graph().damp(b, gradient),
                    false => self.graph().mul(gradient, b),
                };
                let to_b = self.graph().damp(a, gradient);
                self.add(a, width, to_a);
                self.add(b, width, to_b);
            }
            Node::Hypot(a, b) => {
                for leg in [a, b] {
                    let slope = self.graph().div(leg, id);
                    let to_leg = self.graph().mul(gradient, slope);
                    self.add(leg, width, to_leg);
                }
            }
            Node::Max(a, b) => {
                let is_a = self.graph().greater(a, b);
                let one = self.graph().constant(1.0);
                let is_b = self.graph().sub(one, is_a);
                for (operand, is_it) in [(a, is_a), (b, is_b)] {
                    let to_operand = self.graph().damp(is_it, gradient);
                    self.add(operand, width, to_operand);
                }
            }
            Node::Div(a, b) => {
                let to_a = self.graph().div(gradient, b);
                self.add(a, width, to_a);
                let to_b = self.graph().mul(to_a, id);
                self.subtract(b, width, to_b);
            }
            Node::Neg(a) => self.subtract(a, width, gradient),
            Node::Call(function, a) => {
                let g = self.graph();
                let slope = slope(g, function, a, id);
                let to_a = match function {
                    Function::Sqrt => g.mul(gradient, slope),
                    // A gate that is flat hides the value it would multiply, even an infinity.
                    _ => g.damp(slope, gradient),
                };
                self.add(a, width, to_a);
            }
            Node::RowSum(index) => {
                let to_summand = self.out.row_sum_of(width, gradient);
                let summand = program.row_sums[index];
                let lanes = self.widths[summand.index()].unwrap_or_default();
                self.add(summand, lanes, to_summand);
            }
            Node::Cut { .. } | Node::Constant(_) | Node::Uniform(_) | Node::Greater(..) => {}
            // `finish` collects these gradients.
            Node::Lane { .. } | Node::Param { .. } | Node::RowValue(_) => {}
        }
    }

    /// Handles `r = 1 / d` by `d ln r = -r dd`. For `r = 1 / sqrt(s)` this is `-ds / (2 s)`, without a further root or
    /// quotient; `1 / s = r r` is in range if `s` is.
    fn pull_back_logarithm(&mut self, program: &Program, id: Id, width: Width) {
        let Some(gradient) = self.log_gradients[id.index()][width.index()] else {
            return;
        };
        let Some(denominator) = denominator(&program.graph, id) else {
            return;
        };
        let to_denominator = self.graph().mul(gradient, id);
        match program.graph.node(denominator) {
            Node::Call(Function::Sqrt, square) => {
                let g = self.graph();
                let half = g.constant(0.5);
                let twice = g.mul(to_denominator, id);
                let to_square = g.mul(twice, half);
                self.subtract(square, width, to_square);
            }
            _ => self.subtract(denominator, width, to_denominator),
        }
    }

    /// Returns `product * value`. If the program computes `value` times some factor of the product, the other factors
    /// are multiplied by that: a factor that undoes the size of the value belongs beside it.
    fn multiply_near(&mut self, product: Id, value: Id) -> Id {
        let g = self.graph();
        let Some(mut factors) = Factors::of(g, product) else {
            return g.mul(product, value);
        };
        let found = factors
            .others
            .iter()
            .enumerate()
            .find_map(|(index, &factor)| {
                let near = g.find_product(factor, value)?;
                Some((index, near))
            });
        let Some((index, near)) = found else {
            return g.mul(product, value);
        };
        factors.others.remove(index);
        // Factors that all channels share come first: they are multiplied once a row.
        let (each, once): (Vec<Id>, Vec<Id>) = factors.others.iter().partition(|&&f| g.varies(f));
        let mut rest = g.constant(factors.constant);
        for factor in once.into_iter().chain(each) {
            rest = g.mul(rest, factor);
        }
        g.mul(rest, near)
    }

    /// The components of a cut are consecutive nodes, so at the first visit of a cut (its last
    /// component) all its users have been visited.
    fn pull_back_cut(&mut self, program: &Program, cut: usize, component: usize, width: Width) {
        if self.cut_gradients[cut].is_none() {
            let zero = self.graph().constant(0.0);
            let values: Vec<Id> = (0..program.cuts[cut].len())
                .map(|component| {
                    // A copy of a program lacks the components that nothing reads.
                    let node = program.graph.find(Node::Cut { cut, component });
                    let known = node.and_then(|node| self.gradients[node.index()][width.index()]);
                    known.unwrap_or(zero)
                })
                .collect();
            // There is nothing to store of values that all lanes share, and a cut of them alone would not say which lanes it has.
            let varies = values.iter().any(|&value| self.out.graph.varies(value));
            self.cut_gradients[cut] = Some(match varies {
                true => self.out.cut(values),
                false => values,
            });
        }
        if let Some(gradients) = &self.cut_gradients[cut] {
            let gradient = gradients[component];
            self.add(program.cuts[cut][component], width, gradient);
        }
    }

    fn finish(mut self, program: &Program) -> Program {
        for &argument in &program.arguments {
            match argument {
                Argument::Input(tensor) => {
                    let input = &program.inputs[tensor];
                    let (width, count) = (input.width, input.components.len());
                    let values = self.gradients_of(width, count, |graph, component| {
                        graph.lane(tensor, component)
                    });
                    let (name, labels) = (format!("grad_{}", input.name), input.components.clone());
                    self.out.output_of(width, &name, labels, values);
                }
                Argument::Param(param) => {
                    let parameter = &program.params[param];
                    let (width, count) = (parameter.width, parameter.count);
                    let values =
                        self.gradients_of(width, count, |graph, index| graph.param(param, index));
                    let name = format!("grad_{}", parameter.name);
                    self.out.sum_of(width, &name, values);
                }
                Argument::RowValue(at) => {
                    let value = self.out.graph.row_value(at);
                    let known = self.gradients.get(value.index());
                    let summands = known.copied().unwrap_or_default();
                    let name = format!("grad_{}", program.row_values[at]);
                    self.out.total(&name, summands);
                }
            }
        }
        self.out
    }

    /// The gradients of the elements of an argument.
    fn gradients_of(
        &mut self,
        width: Width,
        count: usize,
        element: impl Fn(&mut Graph, usize) -> Id,
    ) -> Vec<Id> {
        let gradient = |index| {
            let element = element(&mut self.out.graph, index);
            let known = self.gradients.get(element.index());
            let known = known.and_then(|gradients| gradients[width.index()]);
            known.unwrap_or_else(|| self.graph().constant(0.0))
        };
        (0..count).map(gradient).collect()
    }
}

/// The factors of a product.
struct Factors {
    constant: f64,
    others: Vec<Id>,
}

impl Factors {
    /// The factors of a product, unless it has too many of them: a square of squares has twice as many each time.
    fn of(g: &Graph, product: Id) -> Option<Self> {
        let mut factors = Self {
            constant: 1.0,
            others: Vec::new(),
        };
        let mut left = vec![product];
        while let Some(id) = left.pop() {
            match g.node(id) {
                Node::Mul(a, b) => left.extend([b, a]),
                Node::Neg(a) => {
                    factors.constant = -factors.constant;
                    left.push(a);
                }
                Node::Constant(bits) => factors.constant *= f64::from_bits(bits),
                _ => factors.others.push(id),
            }
            if factors.others.len() + left.len() > MOST_FACTORS {
                return None;
            }
        }
        Some(factors)
    }
}

/// The `d` of `1 / d`.
fn denominator(g: &Graph, id: Id) -> Option<Id> {
    match g.node(id) {
        Node::Div(one, d) if g.constant_value(one) == Some(1.0) => Some(d),
        _ => None,
    }
}

/// Whether each value is a gate, computed where it stands or kept in a cut. Cuts come after what they keep.
fn gates(program: &Program) -> Vec<bool> {
    let mut gates = Vec::with_capacity(program.graph.len());
    for id in program.graph.ids() {
        gates.push(match program.graph.node(id) {
            Node::Call(Function::Gate { .. }, _) => true,
            Node::Cut { cut, component } => gates[program.cuts[cut][component].index()],
            _ => false,
        });
    }
    gates
}

/// The derivative of `value = function(a)` with respect to `a`.
fn slope(g: &mut Graph, function: Function, a: Id, value: Id) -> Id {
    match function {
        Function::Sqrt => {
            let half = g.constant(0.5);
            g.div(half, value)
        }
        Function::Sin => g.call(Function::Cos, a),
        Function::Cos => {
            let sine = g.call(Function::Sin, a);
            g.neg(sine)
        }
        Function::Exp => value,
        Function::Sigmoid => g.call(Function::SigmoidSlope, a),
        // s' (1 - 2 s)
        Function::SigmoidSlope => {
            let (one, two) = (g.constant(1.0), g.constant(2.0));
            let s = g.call(Function::Sigmoid, a);
            let twice = g.mul(two, s);
            let rest = g.sub(one, twice);
            g.mul(value, rest)
        }
        Function::Gate { order } => g.call(Function::Gate { order: order + 1 }, a),
    }
}
