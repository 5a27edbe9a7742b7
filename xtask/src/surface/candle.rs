//! Functions of candle tensors.

use flashcliff_operators::{Input, Operator, Options, Presence};
use flashcliff_program::operators::OPERATORS;

use super::rust::{HEADER, arguments, documentation};
use super::text::RUST_HERE;

/// The functions, one for each operator.
pub(super) fn functions() -> String {
    let mut text = HEADER.to_owned();
    text += "use candle_core::{Result, Tensor};\n";
    text += "use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};\n";
    text += "use flashcliff::{Algebra, Gate, GradeSet, Invariant, Norm, ProductKind};\n\n";
    text += "use super::run;\n";
    for operator in OPERATORS {
        text.push('\n');
        text += &documentation(operator, RUST_HERE, false);
        text += &function(operator);
    }
    text
}

fn function(operator: &Operator) -> String {
    let name = operator.name;
    // Options that only say which inputs are there follow from the inputs.
    let flags: Vec<&str> = operator
        .inputs
        .iter()
        .filter_map(|input| match input.presence {
            Presence::With(flag) => Some(flag),
            _ => None,
        })
        .collect();
    let (declared, passed, prepared) = match operator.options {
        Options::Set(set) if !flags.is_empty() => {
            let setters = operator
                .inputs
                .iter()
                .filter_map(|input| match input.presence {
                    Presence::With(flag) => Some(format!(".with_{flag}({}.is_some())", input.name)),
                    _ => None,
                });
            let made = format!(
                "    let options = {}::default(){};\n",
                set.name,
                setters.collect::<String>()
            );
            (String::new(), ", &options".to_owned(), made)
        }
        _ => {
            let (declared, passed) = arguments(operator);
            (declared, passed, String::new())
        }
    };
    let inputs: Vec<String> = operator.inputs.iter().map(argument).collect();
    let mut text = format!(
        "pub fn {name}(algebra: Algebra{declared}, {}) -> Result<Tensor> {{\n{prepared}",
        inputs.join(", ")
    );
    let given = operator.inputs.iter().map(|input| match input.presence {
        Presence::Always => format!("Some({})", input.name),
        _ => input.name.to_owned(),
    });
    let given: Vec<String> = given.collect();
    text += &format!(
        "    run(ops::{name}(algebra{passed}), &[{}])\n}}\n",
        given.join(", ")
    );
    text
}

fn argument(input: &Input) -> String {
    match input.presence {
        Presence::Always => format!("{}: &Tensor", input.name),
        _ => format!("{}: Option<&Tensor>", input.name),
    }
}
