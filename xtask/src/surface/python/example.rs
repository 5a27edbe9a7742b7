//! The example of a function: a call on small integers, and its result by the reference of the operator.

use cayley::Signature;
use flashcliff_operators::{Input, Operator, Presence};
use flashcliff_program::operators::{Settings, find};
use flashcliff_program::reference::{Basis, evaluate};

/// A plane, whose multivectors have four components.
const PLANE: [usize; 3] = [2, 0, 0];
const BATCH: usize = 1;
const CHANNELS: usize = 2;
const OUTPUTS: usize = 1;

/// The lines of the example of a function, with the settings that it stands for.
///
/// # Panics
/// A result that PyTorch would print in another form.
pub(super) fn example(operator: &Operator, function: &str, settings: &Settings) -> String {
    let entry = find(operator.name).expect("operators are in the list");
    let basis = Basis::new(Signature::new(PLANE[0], PLANE[1], PLANE[2]).expect("a plane"));
    let mut lines = vec![
        "import torch".to_owned(),
        "from flashcliff import functional as F".to_owned(),
    ];
    let (mut next, mut values) = (1, Vec::new());
    for input in operator.inputs {
        let sizes = sizes(operator, input.shape, &basis);
        let count: usize = sizes.iter().product();
        let shape = input.shape.replace("batch", "*batch");
        let numbers = sizes.iter().map(usize::to_string);
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        let tensor = match input.is_parameter() {
            true => format!("torch.ones({numbers})"),
            false => format!(
                "torch.arange({next}.0, {}.0).reshape({numbers})",
                next + count
            ),
        };
        lines.push(format!("{} = {tensor}  # {shape}", input.python));
        values.push(match input.is_parameter() {
            true => vec![1.0; count],
            false => (next..next + count).map(|value| value as f64).collect(),
        });
        if !input.is_parameter() {
            next += count;
        }
    }
    let channels = match has_outputs(operator) {
        true => [BATCH, CHANNELS, OUTPUTS],
        false => [BATCH, 1, 1],
    };
    let result = evaluate(entry, settings, &basis, channels, &values);
    let tensors = operator.inputs.iter().map(|input| input.python);
    let algebra = match is_optional(operator.inputs.last()) {
        true => "algebra=(2, 0, 0)",
        false => "(2, 0, 0)",
    };
    let arguments: Vec<&str> = tensors.chain([algebra]).collect();
    lines.push(format!("F.{function}({}).flatten()", arguments.join(", ")));
    let calls: String = lines
        .iter()
        .map(|line| format!("        >>> {line}\n"))
        .collect();
    format!("{calls}        {}\n", printed(&result))
}

/// Whether the algebra stands after an input that may be left out, and so goes by name.
fn is_optional(last: Option<&Input>) -> bool {
    last.is_some_and(|input| input.presence != Presence::Always)
}

/// Whether the output has its own channels.
fn has_outputs(operator: &Operator) -> bool {
    operator.output.ends_with("out]")
}

/// The sizes of the axes of a shape.
fn sizes(operator: &Operator, shape: &str, basis: &Basis) -> Vec<usize> {
    let axes = shape.trim_matches(['[', ']']).split(", ");
    let size = |axis: &str| match axis {
        "batch" => BATCH,
        "in" => CHANNELS,
        "out" => OUTPUTS,
        "C" => 1,
        "grades" => basis.dim + 1,
        "paths" => {
            let full = cayley::GradeSet::full(basis.dim);
            let table = basis.table(cayley::ProductKind::Geometric, full, full);
            table.paths.len()
        }
        blades if blades.contains("blades") => basis.len(),
        number => number
            .parse()
            .unwrap_or_else(|_| panic!("{}: the axis {number} is unknown", operator.name)),
    };
    axes.map(size).collect()
}

/// Numbers as PyTorch prints a tensor: whole ones without decimals, others with four.
fn printed(values: &[f64]) -> String {
    let is_whole = values.iter().all(|value| value.fract() == 0.0);
    let sizes = values
        .iter()
        .map(|value| value.abs())
        .filter(|size| *size > 0.0);
    let largest = sizes.clone().fold(0.0, f64::max);
    let smallest = sizes.fold(f64::INFINITY, f64::min);
    assert!(
        largest / smallest <= 1000.0 && (is_whole || smallest >= 1e-4),
        "{values:?} would be printed with exponents"
    );
    let texts: Vec<String> = values
        .iter()
        .map(|value| match is_whole {
            true => format!("{value:.0}."),
            false => format!("{value:.4}"),
        })
        .collect();
    let width = texts.iter().map(String::len).max().unwrap_or(0);
    let padded: Vec<String> = texts.iter().map(|text| format!("{text:>width$}")).collect();
    format!("tensor([{}])", padded.join(", "))
}
