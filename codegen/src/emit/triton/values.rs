//! Values of a program as expressions of Python.

use flashcliff_program::ir::{Function, Id, Node, Program, Uniform, Width};

/// The level of each value: 0 for values of inputs alone, and one more after each sum over channels, for which a row has to wait.
pub(super) fn levels(program: &Program, widths: &[Option<Width>]) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(program.graph.len());
    for id in program.graph.ids() {
        let level = match program.graph.node(id) {
            Node::RowSum(sum) => {
                let summand = program.row_sums[sum].index();
                // The sum of a number of the row is a product with the number of channels.
                levels[summand] + usize::from(widths[summand].is_some())
            }
            node => needs(program, node)
                .map(|need| levels[need.index()])
                .max()
                .unwrap_or(0),
        };
        levels.push(level);
    }
    levels
}

/// The values by which a value is stated, but for the summands of sums.
fn needs(program: &Program, node: Node) -> impl Iterator<Item = Id> {
    let behind = match node {
        Node::Cut { cut, component } => Some(program.cuts[cut][component]),
        _ => None,
    };
    node.operands()
        .collect::<Vec<_>>()
        .into_iter()
        .chain(behind)
}

/// The values that some values need, in order, up to sums over lanes.
pub(super) fn live(
    program: &Program,
    widths: &[Option<Width>],
    roots: impl IntoIterator<Item = Id>,
) -> Vec<Id> {
    let mut is_live = vec![false; program.graph.len()];
    let mut open: Vec<Id> = roots.into_iter().collect();
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut is_live[id.index()], true) {
            continue;
        }
        let node = program.graph.node(id);
        open.extend(needs(program, node));
        if let Some(summand) = summand_of_row(program, widths, node) {
            open.push(summand);
        }
    }
    let ids = program.graph.ids();
    ids.filter(|id| is_live[id.index()]).collect()
}

/// The summand of a sum whose lanes all have the same value.
pub(super) fn summand_of_row(
    program: &Program,
    widths: &[Option<Width>],
    node: Node,
) -> Option<Id> {
    let Node::RowSum(sum) = node else {
        return None;
    };
    let summand = program.row_sums[sum];
    widths[summand.index()].is_none().then_some(summand)
}

/// The name of a value, or the value itself if it is the same for a whole call.
pub(super) fn name(program: &Program, id: Id) -> String {
    match program.graph.node(id) {
        Node::Constant(bits) => constant(f64::from_bits(bits)),
        Node::Lane { tensor, component } => format!("x{tensor}_{component}"),
        Node::Param { param, index } => format!("w{param}_{index}"),
        Node::RowValue(at) => format!("r{at}"),
        Node::RowSum(sum) => format!("sum{sum}"),
        Node::Cut { cut, component } => name(program, program.cuts[cut][component]),
        Node::Uniform(Uniform::Eps) => "eps".to_owned(),
        Node::Uniform(Uniform::InvChannels) => "share".to_owned(),
        Node::Uniform(Uniform::Count(width)) => format!("count{}", width.index()),
        _ => format!("v{}", id.index()),
    }
}

/// The expression of a value that is none of the leaves.
pub(super) fn expression(program: &Program, node: Node, gate: &str) -> Option<String> {
    let name = |id| name(program, id);
    let infix = |a, operator, b| format!("{} {operator} {}", name(a), name(b));
    let pair = |function, a, b| format!("fc.{function}({}, {})", name(a), name(b));
    Some(match node {
        Node::Add(a, b) => infix(a, "+", b),
        Node::Sub(a, b) => infix(a, "-", b),
        Node::Mul(a, b) => infix(a, "*", b),
        Node::Div(a, b) => infix(a, "/", b),
        Node::Damp(a, b) => pair("damp", a, b),
        Node::Hypot(a, b) => pair("hypotenuse", a, b),
        Node::Max(a, b) => pair("larger", a, b),
        Node::Greater(a, b) => pair("greater", a, b),
        Node::Neg(a) => format!("-{}", name(a)),
        Node::Call(function, a) => format!("fc.{}({})", called(function, gate), name(a)),
        _ => return None,
    })
}

fn called(function: Function, gate: &str) -> String {
    let own = match function {
        Function::Sqrt => "square_root",
        Function::Sin => "sine",
        Function::Cos => "cosine",
        Function::Exp => "exponential",
        Function::Sigmoid => "sigmoid",
        Function::SigmoidSlope => "sigmoid_slope",
        Function::Gate { order: 0 } => return format!("gate_{gate}"),
        Function::Gate { order: 1 } => return format!("slope_{gate}"),
        Function::Gate { order } => {
            unreachable!("kernels have no derivative of order {order} of a gate")
        }
    };
    own.to_owned()
}

/// A constant as an expression. A negative one is set apart, so that no sign meets another.
fn constant(value: f64) -> String {
    match value.is_finite() {
        true if value < 0.0 => format!("({value:?})"),
        true => format!("{value:?}"),
        false => format!("float(\"{value}\")"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_numbers_of_python() {
        let found = [-1.5, 1e-300, f64::INFINITY, f64::NEG_INFINITY].map(constant);
        assert_eq!(
            found,
            ["(-1.5)", "1e-300", "float(\"inf\")", "float(\"-inf\")"]
        );
    }
}
