//! The docstring of a function, all of it from the table: formula, shapes, options, errors, types, determinism, derivatives, symmetry,
//! source, example.

use flashcliff_operators::{Choice, Kind, Law, Operator, Presence, Setting};
use flashcliff_program::operators::{Entry, Settings, Value, find};

use super::example::example;
use super::{WIDTH, settings};
use crate::surface::accepted;
use crate::surface::text::{PYTHON, rename, wrap};

/// The argument of the grades of operators that have no setting for them.
const GRADES: &str = "        grades: The grades that ``x`` carries; ``None`` is all of them.\n";

/// The docstring of an operator.
pub(super) fn of_operator(operator: &Operator, takes_grades: bool) -> String {
    let render = |text: &str| PYTHON.render(&renamed(operator, text));
    let mut text = paragraph(&format!("\"\"\"{}", render(operator.title)));
    if !operator.formula.is_empty() {
        let formula = format!("``{}``", renamed(operator, operator.formula));
        text += &format!("\n{}", paragraph(&formula));
    }
    if !operator.details.is_empty() {
        text += &format!("\n{}", paragraph(&render(operator.details)));
    }
    let settings = settings(operator);
    text += &format!("\n{}\n{ALGEBRA}", shapes(operator));
    for setting in &settings {
        text += &argument(operator, setting);
    }
    if takes_grades {
        text += GRADES;
    }
    text += &facts(operator, &settings, None, takes_grades);
    text += &example(operator, operator.name, &Settings::of(operator));
    text + "    \"\"\"\n"
}

/// The docstring of a choice with its own function.
pub(super) fn of_choice(operator: &Operator, choice: &Choice) -> String {
    let doc = PYTHON.render(choice.doc);
    let doc = doc.replacen("the ", "The ", usize::from(doc.starts_with("the ")));
    let mut text = paragraph(&format!(
        "\"\"\"{doc}; one kind of :func:`{}`.",
        operator.name
    ));
    text += &format!("\n{}\n{ALGEBRA}", shapes(operator));
    let (kinds, others): (Vec<&Setting>, Vec<&Setting>) = settings(operator)
        .into_iter()
        .partition(|setting| matches!(setting.kind, Kind::Choice(_)));
    for setting in &others {
        text += &argument(operator, setting);
    }
    text += &facts(operator, &others, Some(choice.function), false);
    let chosen = kinds.iter().fold(Settings::of(operator), |all, setting| {
        all.with(setting.name, Value::Name(choice.name))
    });
    text += &example(operator, choice.function, &chosen);
    text + "    \"\"\"\n"
}

const ALGEBRA: &str =
    "    Args:\n        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.\n";

fn paragraph(text: &str) -> String {
    wrap(text, "    ", WIDTH)
}

/// A text of the table with the names that tensors have in Python.
fn renamed(operator: &Operator, text: &str) -> String {
    let inputs = operator
        .inputs
        .iter()
        .filter(|input| input.name != input.python);
    inputs.fold(text.to_owned(), |text, input| {
        rename(&text, input.name, input.python)
    })
}

/// A table of shapes.
fn shapes(operator: &Operator) -> String {
    let shape = |shape: &str| format!("``{}``", shape.replace("batch", "*batch"));
    let mut rows: Vec<(String, String)> = Vec::new();
    for input in operator.inputs {
        let absent = match input.presence {
            Presence::Always => "",
            _ => ", or ``None``",
        };
        rows.push((input.python.to_owned(), shape(input.shape) + absent));
    }
    rows.push(("output".to_owned(), shape(operator.output)));
    let first = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let second = rows.iter().map(|(_, shape)| shape.len()).max().unwrap_or(0);
    let rule = format!("    {}  {}\n", "=".repeat(first), "=".repeat(second));
    let mut text = format!("{rule}    {:first$}  shape\n{rule}", "tensor");
    for (name, shape) in rows {
        text += &format!("    {name:first$}  {shape}\n");
    }
    text + &rule
}

/// An entry of `Args` or `Raises`, whose further lines stand deeper.
fn item(text: &str) -> String {
    wrap(text, "            ", WIDTH).replacen("            ", "        ", 1)
}

fn argument(operator: &Operator, setting: &Setting) -> String {
    let about = format!(
        "{}: {}{}",
        setting.python,
        setting.doc,
        choices(operator, setting)
    );
    item(&PYTHON.render(&renamed(operator, &about)))
}

/// The names of a setting, with what they stand for.
fn choices(operator: &Operator, setting: &Setting) -> String {
    match setting.kind {
        Kind::Choice(_) => {}
        Kind::Grades => return " `None` is all of them.".to_owned(),
        _ => return String::new(),
    }
    // Whether there is a bias at all, the tensor says.
    let accepted = accepted::choices(operator, setting).into_iter();
    let named = accepted.filter(|choice| !setting.refused_in_python.contains(&choice.name));
    let named = named.map(|choice| format!("`{}`: {}", choice.name, choice.doc));
    format!(" {}.", named.collect::<Vec<_>>().join("; "))
}

/// Errors, then a list of facts, and the heading of the example.
fn facts(
    operator: &Operator,
    settings: &[&Setting],
    function: Option<&str>,
    takes_grades: bool,
) -> String {
    let entry = find(operator.name).expect("operators are in the list");
    let mut text = "\n    Raises:\n".to_owned();
    for (error, reasons) in errors(entry, settings, takes_grades) {
        text += &item(&format!("{error}: {reasons}."));
    }
    text.push('\n');
    let source = PYTHON.render(operator.source);
    for (fact, about) in [
        ("Types", types(operator)),
        ("Deterministic", determinism(entry, settings)),
        ("Derivatives", derivatives(entry).to_owned()),
        ("Commutes with", symmetry(entry, function)),
        ("Source", source.trim_end_matches('.').to_owned()),
    ] {
        let lines = wrap(&format!("{fact}: {about}."), "      ", WIDTH);
        text += &lines.replacen("      ", "    - ", 1);
    }
    text + "\n    Example:\n"
}

/// The exceptions, each with its reasons.
fn errors(entry: &Entry, settings: &[&Setting], takes_grades: bool) -> Vec<(&'static str, String)> {
    let mut values = vec!["A shape".to_owned()];
    let mut types = vec!["An element type", "tensors of several types"];
    let mut unsupported = vec!["A sparse or nested tensor"];
    if settings.iter().any(|s| matches!(s.kind, Kind::Choice(_))) {
        values.push("an unknown name".to_owned());
    }
    if takes_grades || settings.iter().any(|s| matches!(s.kind, Kind::Grades)) {
        values.push("grades that the algebra lacks".to_owned());
    }
    for setting in settings {
        match setting.kind {
            Kind::Number => values.push(format!("a negative or infinite ``{}``", setting.python)),
            Kind::Bytes => values.push(format!("``{}`` below 1", setting.python)),
            _ => {}
        }
    }
    if takes_grades || !settings.is_empty() {
        types.push("an option of another kind");
    }
    let has = |name: &str| settings.iter().any(|setting| setting.name == name);
    if has("left")
        && entry
            .lanes
            .is_some_and(|lanes| !lanes.is_zero_without_result)
    {
        unsupported.push("grades without a product");
    }
    if has("bias") && has("grades") {
        unsupported.push("a scalar bias for grades without 0");
    }
    vec![
        ("ValueError", values.join(", ")),
        ("TypeError", types.join(", ")),
        ("RuntimeError", "Tensors on different devices".to_owned()),
        ("flashcliff.UnsupportedError", unsupported.join(", ")),
        ("flashcliff.CudaError", "A failure of CUDA".to_owned()),
    ]
}

/// The element types by device.
fn types(operator: &Operator) -> String {
    let mut text =
        "float32 and float64; on CUDA bfloat16 and float16 too, computed in float32".to_owned();
    let parameters = operator.inputs.iter().filter(|input| input.is_parameter());
    let names: Vec<String> = parameters.map(|i| format!("`{}`", i.python)).collect();
    if let Some((last, others)) = names.split_last() {
        let names = match others {
            [] => last.clone(),
            _ => format!("{} and {last}", others.join(", ")),
        };
        text += &format!(", with {names} in the same type or float32");
    }
    text += match operator.autocast {
        true => ". Autocast casts multivectors to its type on CUDA",
        false => ". Autocast on CUDA leaves the type",
    };
    PYTHON.render(&text)
}

/// On what the bits of a result depend.
fn determinism(entry: &Entry, settings: &[&Setting]) -> String {
    let mut on_gpus = vec!["shapes", "alignment", "kind of GPU", "tuning table"];
    if entry.lanes.is_none() {
        on_gpus.push("version of cuBLASLt");
    }
    for setting in settings {
        if matches!(setting.kind, Kind::Bytes) {
            on_gpus.push("``block_bytes``");
        }
    }
    let last = on_gpus.pop().unwrap_or_default();
    format!(
        "yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on threads; on CUDA on {} and {last}",
        on_gpus.join(", ")
    )
}

/// The orders of derivatives, and what computes them.
fn derivatives(entry: &Entry) -> &'static str {
    if entry.row.gradient.linear {
        return "every order, reverse and forward mode; the operator is linear, so those above the first are zero";
    }
    match entry.lanes {
        Some(_) => {
            "every order that kernels have room for, at least three in algebras of up to four dimensions, reverse and \
             forward mode"
        }
        None => {
            "every order, reverse and forward mode; all but the first gradient are composed of PyTorch operations"
        }
    }
}

/// The transformations that a function commutes with, by option.
fn symmetry(entry: &Entry, function: Option<&str>) -> String {
    let own = entry.symmetry.iter().filter(|law| law.function.is_some());
    let of_function = own.clone().filter(|law| law.function == function);
    let mut laws: Vec<&Law> = match function {
        Some(_) => of_function.collect(),
        None => own.collect(),
    };
    if function.is_none() || laws.is_empty() {
        let common = entry.symmetry.iter().filter(|law| law.function.is_none());
        laws.splice(0..0, common);
    }
    let settings = settings(&entry.row);
    let described = laws.iter().map(|law| {
        let groups = match law.definite == law.otherwise {
            true => law.definite.group().to_owned(),
            false => format!(
                "{} where all vectors square to one sign, {} elsewhere",
                law.definite.group(),
                law.otherwise.group()
            ),
        };
        let python = |name: &str| {
            let setting = settings.iter().find(|setting| setting.name == name);
            setting.map_or(name.to_owned(), |setting| setting.python.to_owned())
        };
        match (law.option, law.function) {
            (Some((name, choice)), _) => {
                format!("with ``{}=\"{choice}\"`` {groups}", python(name))
            }
            (_, Some(own)) if function.is_none() => format!(":func:`{own}` {groups}"),
            _ => groups,
        }
    });
    described.collect::<Vec<_>>().join("; ")
}
