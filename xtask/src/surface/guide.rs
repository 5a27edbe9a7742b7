//! The reference of operators in the guide: formulas, shapes, options, sources.

use flashcliff_operators::{CHOICES, Choice, Input, Kind, Operator, Presence, Section, Setting};
use flashcliff_program::operators::OPERATORS;

use super::accepted;
use super::text::{Markup, wrap};
use crate::Error;
use crate::marked::with_block;

/// The chapter that holds the reference.
pub(super) const PAGE: &str = "docs/guide/src/operators.md";
const START: &str = "<!-- operators: written by cargo xtask gen -->\n";
const WIDTH: usize = 120;

/// Markdown, where each operator has a heading of its name.
const MARKUP: Markup = Markup {
    operator: |name| format!("[`{name}`](#{name})"),
    code: "`",
};

/// The chapter with the reference of today between its marks.
pub(super) fn with_reference(chapter: &str) -> Result<String, Error> {
    with_block(PAGE, chapter, START, &reference())
}

fn reference() -> String {
    let sections = [
        (Section::Fused, "Weighted products and linear maps"),
        (Section::Cgenn, "CGENN's layers"),
        (Section::Product, "Products without weights"),
        (Section::Unary, "Functions of one multivector"),
    ];
    let mut text = String::new();
    for (section, heading) in sections {
        text += &format!("\n### {heading}\n");
        for operator in OPERATORS.iter().filter(|o| o.section == section) {
            text += &entry(operator);
        }
    }
    text += "\n### Names that options take\n";
    for choices in CHOICES {
        text += &format!("\n**{}**\n\n", choices.what);
        text += &choices.values.iter().map(named).collect::<String>();
    }
    text + "\n"
}

fn entry(operator: &Operator) -> String {
    let mut text = format!(
        "\n#### `{}`\n\n{}",
        operator.name,
        paragraph(operator.title)
    );
    if !operator.formula.is_empty() {
        text += &format!("\n```text\n{}```\n", wrap(operator.formula, "", WIDTH));
    }
    if !operator.details.is_empty() {
        text += &format!("\n{}", paragraph(operator.details));
    }
    text += &format!("\n{}", item("Input", &list(operator.inputs, input)));
    text += &item("Output", &format!("`o` `{}`", operator.output));
    let mut settings = operator.options.settings();
    settings.extend(operator.python_settings);
    if !settings.is_empty() {
        text += &item(
            "Options",
            &list(&settings, |setting| option(operator, setting)),
        );
    }
    if !operator.source.is_empty() {
        text += &item("Source", operator.source);
    }
    text
}

fn input(input: &Input) -> String {
    let absent = match input.presence {
        Presence::Always => "",
        Presence::WithBias | Presence::With(_) => " (may be left out)",
    };
    format!("`{}` `{}`{absent}", input.name, input.shape)
}

fn option(operator: &Operator, setting: &Setting) -> String {
    let Kind::Choice(_) = setting.kind else {
        return format!("`{}` ({})", setting.name, setting.default);
    };
    let quoted = |name: &str| format!("`{name}`");
    let accepted = accepted::choices(operator, setting).into_iter();
    let others = accepted.map(|choice| choice.name);
    let others: Vec<String> = others
        .filter(|name| *name != setting.default)
        .map(quoted)
        .collect();
    let refused = setting.refused_in_python.iter();
    let refused: Vec<String> = refused.map(|name| quoted(name)).collect();
    let in_python = match refused.is_empty() {
        true => String::new(),
        false => format!(
            "; in Python `{}`, without {}",
            setting.python,
            refused.join(", ")
        ),
    };
    let (name, default) = (setting.name, setting.default);
    format!(
        "`{name}` (`{default}`; or {}{in_python})",
        others.join(", ")
    )
}

fn named(choice: &Choice) -> String {
    let function = match choice.function {
        "" => String::new(),
        function => format!(" (also a function, `{function}`)"),
    };
    item(
        &format!("`{}`", choice.name),
        &format!("{}{function}", choice.doc),
    )
}

fn list<T>(things: &[T], written: impl Fn(&T) -> String) -> String {
    things.iter().map(written).collect::<Vec<_>>().join(", ")
}

fn item(name: &str, text: &str) -> String {
    let wrapped = wrap(&MARKUP.render(&format!("{name}: {text}")), "  ", WIDTH);
    wrapped.replacen("  ", "- ", 1)
}

fn paragraph(text: &str) -> String {
    wrap(&MARKUP.render(text), "", WIDTH)
}
