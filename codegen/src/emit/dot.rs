//! Graphviz: the optimised expression graph of a program.

use std::fmt::Write;

use flashcliff_program::ir::{Function, Node, Program, Uniform, Width};

/// The live part of the graph of a program in the DOT language.
pub fn emit(program: &Program) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = write_graph(&mut text, program);
    text
}

fn write_graph(text: &mut String, program: &Program) -> std::fmt::Result {
    writeln!(text, "digraph {} {{", program.name)?;
    writeln!(text, "  label=\"{}\";", program.formula)?;
    writeln!(text, "  node [shape=box, fontname=monospace];")?;
    for id in program.graph.reachable(program.roots()) {
        let node = program.graph.node(id);
        let label = label(program, node);
        writeln!(text, "  n{} [label=\"{label}\"];", id.index())?;
        for operand in node.operands() {
            writeln!(text, "  n{} -> n{};", operand.index(), id.index())?;
        }
        match node {
            Node::Cut { cut, component } => {
                let definition = program.cuts[cut][component];
                writeln!(
                    text,
                    "  n{} -> n{} [style=dashed];",
                    definition.index(),
                    id.index()
                )?;
            }
            Node::RowSum(index) if index >= program.saved_row_sums => {
                let summand = program.row_sums[index];
                writeln!(
                    text,
                    "  n{} -> n{} [style=bold];",
                    summand.index(),
                    id.index()
                )?;
            }
            _ => {}
        }
    }
    for output in &program.outputs {
        let name = &output.tensor.name;
        for (label, value) in output.tensor.components.iter().zip(&output.values) {
            writeln!(text, "  \"{name}.{label}\" [shape=ellipse];")?;
            writeln!(text, "  n{} -> \"{name}.{label}\";", value.index())?;
        }
    }
    for sum in &program.sums {
        for (index, value) in sum.values.iter().enumerate() {
            let target = format!("{}.{index}", sum.tensor.name);
            writeln!(text, "  \"{target}\" [shape=ellipse];")?;
            writeln!(text, "  n{} -> \"{target}\" [style=bold];", value.index())?;
        }
    }
    for total in &program.totals {
        let name = &total.name;
        writeln!(text, "  \"{name}\" [shape=ellipse];")?;
        for summand in total.summands.iter().flatten() {
            writeln!(text, "  n{} -> \"{name}\" [style=bold];", summand.index())?;
        }
    }
    writeln!(text, "}}")
}

fn label(program: &Program, node: Node) -> String {
    match node {
        Node::Constant(bits) => f64::from_bits(bits).to_string(),
        Node::Lane { tensor, component } => {
            let tensor = &program.inputs[tensor];
            format!("{}.{}", tensor.name, tensor.components[component])
        }
        Node::Param { param, index } => format!("{}[{index}]", program.params[param].name),
        Node::Uniform(Uniform::Eps) => "eps".to_owned(),
        Node::Uniform(Uniform::InvChannels) => "1/channels".to_owned(),
        Node::Uniform(Uniform::Count(Width::Channels)) => "channels".to_owned(),
        Node::Uniform(Uniform::Count(Width::Scalars)) => "scalar channels".to_owned(),
        Node::RowSum(index) => format!("row sum {index}"),
        Node::RowValue(index) => program.row_values[index].clone(),
        Node::Cut { cut, component } => format!("cut {cut}.{component}"),
        Node::Add(..) => "+".to_owned(),
        Node::Sub(..) => "-".to_owned(),
        Node::Mul(..) => "*".to_owned(),
        Node::Div(..) => "/".to_owned(),
        Node::Damp(..) => "damp".to_owned(),
        Node::Hypot(..) => "hypot".to_owned(),
        Node::Max(..) => "max".to_owned(),
        Node::Greater(..) => ">".to_owned(),
        Node::Neg(_) => "neg".to_owned(),
        Node::Call(Function::Sqrt, _) => "sqrt".to_owned(),
        Node::Call(Function::Sin, _) => "sin".to_owned(),
        Node::Call(Function::Cos, _) => "cos".to_owned(),
        Node::Call(Function::Exp, _) => "exp".to_owned(),
        Node::Call(Function::Sigmoid, _) => "sigmoid".to_owned(),
        Node::Call(Function::SigmoidSlope, _) => "sigmoid'".to_owned(),
        Node::Call(Function::Gate { order }, _) => format!("gate{}", "'".repeat(order.into())),
    }
}
