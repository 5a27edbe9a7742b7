//! The Python package: functions of PyTorch tensors, of arrays of JAX and of any arrays, and the rows that they use.

mod documentation;
mod example;

use flashcliff_operators::{Choice, Kind, Operator, Presence, Setting};
use flashcliff_program::operators::OPERATORS;

const WIDTH: usize = 100;
const HEADER: &str =
    "# Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.\n";

/// A module that has the functions: what its tensors are called, and how it documents and runs a call.
struct Module {
    name: &'static str,
    tensor: &'static str,
    imports: &'static str,
    documents: Documents,
    /// Whether involutions and duals may be of some grades.
    takes_grades: bool,
}

/// What a module says of a function.
enum Documents {
    /// All of it; calls go by the compiled path first.
    All,
    /// Where it is documented, and in what the function differs.
    As(&'static str),
}

const FUNCTIONAL: Module = Module {
    name: "functional",
    tensor: "Tensor",
    imports: "from torch import Tensor\nfrom torch.compiler import is_dynamo_compiling\n\n\
        from .._ops import checks\nfrom .._ops.tensors import call, unary, warn_of_gates\n",
    documents: Documents::All,
    takes_grades: true,
};

const ARRAYS: Module = Module {
    name: "arrays",
    tensor: "Array",
    imports: "from .._ops import checks\nfrom .._ops.borrowed import Array, call\n\
        from .._ops.surprises import gates_without_scalars as warn_of_gates\n",
    documents: Documents::As(", forward only"),
    takes_grades: false,
};

const JAX: Module = Module {
    name: "jax",
    tensor: "Array",
    imports: "from .._jax.call import Array, call, unary\nfrom .._ops import checks\n\
        from .._ops.surprises import gates_without_scalars as warn_of_gates\n",
    documents: Documents::As(""),
    takes_grades: true,
};

/// `flashcliff.functional`.
pub(super) fn functional() -> String {
    FUNCTIONAL.text()
}

/// `flashcliff.arrays`.
pub(super) fn arrays() -> String {
    ARRAYS.text()
}

/// `flashcliff.jax`.
pub(super) fn jax() -> String {
    JAX.text()
}

impl Module {
    fn text(&self) -> String {
        let Self { name, imports, .. } = self;
        format!(
            "{HEADER}\"\"\"The functions of :mod:`flashcliff.{name}`, which documents them together.\"\"\"\n\n\
             from __future__ import annotations\n\n{imports}\
             from ..algebra import AlgebraLike, Grades, grades_of\nfrom . import table\n\n{}{}",
            all(),
            functions(self)
        )
    }
}

fn all() -> String {
    let own = OPERATORS.iter().map(|operator| operator.name);
    let mut names: Vec<&str> = own
        .chain(
            OPERATORS
                .iter()
                .flat_map(Operator::functions)
                .map(|(_, choice)| choice.function),
        )
        .collect();
    names.sort_unstable();
    let lines: String = names
        .iter()
        .map(|name| format!("    \"{name}\",\n"))
        .collect();
    format!("__all__ = [\n{lines}]\n")
}

fn functions(module: &Module) -> String {
    let mut text = String::new();
    for operator in OPERATORS {
        text += &format!("\n\n{}", function(operator, module));
        for (_, choice) in operator.functions() {
            text += &format!("\n\n{}", function_of_choice(operator, choice, module));
        }
    }
    text
}

fn function(operator: &Operator, module: &Module) -> String {
    let name = operator.name;
    let takes_grades = module.takes_grades && operator.gradient.linear;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    // A tensor that may be left out at the end has a default, and so the algebra goes by name.
    let trailing = operator.inputs.iter().rev();
    let optional = trailing
        .take_while(|i| i.presence != Presence::Always)
        .count();
    for (index, input) in operator.inputs.iter().enumerate() {
        let annotation = match input.presence {
            Presence::Always => module.tensor.to_owned(),
            _ => format!("{} | None", module.tensor),
        };
        let default = match index + optional >= operator.inputs.len() {
            true => " = None",
            false => "",
        };
        before.push(format!("{}: {annotation}{default}", input.python));
    }
    match optional {
        0 => before.push("algebra: AlgebraLike".to_owned()),
        _ => after.push("algebra: AlgebraLike".to_owned()),
    }
    for setting in settings(operator) {
        let argument = format!(
            "{}: {} = {}",
            setting.python,
            annotation(setting),
            default(setting)
        );
        // A choice whose names have their own functions is given by position.
        match operator
            .functions()
            .any(|(own, _)| own.name == setting.name)
        {
            true => before.push(argument),
            false => after.push(argument),
        }
    }
    if takes_grades {
        after.push("grades: Grades = None".to_owned());
    }
    if !after.is_empty() {
        before.push("*".to_owned());
    }
    before.extend(after);
    let mut text = signature(name, &before, module.tensor);
    text += &match module.documents {
        Documents::All => {
            documentation::of_operator(operator, takes_grades) + &native(operator, takes_grades)
        }
        Documents::As(differs) => as_functional(name, differs),
    };
    text + &body(operator, takes_grades)
}

/// Where a function is documented, and in what it differs.
fn as_functional(name: &str, differs: &str) -> String {
    format!("    \"\"\"As :func:`flashcliff.functional.{name}`{differs}.\"\"\"\n")
}

/// The call by the compiled path, which gives `None` for what it leaves to the code below it.
fn native(operator: &Operator, takes_grades: bool) -> String {
    let constant = operator.name.to_uppercase();
    let tensors = operator.inputs.iter().map(|input| input.python);
    let options = settings(operator).into_iter().map(|setting| setting.python);
    let arguments: Vec<&str> = tensors.chain(["algebra"]).chain(options).collect();
    let whole = match takes_grades {
        true => "grades is None and ",
        false => "",
    };
    let condition = format!(
        "    if {whole}not is_dynamo_compiling() and (native := table.{constant}.native) is not None:\n"
    );
    let condition = match condition.len() <= WIDTH + 1 {
        true => condition,
        false => format!(
            "    if (\n        {whole}not is_dynamo_compiling()\n        and (native := table.{constant}.native) is not None\n    ):\n"
        ),
    };
    let line = format!("        output = native({})\n", arguments.join(", "));
    let inner = format!("            {}\n", arguments.join(", "));
    let fits = |text: &str| text.len() <= WIDTH + 1;
    let call = match (fits(&line), fits(&inner)) {
        (true, _) => line,
        (_, true) => format!("        output = native(\n{inner}        )\n"),
        _ => format!(
            "        output = native(\n            {},\n        )\n",
            arguments.join(",\n            ")
        ),
    };
    format!("{condition}{call}        if output is not None:\n            return output\n")
}

/// The settings that are arguments in Python: not those that follow from which tensors are given.
fn settings(operator: &Operator) -> Vec<&'static Setting> {
    let mut settings = operator.options.settings();
    settings.extend(operator.python_settings);
    let follows = |setting: &Setting| {
        let with = Presence::With(setting.name);
        operator.inputs.iter().any(|input| input.presence == with)
    };
    settings.retain(|setting| !follows(setting));
    settings
}

fn signature(name: &str, arguments: &[String], result: &str) -> String {
    let line = format!("def {name}({}) -> {result}:\n", arguments.join(", "));
    let noqa = "l: ";
    let has_l = arguments.iter().any(|argument| argument.starts_with(noqa));
    if line.len() <= WIDTH + 1 && !has_l {
        return line;
    }
    let inner = format!("    {}\n", arguments.join(", "));
    if inner.len() <= WIDTH + 1 && !has_l {
        return format!("def {name}(\n{inner}) -> {result}:\n");
    }
    let lines = arguments
        .iter()
        .map(|argument| match argument.starts_with(noqa) {
            true => format!("    {argument},  # noqa: E741, the name in the formula\n"),
            false => format!("    {argument},\n"),
        });
    format!("def {name}(\n{}) -> {result}:\n", lines.collect::<String>())
}

fn annotation(setting: &Setting) -> &'static str {
    match setting.kind {
        Kind::Choice(_) => "str",
        Kind::Number => "float",
        Kind::Flag => "bool",
        Kind::Grades => "Grades",
        Kind::Bytes => "int | None",
    }
}

fn default(setting: &Setting) -> String {
    match (setting.kind, setting.default) {
        (Kind::Choice(_), name) => format!("\"{name}\""),
        (Kind::Number, number) => number.to_owned(),
        (Kind::Flag, "true") => "True".to_owned(),
        (Kind::Flag, _) => "False".to_owned(),
        (Kind::Grades | Kind::Bytes, _) => "None".to_owned(),
    }
}

fn body(operator: &Operator, takes_grades: bool) -> String {
    let constant = operator.name.to_uppercase();
    if takes_grades {
        return format!("    return unary(table.{constant}, x, algebra, grades)\n");
    }
    let settings = settings(operator);
    let mut text = String::new();
    let tensors = tuple(operator.inputs.iter().map(|input| input.python.to_owned()));
    let mut options = "()".to_owned();
    if !settings.is_empty() {
        let checked = settings.iter().map(|setting| checked(setting));
        let lines: String = checked.map(|check| format!("        {check},\n")).collect();
        text += &format!("    options = (\n{lines}    )\n");
        options = "options".to_owned();
    }
    if let Some(arguments) = gated(&settings) {
        text += &format!("    warn_of_gates(\"{}\", {arguments})\n", operator.name);
    }
    text + &format!("    return call(table.{constant}, {tensors}, algebra, {options})\n")
}

/// The arguments of the warning of gates without scalars, for operators that gate operands of some grades.
fn gated(settings: &[&Setting]) -> Option<String> {
    let at = |name: &str| {
        let index = settings.iter().position(|setting| setting.name == name)?;
        Some(format!("options[{index}]"))
    };
    let gate = at("gate")?;
    match (at("left"), at("right"), at("grades")) {
        (Some(left), Some(right), _) => Some(format!("{gate}, {left}, {right}")),
        (_, _, Some(grades)) => Some(format!("{gate}, {grades}, {grades}")),
        _ => None,
    }
}

fn tuple(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match &names[..] {
        [one] => format!("({one},)"),
        more => format!("({})", more.join(", ")),
    }
}

/// The expression that checks an argument.
fn checked(setting: &Setting) -> String {
    let name = setting.python;
    match setting.kind {
        Kind::Choice(_) => format!("checks.choice(\"{name}\", {name})"),
        Kind::Number => format!("checks.number(\"{name}\", {name})"),
        Kind::Flag => format!("checks.flag(\"{name}\", {name})"),
        Kind::Grades => {
            format!("None if {name} is None else grades_of(algebra, \"{name}\", {name})")
        }
        Kind::Bytes => format!("checks.{name}({name})"),
    }
}

fn function_of_choice(operator: &Operator, choice: &Choice, module: &Module) -> String {
    let arguments = [
        format!("x: {}", module.tensor),
        format!("y: {}", module.tensor),
        "algebra: AlgebraLike".to_owned(),
        "*".to_owned(),
        "left: Grades = None".to_owned(),
        "right: Grades = None".to_owned(),
    ];
    let doc = match module.documents {
        Documents::All => documentation::of_choice(operator, choice),
        Documents::As(differs) => as_functional(choice.function, differs),
    };
    signature(choice.function, &arguments, module.tensor)
        + &doc
        + &format!(
            "    return product(x, y, algebra, \"{}\", left=left, right=right)\n",
            choice.name
        )
}

/// The names that options have, and their earlier spellings.
pub(super) fn choices_of_options() -> String {
    let mut options: Vec<&Setting> = Vec::new();
    for setting in OPERATORS.iter().flat_map(settings) {
        let is_new = options.iter().all(|known| known.python != setting.python);
        if matches!(setting.kind, Kind::Choice(_)) && is_new {
            options.push(setting);
        }
    }
    let (mut names, mut spellings, mut functions) = (String::new(), String::new(), String::new());
    for setting in options {
        let entry = |open: &str, items: Vec<String>, close: &str| match items.is_empty() {
            true => String::new(),
            false => listed(
                &format!("    \"{}\": ", setting.python),
                open,
                &items,
                close,
            ),
        };
        let pair = |key: &str, value: &str| format!("\"{key}\": \"{value}\"");
        let quoted = setting
            .python_names()
            .map(|choice| format!("\"{}\"", choice.name));
        names += &entry("(", quoted.collect(), ")");
        let old = setting
            .python_names()
            .flat_map(|choice| choice.old.iter().map(move |old| pair(old, choice.name)));
        spellings += &entry("{", old.collect(), "}");
        let own = setting
            .python_names()
            .filter(|choice| !choice.function.is_empty());
        let own = own.map(|choice| pair(choice.name, choice.function));
        functions += &entry("{", own.collect(), "}");
    }
    format!(
        "{HEADER}\"\"\"The names that options have.\"\"\"\n\nfrom __future__ import annotations\n\n\
         CHOICES: dict[str, tuple[str, ...]] = {{\n{names}}}\n\"\"\"The names, by option.\"\"\"\n\n\
         OLD_SPELLINGS: dict[str, dict[str, str]] = {{\n{spellings}}}\n\
         \"\"\"The present spelling, by option and earlier spelling.\"\"\"\n\n\
         FUNCTIONS: dict[str, dict[str, str]] = {{\n{functions}}}\n\
         \"\"\"The functions that names have, by option and name.\"\"\"\n"
    )
}

/// An entry of a dictionary, on one line if it fits.
fn listed(start: &str, open: &str, items: &[String], close: &str) -> String {
    let line = format!("{start}{open}{}{close},\n", items.join(", "));
    if line.len() <= WIDTH + 1 {
        return line;
    }
    let lines: String = items
        .iter()
        .map(|item| format!("        {item},\n"))
        .collect();
    format!("{start}{open}\n{lines}    {close},\n")
}

/// The rows that the functions use.
pub(super) fn table() -> String {
    let mut text = HEADER.to_owned();
    text += "\"\"\"Every operator: its tensors, its options, what its gradient needs.\"\"\"\n\n";
    text += "from __future__ import annotations\n\nfrom .._ops.op import Op, Option\n\n";
    for operator in OPERATORS {
        text += &row(operator);
    }
    let names: String = OPERATORS
        .iter()
        .map(|o| format!("    {},\n", o.name.to_uppercase()))
        .collect();
    text + &format!("OPS: tuple[Op, ...] = (\n{names})\n\"\"\"All operators.\"\"\"\n")
}

fn row(operator: &Operator) -> String {
    let mut lines = vec![format!("    \"{}\",\n", operator.name)];
    let inputs = operator.inputs.iter().map(|input| {
        let optional = if input.presence == Presence::Always {
            ""
        } else {
            "?"
        };
        format!("\"{}{optional}\"", input.python)
    });
    lines.push(format!("    {},\n", tuple(inputs)));
    let settings = settings(operator);
    let options: String = settings
        .iter()
        .map(|setting| {
            let is_own = operator
                .python_settings
                .iter()
                .any(|own| own.name == setting.name);
            let native = match is_own {
                true => "None".to_owned(),
                false => format!("\"{}\"", setting.name),
            };
            format!(
                "        Option(\"{}\", \"{}\", {}, {native}),\n",
                setting.python,
                schema_type(setting),
                default(setting)
            )
        })
        .collect();
    lines.push(match options.is_empty() {
        true => "    (),\n".to_owned(),
        false => format!("    (\n{options}    ),\n"),
    });
    let parameters = operator.inputs.iter().filter(|input| input.is_parameter());
    let parameters: Vec<String> = parameters
        .map(|input| format!("\"{}\"", input.python))
        .collect();
    if !parameters.is_empty() {
        lines.push(format!(
            "    parameters={},\n",
            tuple(parameters.into_iter())
        ));
    }
    let flags: Vec<String> = operator
        .inputs
        .iter()
        .filter_map(|input| match input.presence {
            Presence::Always => None,
            Presence::WithBias => Some(format!("(\"{}\", \"bias\")", input.python)),
            Presence::With(flag) => Some(format!("(\"{}\", \"{flag}\")", input.python)),
        })
        .collect();
    if !flags.is_empty() {
        lines.push(format!("    says={},\n", tuple(flags.into_iter())));
    }
    let gradient = operator.gradient;
    for (is_so, word) in [
        (gradient.saves, "saves"),
        (gradient.linear, "linear"),
        (gradient.reads_output, "undoes_norm"),
        (operator.autocast, "autocast"),
    ] {
        if is_so {
            lines.push(format!("    {word}=True,\n"));
        }
    }
    format!(
        "{} = Op(\n{})\n",
        operator.name.to_uppercase(),
        lines.concat()
    )
}

/// The type in a schema of PyTorch.
fn schema_type(setting: &Setting) -> &'static str {
    match setting.kind {
        Kind::Choice(_) => "str",
        Kind::Number => "float",
        Kind::Flag => "bool",
        Kind::Grades => "int[]?",
        Kind::Bytes => "int?",
    }
}
