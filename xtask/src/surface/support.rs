//! The table of operators on the page of what runs where.

use flashcliff_operators::Operator;
use flashcliff_program::operators::{ENTRIES, Entry};

use crate::Error;
use crate::marked::with_block;

/// The page that has the table.
pub(super) const PAGE: &str = "docs/support.md";
const START: &str = "<!-- operators: written by cargo xtask gen -->\n";

/// The page with the table of today between its marks: a row for operators that are alike.
pub(super) fn with_table(page: &str) -> Result<String, Error> {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for entry in ENTRIES {
        let cells = cells(entry);
        match rows.iter_mut().find(|(own, _)| *own == cells) {
            Some((_, names)) => names.extend(names_of(&entry.row)),
            None => rows.push((cells, names_of(&entry.row))),
        }
    }
    let mut text =
        "\n| operators | derivatives above the first gradient, PyTorch | multivectors under autocast on CUDA | Triton |\n\
         |---|---|---|---|\n"
            .to_owned();
    for (cells, names) in rows {
        text += &format!("| {} | {cells} |\n", names.join(", "));
    }
    with_block(PAGE, page, START, &(text + "\n"))
}

/// The operator, and the functions that stand for one of its choices.
fn names_of(operator: &Operator) -> Vec<String> {
    let functions = operator.functions().map(|(_, choice)| choice.function);
    let names = std::iter::once(operator.name).chain(functions);
    names.map(|name| format!("`{name}`")).collect()
}

fn cells(entry: &Entry) -> String {
    let derivatives = match (entry.row.gradient.linear, entry.lanes) {
        (true, _) => "zero",
        (_, Some(_)) => "programs",
        (_, None) => "operations of PyTorch",
    };
    let autocast = match entry.row.autocast {
        true => "in its type",
        false => "as they are",
    };
    let triton = match entry.lanes {
        Some(_) => "yes",
        None => "no",
    };
    format!("{derivatives} | {autocast} | {triton}")
}
