//! The table of symmetries: rows of the library, and the page of the documentation.

use flashcliff_operators::Law;
use flashcliff_program::operators::ENTRIES;

use super::rust::HEADER;
use crate::Error;
use crate::marked::with_block;

/// The page that has the table.
pub(super) const PAGE: &str = "docs/equivariance.md";
const START: &str = "<!-- symmetries: written by cargo xtask gen -->\n";

/// Operators with the same law.
struct Group {
    operators: Vec<&'static str>,
    /// The setting with its choice, in words.
    option: Option<String>,
    law: Law,
}

/// The laws of all operators. Laws for options come after laws without options, since they break more symmetries.
fn groups() -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for entry in ENTRIES {
        let functions: Vec<&str> = entry
            .row
            .functions()
            .map(|(_, choice)| choice.function)
            .collect();
        let names = match functions.is_empty() {
            true => vec![entry.row.name],
            false => functions,
        };
        for law in entry.symmetry {
            let has_own =
                |name: &&str| entry.symmetry.iter().any(|law| law.function == Some(*name));
            let own: Vec<&str> = match law.function {
                Some(function) => vec![function],
                None => names
                    .iter()
                    .copied()
                    .filter(|name| !has_own(name))
                    .collect(),
            };
            let option = law
                .option
                .map(|(setting, choice)| format!("{setting} {choice}"));
            let same = |group: &&mut Group| {
                let law_of_group = (group.law.definite, group.law.otherwise);
                group.option == option && law_of_group == (law.definite, law.otherwise)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.operators.extend(own),
                None => groups.push(Group {
                    operators: own,
                    option,
                    law: *law,
                }),
            }
        }
    }
    groups.sort_by_key(|group| group.option.is_some());
    groups
}

/// The rows of the library.
pub(super) fn rows() -> String {
    let mut text = HEADER.to_owned();
    text += "use super::{Symmetry, SymmetryRow};\n\n";
    text += "/// Every operator with the transformations that it commutes with. An operator without a row for one of\n";
    text += "/// its options has that of the row without an option.\n";
    text += "pub const SYMMETRIES: &[SymmetryRow] = &[\n";
    for group in groups() {
        let names: String = group
            .operators
            .iter()
            .map(|name| format!("            \"{name}\",\n"))
            .collect();
        let option = match &group.option {
            Some(option) => format!("Some(\"{option}\")"),
            None => "None".to_owned(),
        };
        text += &format!(
            "    SymmetryRow {{\n        operators: &[\n{names}        ],\n        option: {option},\n        \
             definite: Symmetry::{:?},\n        otherwise: Symmetry::{:?},\n    }},\n",
            group.law.definite, group.law.otherwise
        );
    }
    text + "];\n"
}

/// The page with the table of today between its marks.
pub(super) fn with_table(page: &str) -> Result<String, Error> {
    let mut text = "\n| operators | where all vectors square to one sign | in other algebras |\n|---|---|---|\n".to_owned();
    for group in groups() {
        let names = group.operators.iter().map(|name| format!("`{name}`"));
        let option = group.option.as_ref();
        let option = option.map_or(String::new(), |option| format!(", with {option}"));
        text += &format!(
            "| {}{option} | {} | {} |\n",
            names.collect::<Vec<_>>().join(", "),
            group.law.definite,
            group.law.otherwise
        );
    }
    with_block(PAGE, page, START, &(text + "\n"))
}
