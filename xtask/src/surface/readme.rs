//! The table of operators in the README.

use flashcliff_operators::Section;
use flashcliff_program::operators::OPERATORS;

use crate::Error;
use crate::marked::with_block;

const START: &str = "<!-- operators: written by cargo xtask gen -->\n";

/// The README with the table of today between its marks.
pub(super) fn with_table(readme: &str) -> Result<String, Error> {
    with_block("README.md", readme, START, &table())
}

fn table() -> String {
    let mut text = "| operators | from |\n|---|---|\n".to_owned();
    let sections = [
        (
            Section::Fused,
            "flash-clifford and CGENN, fused with gates and norms",
        ),
        (Section::Cgenn, "CGENN's layers"),
        (
            Section::Product,
            "products without weights, between any grades",
        ),
        (Section::Unary, "functions of one multivector"),
    ];
    for (section, about) in sections {
        let names = OPERATORS
            .iter()
            .filter(|operator| operator.section == section)
            .map(|operator| format!("`{}`", operator.name));
        text += &format!("| {} | {about} |\n", names.collect::<Vec<_>>().join(", "));
    }
    text
}
