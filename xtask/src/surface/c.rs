//! The header of the C interface: its functions, and what the table says of operators.

use flashcliff_operators::{Kind, Operator, Presence, Setting};
use flashcliff_program::operators::OPERATORS;

use super::accepted;
use super::text::{Markup, wrap};

/// The functions and types, with a line in the place of the operators.
const TEMPLATE: &str = include_str!("flashcliff.h.txt");
const PLACE: &str = "@OPERATORS@\n";

/// Text of a comment in C.
const PLAIN: Markup = Markup {
    operator: |name| name.to_owned(),
    code: "",
};

pub(super) fn header() -> String {
    let operators: Vec<String> = OPERATORS.iter().map(row).collect();
    TEMPLATE.replace(PLACE, &operators.join("\n"))
}

fn row(operator: &Operator) -> String {
    let mut text = "/*\n".to_owned();
    let mut paragraph = |words: &str| text += &wrap(&PLAIN.render(words), " * ", 100);
    paragraph(operator.title);
    if !operator.formula.is_empty() {
        paragraph(operator.formula);
    }
    for input in operator.inputs {
        let presence = match input.presence {
            Presence::Always => String::new(),
            Presence::WithBias => ", unless bias=none".to_owned(),
            Presence::With(flag) => format!(", if {flag}=true"),
        };
        paragraph(&format!("- input {} {}{presence}", input.name, input.shape));
    }
    paragraph(&format!("- output {}", operator.output));
    for setting in operator.options.settings() {
        paragraph(&format!(
            "- setting {}={}: {}; default {}",
            setting.name,
            values(operator, setting),
            setting.doc.trim_end_matches('.'),
            setting.default
        ));
    }
    let name = operator.name;
    text += &format!(" */\n#define FC_{} \"{name}\"\n", name.to_uppercase());
    text
}

/// The values of a setting.
fn values(operator: &Operator, setting: &Setting) -> String {
    match setting.kind {
        Kind::Choice(_) => {
            let accepted = accepted::choices(operator, setting).into_iter();
            let names: Vec<&str> = accepted.map(|choice| choice.name).collect();
            names.join("|")
        }
        Kind::Number => "NUMBER".to_owned(),
        Kind::Flag => "true|false".to_owned(),
        Kind::Grades => "GRADES".to_owned(),
        Kind::Bytes => "BYTES".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_is_described_once() {
        let header = header();
        assert!(!header.contains(PLACE.trim()));
        for operator in OPERATORS {
            let line = format!("#define FC_{} ", operator.name.to_uppercase());
            assert_eq!(header.matches(&line).count(), 1, "{line}");
        }
        // A comment cannot hold the end of one.
        assert_eq!(header.matches("/*").count(), header.matches("*/").count());
        assert!(header.contains("- setting gate=none|gelu|gelu_tanh|silu|gelu_fast"));
    }
}
