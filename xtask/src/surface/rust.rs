//! `flashcliff::ops`.

use flashcliff_operators::{Kind, OPTION_SETS, Operator, OptionSet, Options, Presence, Setting};
use flashcliff_program::operators::{self, OPERATORS};

use super::text::{Markup, RUST, RUST_HERE, wrap};

const WIDTH: usize = 100;

pub(super) const HEADER: &str = "// Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.\n\n";

/// The functions, one for each operator.
pub(super) fn functions() -> String {
    let mut text = HEADER.to_owned();
    text += "use cayley::{GradeSet, ProductKind};\n\nuse super::{Setting, make};\n";
    text += "use super::options::{LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};\n";
    text += "#[allow(unused_imports, reason = \"links of the documentation\")]\n";
    text += "use crate::{Algebra, Bias, Error, Gate, Invariant, Norm, Operator, WeightLayout};\n";
    for operator in OPERATORS {
        text.push('\n');
        text += &documentation(operator, RUST_HERE, true);
        let (arguments, names) = arguments(operator);
        let name = operator.name;
        text +=
            &format!("pub fn {name}(algebra: Algebra{arguments}) -> Result<Operator, Error> {{\n");
        let call = match is_of_lanes(operator) {
            true => format!("make::lanes(\"{name}\", algebra, {})", settings(operator)),
            false => format!("make::{name}(algebra{names})"),
        };
        text += &format!("    {call}\n}}\n");
    }
    text
}

/// Whether lane programs compute an operator. The library has a separate function for every other
/// operator.
fn is_of_lanes(operator: &Operator) -> bool {
    operators::find(operator.name).is_some_and(|entry| entry.lanes.is_some())
}

/// The arguments of a function as settings by name.
fn settings(operator: &Operator) -> String {
    match operator.options {
        Options::Set(_) => "&options.settings()".to_owned(),
        Options::Each(settings) => {
            let named = settings.iter().map(|setting| named(setting, setting.name));
            format!("&[{}]", named.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A setting by name with the value of an expression.
fn named(setting: &Setting, value: &str) -> String {
    let value = match setting.kind {
        Kind::Choice(_) => format!("Setting::Name({value}.name())"),
        Kind::Number => format!("Setting::Number({value})"),
        Kind::Flag => format!("Setting::Flag({value})"),
        Kind::Grades | Kind::Bytes => format!("Setting::Grades({value})"),
    };
    format!("(\"{}\", {value})", setting.name)
}

/// The doc comment of a function.
pub(super) fn documentation(operator: &Operator, markup: Markup, is_core: bool) -> String {
    let mut text = wrap(&markup.render(operator.title), "/// ", WIDTH);
    let mut paragraph = |content: String| {
        text += "///\n";
        text += &content;
    };
    if !operator.formula.is_empty() {
        paragraph(format!("/// ```text\n/// {}\n/// ```\n", operator.formula));
    }
    if !operator.details.is_empty() {
        paragraph(wrap(&markup.render(operator.details), "/// ", WIDTH));
    }
    if !operator.rust_note.is_empty() {
        paragraph(wrap(&markup.render(operator.rust_note), "/// ", WIDTH));
    }
    let mut table = "/// | tensor | shape |\n/// |---|---|\n".to_owned();
    for input in operator.inputs {
        let (name, shape) = (input.name, input.shape);
        table += &format!("/// | `{name}` | `{shape}`{} |\n", presence(input.presence));
    }
    table += &format!("/// | `o` | `{}` |\n", operator.output);
    paragraph(table);
    if let Options::Each(settings) = operator.options {
        for setting in settings {
            let about = format!("`{}`: {}", setting.name, described(setting));
            let wrapped = wrap(&markup.render(&about), "///   ", WIDTH);
            paragraph(wrapped.replacen("///   ", "/// * ", 1));
        }
    }
    if !operator.source.is_empty() {
        paragraph(wrap(&format!("Source: {}", operator.source), "/// ", WIDTH));
    }
    if is_core {
        let errors = match operator.errors {
            "" => "None.",
            errors => errors,
        };
        paragraph(format!(
            "/// # Errors\n{}",
            wrap(&markup.render(errors), "/// ", WIDTH)
        ));
    }
    text
}

fn presence(presence: Presence) -> String {
    match presence {
        Presence::Always => String::new(),
        Presence::WithBias => ", unless the bias is `none`".to_owned(),
        Presence::With(flag) => format!(", with `{flag}`"),
    }
}

/// The text of a setting, with its default.
fn described(setting: &Setting) -> String {
    let default = match setting.kind {
        Kind::Grades => "`None` is all of them.".to_owned(),
        _ => format!(
            "The program and Python take `{}` by default.",
            setting.default
        ),
    };
    format!("{} {default}", setting.doc)
}

/// The arguments after the algebra, as declared and as passed on.
pub(super) fn arguments(operator: &Operator) -> (String, String) {
    match operator.options {
        Options::Set(set) => (format!(", options: &{}", set.name), ", options".to_owned()),
        Options::Each(settings) => {
            settings
                .iter()
                .fold(Default::default(), |(declared, passed), setting| {
                    let name = setting.name;
                    let declared = format!("{declared}, {name}: {}", type_of(setting.kind));
                    (declared, format!("{passed}, {name}"))
                })
        }
    }
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Choice(choices) => choices.rust,
        Kind::Number => "f64",
        Kind::Flag => "bool",
        Kind::Grades => "Option<GradeSet>",
        Kind::Bytes => "Option<usize>",
    }
}

/// The default of a setting, in Rust.
fn default(setting: &Setting) -> String {
    match setting.kind {
        Kind::Choice(choices) => format!("{}::{}", choices.rust, camel(setting.default)),
        Kind::Number | Kind::Flag => setting.default.to_owned(),
        Kind::Grades | Kind::Bytes => "None".to_owned(),
    }
}

fn camel(name: &str) -> String {
    let words = name.split('_');
    words
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        })
        .collect()
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// The structs of options.
pub(super) fn options() -> String {
    let mut text = HEADER.to_owned();
    text += "use cayley::GradeSet;\n\nuse super::Setting;\nuse crate::{Bias, Gate, Norm, WeightLayout};\n";
    for set in OPTION_SETS {
        text.push('\n');
        text += &struct_of(set);
    }
    text
}

fn struct_of(set: &OptionSet) -> String {
    let name = set.name;
    let (mut fields, mut defaults, mut setters) = (String::new(), String::new(), String::new());
    let mut field = |name: &str, type_name: &str, doc: &str, default: &str, is_grades: bool| {
        let doc = format!("{} Default: `{default}`.", RUST.render(doc));
        fields += &wrap(&doc, "    /// ", WIDTH);
        fields += &format!("    pub {name}: {type_name},\n");
        defaults += &format!("            {name}: {default},\n");
        let (argument, value) = match is_grades {
            true => ("impl Into<Option<GradeSet>>", ".into()"),
            false => (type_name, ""),
        };
        setters += &format!(
            "    /// Sets [`{name}`](Self::{name}).\n    #[must_use]\n    \
             pub fn with_{name}(mut self, {name}: {argument}) -> Self {{\n        \
             self.{name} = {name}{value};\n        self\n    }}\n\n"
        );
    };
    if let Some((name, nested, doc)) = set.nested {
        let default = format!("{}::default()", nested.name);
        field(name, nested.name, doc, &default, false);
    }
    for setting in set.settings {
        let is_grades = matches!(setting.kind, Kind::Grades);
        let doc = match is_grades {
            true => format!("{} All grades if `None`.", setting.doc),
            false => setting.doc.to_owned(),
        };
        field(
            setting.name,
            type_of(setting.kind),
            &doc,
            &default(setting),
            is_grades,
        );
    }
    let mut values: Vec<String> = Vec::new();
    for setting in set.settings {
        values.push(named(setting, &format!("self.{}", setting.name)));
    }
    let values = format!("vec![{}]", values.join(", "));
    let values = match set.nested {
        None => values,
        Some((nested, ..)) => {
            format!(
                "let mut settings = self.{nested}.settings();\n        settings.extend({values});\n        settings"
            )
        }
    };
    setters += &format!(
        "    /// The settings by name, as [`by_name`](super::by_name) takes them.\n    \
         pub fn settings(&self) -> Vec<(&'static str, Setting<'static>)> {{\n        {values}\n    }}\n\n"
    );
    format!(
        "{}#[derive(Clone, Debug, PartialEq)]\n#[non_exhaustive]\npub struct {name} {{\n{fields}}}\n\n\
         impl Default for {name} {{\n    fn default() -> Self {{\n        Self {{\n{defaults}        }}\n    }}\n}}\n\n\
         impl {name} {{\n{}}}\n",
        wrap(&RUST.render(set.doc), "/// ", WIDTH),
        setters.trim_end().to_owned() + "\n",
    )
}

/// The function that finds operators by their names.
pub(super) fn by_name() -> String {
    let mut text = HEADER.to_owned();
    text += "use cayley::ProductKind;\n\nuse super::given::Given;\n";
    text += "use super::options::{LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};\n";
    text += "use crate::{Algebra, Error, Gate, Invariant, Norm, Operator};\n\n";
    text += "/// The operator of a name that the table has, with its settings; `None` for other names.\n";
    text += "pub(super) fn by_name(\n    algebra: Algebra,\n    name: &str,\n    given: &mut Given<'_>,\n";
    text += ") -> Option<Result<Operator, Error>> {\n    Some(match name {\n";
    for operator in OPERATORS {
        let name = operator.name;
        text += &format!("        \"{name}\" => {name}(algebra, given),\n");
    }
    text += "        _ => return None,\n    })\n}\n";
    for operator in OPERATORS {
        let name = operator.name;
        let argument = match operator.options.settings().is_empty() {
            true => "given: &Given<'_>",
            false => "given: &mut Given<'_>",
        };
        text +=
            &format!("\nfn {name}(algebra: Algebra, {argument}) -> Result<Operator, Error> {{\n");
        let (_, passed) = arguments(operator);
        match operator.options {
            Options::Set(set) => {
                text += &format!("    let options = &{}(given)?;\n", snake(set.name));
            }
            Options::Each(settings) => {
                for setting in settings {
                    text += &format!(
                        "    let {} = {}?;\n",
                        setting.name,
                        read(setting, &default(setting))
                    );
                }
            }
        }
        text +=
            &format!("    given.finish(\"{name}\")?;\n    super::{name}(algebra{passed})\n}}\n");
    }
    for set in OPTION_SETS {
        let name = set.name;
        let function = snake(name);
        text += &format!("\nfn {function}(given: &mut Given<'_>) -> Result<{name}, Error> {{\n");
        text += &format!("    let default = {name}::default();\n    Ok({name} {{\n");
        if let Some((field, nested, _)) = set.nested {
            text += &format!("        {field}: {}(given)?,\n", snake(nested.name));
        }
        for setting in set.settings {
            let default = format!("default.{}", setting.name);
            text += &format!("        {}: {}?,\n", setting.name, read(setting, &default));
        }
        text += "    })\n}\n";
    }
    text
}

/// The expression that reads a setting.
fn read(setting: &Setting, default: &str) -> String {
    let name = setting.name;
    match setting.kind {
        Kind::Choice(_) => format!("given.choice(\"{name}\", {default})"),
        Kind::Number => format!("given.number(\"{name}\", {default})"),
        Kind::Flag => format!("given.flag(\"{name}\", {default})"),
        Kind::Grades | Kind::Bytes => format!("given.grades(\"{name}\")"),
    }
}
