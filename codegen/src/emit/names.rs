//! Names of values in emitted code, and formulas for comments.

use cayley::Algebra;

use flashcliff_program::ir::{Function, Id, Node, Program, Uniform, Width};
use flashcliff_program::plan::{Body, Source, Stage, Target};

/// The names of the operands of a stage.
pub(super) struct Names {
    lanes: Vec<(String, Vec<String>)>,
    params: Vec<String>,
}

impl Names {
    pub(super) fn new(program: &Program, stage: &Stage) -> Self {
        let lanes = stage.sources.iter().map(|source| match *source {
            Source::Input(tensor) => {
                let tensor = &program.inputs[tensor];
                let labels = tensor
                    .components
                    .iter()
                    .map(|label| label.replace(' ', "_"));
                (tensor.name.clone(), labels.collect())
            }
            Source::Cut(cut) => {
                let count = program.cuts[cut].len();
                (
                    format!("t{cut}"),
                    (0..count).map(|k| k.to_string()).collect(),
                )
            }
        });
        let params = stage
            .params
            .iter()
            .map(|&param| program.params[param].name.clone());
        Self {
            lanes: lanes.collect(),
            params: params.collect(),
        }
    }

    /// The name of a lane tensor.
    pub(super) fn lane(&self, slot: usize) -> &str {
        &self.lanes[slot].0
    }

    /// The number of components of a lane tensor.
    pub(super) fn components(&self, slot: usize) -> usize {
        self.lanes[slot].1.len()
    }

    /// The name of the value of a node.
    pub(super) fn value(&self, body: &Body, id: Id) -> String {
        match body.graph.node(id) {
            Node::Constant(bits) => format!("c{}", constant_name(f64::from_bits(bits))),
            Node::Lane { tensor, component } => {
                let (name, labels) = &self.lanes[tensor];
                format!("{name}_{}", labels[component])
            }
            Node::Param { param, index } => format!("{}{index}", self.params[param]),
            Node::RowSum(slot) => format!("row{slot}"),
            Node::Uniform(Uniform::Eps) => "eps".to_owned(),
            Node::Uniform(Uniform::InvChannels) => "inv_channels".to_owned(),
            Node::Uniform(Uniform::Count(Width::Channels)) => "channels".to_owned(),
            Node::Uniform(Uniform::Count(Width::Scalars)) => "scalars".to_owned(),
            _ => format!("v{}", id.index()),
        }
    }

    /// A value as a formula of operands and of values with more than one use.
    pub(super) fn formula(&self, body: &Body, uses: &[usize], id: Id) -> String {
        self.expression(body, uses, id, true)
    }

    fn expression(&self, body: &Body, uses: &[usize], id: Id, root: bool) -> String {
        let node = body.graph.node(id);
        let shared = !root && uses[id.index()] > 1;
        if let Node::Constant(bits) = node {
            return f64::from_bits(bits).to_string();
        }
        if node.is_leaf() || shared || !body.graph.varies(id) {
            return self.value(body, id);
        }
        let inner = |id| self.expression(body, uses, id, false);
        let factor = |id: Id| {
            let text = inner(id);
            if text.contains(' ') {
                format!("({text})")
            } else {
                text
            }
        };
        match node {
            Node::Add(a, b) => format!("{} + {}", inner(a), inner(b)),
            Node::Sub(a, b) => {
                let b_text = inner(b);
                let is_sum = matches!(body.graph.node(b), Node::Add(..) | Node::Sub(..));
                match is_sum && b_text.contains(' ') {
                    true => format!("{} - ({b_text})", inner(a)),
                    false => format!("{} - {b_text}", inner(a)),
                }
            }
            Node::Mul(a, b) => format!("{}*{}", factor(a), factor(b)),
            Node::Div(a, b) => format!("{}/{}", factor(a), factor(b)),
            Node::Damp(a, b) => format!("{}*{}", factor(a), factor(b)),
            Node::Hypot(a, b) => format!("hypot({}, {})", inner(a), inner(b)),
            Node::Max(a, b) => format!("max({}, {})", inner(a), inner(b)),
            Node::Greater(a, b) => format!("({} > {})", inner(a), inner(b)),
            Node::Neg(a) => format!("-{}", factor(a)),
            Node::Call(Function::Sqrt, a) => format!("sqrt({})", inner(a)),
            Node::Call(Function::Sin, a) => format!("sin({})", inner(a)),
            Node::Call(Function::Cos, a) => format!("cos({})", inner(a)),
            Node::Call(Function::Exp, a) => format!("exp({})", inner(a)),
            Node::Call(Function::Sigmoid, a) => format!("sigmoid({})", inner(a)),
            Node::Call(Function::SigmoidSlope, a) => format!("sigmoid'({})", inner(a)),
            Node::Call(Function::Gate { order }, a) => {
                format!("gate{}({})", "'".repeat(order.into()), inner(a))
            }
            _ => self.value(body, id),
        }
    }
}

/// The sentences about an algebra that every header has: the order of its basis and the signs of its products.
pub(super) fn basis_sentences(algebra: &Algebra) -> [String; 2] {
    let blades = (0..algebra.blade_count()).map(|index| algebra.blade_name(index));
    let blades: Vec<String> = blades.collect();
    [
        format!("Basis order: {}.", blades.join(", ")),
        "Sign of `e_a e_b`: (-1)^swaps times the squares of the shared vectors.".to_owned(),
    ]
}

/// A sentence about a stage: the tensors that it reads and writes, and its computation.
pub(super) fn describe(program: &Program, stage: &Stage) -> String {
    let source = |source: &Source| match *source {
        Source::Input(tensor) => format!("`{}`", program.inputs[tensor].name),
        Source::Cut(cut) => format!("cut {cut}"),
    };
    let target = |target: &Target| match *target {
        Target::Output(output) => format!("`{}`", program.outputs[output].tensor.name),
        Target::Cut(cut) => format!("cut {cut}"),
    };
    let mut reads: Vec<String> = stage.sources.iter().map(source).collect();
    reads.extend(
        stage
            .params
            .iter()
            .map(|&p| format!("`{}`", program.params[p].name)),
    );
    let mut writes: Vec<String> = stage.targets.iter().map(target).collect();
    if !stage.row_sums.is_empty() {
        writes.push(format!("{} row sums", stage.row_sums.len()));
    }
    writes.extend(
        stage
            .sums
            .iter()
            .map(|&sum| format!("`{}`", program.sums[sum].tensor.name)),
    );
    if reads.is_empty() {
        reads.push("nothing".to_owned());
    }
    format!(
        "From {} to {}: {}.",
        reads.join(", "),
        writes.join(", "),
        program.formula
    )
}

/// An identifier for a constant: its digits, with the point and signs as letters.
fn constant_name(value: f64) -> String {
    format!("{value:e}").replace('.', "p").replace('-', "m")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flashcliff_program::plan::plan;

    use super::*;

    #[test]
    fn positions_as_names_tell_all_values_apart() {
        let count = 12;
        let mut program = Program::new("long_sum", "o = the sum of all");
        let labels = |count: usize| (0..count).map(|at| at.to_string()).collect();
        let mut values = Vec::new();
        for at in 0..count {
            values.extend(program.input(&format!("x{at}"), labels(count)));
            values.extend(program.param(&format!("w{at}"), count));
        }
        let mut total = program.graph.constant(0.0);
        for value in values {
            total = program.graph.add(total, value);
        }
        program.output("o", labels(1), vec![total]);
        let program = program.without_names();
        let stage = &plan(&program).stages[0];
        let (names, graph) = (Names::new(&program, stage), &stage.body.graph);
        let leaves = graph.ids().filter(|&id| graph.node(id).is_leaf());
        let all: Vec<String> = leaves.map(|id| names.value(&stage.body, id)).collect();
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert!(
            all.len() >= 2 * count * count && distinct.len() == all.len(),
            "{all:?}"
        );
    }
}
