//! The tables of an algebra as text.

use std::collections::BTreeSet;

use cayley::{Algebra, ProductKind};
use flashcliff::SYMMETRIES;

use super::graph;
use crate::output::{Align, Table};

/// The largest dimension for which costs are shown. Above it the expression graphs of all operators take longer to build than a reader
/// wants to wait.
const COST_DIM: usize = 6;

/// The blades, paths, products, involutions and costs of an algebra.
pub(super) fn overview(algebra: &Algebra) -> String {
    let signature = algebra.signature();
    let kernels = match flashcliff::Algebra::new(signature) {
        Ok(algebra) if algebra.is_compiled() => "kernels: compiled".to_owned(),
        Ok(_) => "kernels: none compiled, operators are interpreted".to_owned(),
        Err(error) => error.to_string(),
    };
    [
        format!(
            "{signature}, {}: {} vectors, {} blades, {} grades, {} paths\n{kernels}\n",
            signature.name(),
            algebra.dim(),
            algebra.blade_count(),
            algebra.grade_count(),
            algebra.paths().len()
        ),
        squares(algebra),
        blades(algebra),
        paths(algebra),
        products(algebra),
        complements(algebra),
        symmetries(algebra),
        operators(algebra),
    ]
    .join("\n")
}

/// The table of all products of two blades, with the left one in the first column.
pub(super) fn product_table(algebra: &Algebra, kind: ProductKind) -> String {
    let names: Vec<String> = (0..algebra.blade_count())
        .map(|i| algebra.blade_name(i))
        .collect();
    let mut columns = vec![(kind.name(), Align::Left)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for left in 0..names.len() {
        let cells = (0..names.len()).map(|right| match algebra.multiply_with(kind, left, right) {
            None => "0".to_owned(),
            Some((output, sign)) => signed(sign, &names[output]),
        });
        table.row([names[left].clone()].into_iter().chain(cells));
    }
    table.render()
}

fn signed(sign: i8, name: &str) -> String {
    format!("{}{name}", if sign < 0 { "-" } else { "" })
}

fn squares(algebra: &Algebra) -> String {
    let vectors = algebra.grade_range(1).enumerate();
    let squares = vectors.map(|(position, index)| {
        let square = algebra.signature().square(position);
        format!("{}^2 = {square}", algebra.blade_name(index))
    });
    format!("squares: {}\n", squares.collect::<Vec<_>>().join(", "))
}

fn blades(algebra: &Algebra) -> String {
    let mut table = Table::new(&[
        ("grade", Align::Right),
        ("blades", Align::Left),
        ("reverse", Align::Right),
        ("involution", Align::Right),
        ("conjugate", Align::Right),
    ]);
    for grade in 0..algebra.grade_count() {
        let range = algebra.grade_range(grade);
        let first = range.start;
        let names: Vec<String> = range.map(|i| algebra.blade_name(i)).collect();
        table.row([
            grade.to_string(),
            names.join(" "),
            algebra.reverse_sign(first).to_string(),
            algebra.grade_involution_sign(first).to_string(),
            algebra.clifford_conjugate_sign(first).to_string(),
        ]);
    }
    table.render()
}

fn paths(algebra: &Algebra) -> String {
    let paths: Vec<String> = algebra.paths().iter().map(ToString::to_string).collect();
    format!(
        "paths (grades left, output, right, in the order of weights): {}\n",
        paths.join(" ")
    )
}

fn products(algebra: &Algebra) -> String {
    let mut table = Table::new(&[
        ("product", Align::Left),
        ("terms", Align::Right),
        ("flops, a lane", Align::Right),
    ]);
    for kind in ProductKind::ALL {
        let terms = algebra.product(kind);
        let outputs: BTreeSet<usize> = terms.iter().map(|term| term.output).collect();
        // Each term takes a multiplication, and each term but the first of an output an addition.
        let flops = 2 * terms.len() - outputs.len();
        table.row([
            kind.name().to_owned(),
            terms.len().to_string(),
            flops.to_string(),
        ]);
    }
    table.render()
}

fn complements(algebra: &Algebra) -> String {
    let images = (0..algebra.blade_count()).map(|from| {
        let (to, sign) = algebra.dual(from);
        format!(
            "{} -> {}",
            algebra.blade_name(from),
            signed(sign, &algebra.blade_name(to))
        )
    });
    format!("dual: {}\n", images.collect::<Vec<_>>().join(", "))
}

/// The transformations that the operators commute with, in this algebra.
fn symmetries(algebra: &Algebra) -> String {
    let mut table = Table::new(&[
        ("commutes with", Align::Left),
        ("option", Align::Left),
        ("operators", Align::Left),
    ]);
    for row in SYMMETRIES {
        table.row([
            row.of(algebra).to_string(),
            row.option.unwrap_or("").to_owned(),
            row.operators.join(" "),
        ]);
    }
    table.render()
}

fn operators(algebra: &Algebra) -> String {
    if algebra.dim() > COST_DIM {
        return format!(
            "costs of the other operators are counted up to {COST_DIM} vectors; --dot gives the graph of one\n"
        );
    }
    let mut table = Table::new(&[
        ("operator, a lane", Align::Left),
        ("flops", Align::Right),
        ("add", Align::Right),
        ("multiply", Align::Right),
        ("divide, root", Align::Right),
        ("functions", Align::Right),
        ("flops of gradient", Align::Right),
    ]);
    for operator in graph::costs(algebra) {
        let forward = operator.forward;
        let counts = [
            forward.flops(),
            forward.additions,
            forward.multiplications,
            forward.divisions,
            forward.transcendentals,
            operator.backward.flops(),
        ];
        let counts = counts.iter().map(ToString::to_string);
        table.row([operator.name].into_iter().chain(counts));
    }
    table.render()
}
