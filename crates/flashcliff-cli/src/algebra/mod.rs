//! `flashcliff algebra`: everything about an algebra that is known before anything runs: tables, symmetries and costs.
//!
//! * `json` - the tables for programs.
//! * `text` - the tables for readers.
//! * `graph` - expression graphs of operators, and their costs.

mod graph;
mod json;
mod text;

use cayley::{Algebra, ProductKind, Signature};
use clap::Args;

use crate::error::Error;
use crate::output::print;

/// Show an algebra: blades, paths, product tables, what operators commute with, and what they cost. Any signature of
/// up to 8 dimensions, compiled or not.
#[derive(Debug, Args)]
pub(crate) struct AlgebraArgs {
    /// Vectors that square to +1, -1 and 0: 3,0,1 or cl301.
    signature: Signature,

    /// Print JSON: blades, grades, paths [left, output, right], products [left, right, output, sign], signs of the
    /// involutions, dual [from, to, sign].
    #[arg(long, conflicts_with_all = ["dot", "table"])]
    json: bool,

    /// Print the optimised expression graph of an operator, for Graphviz.
    #[arg(long, conflicts_with = "table")]
    dot: bool,

    /// The operator of --dot; an unknown name lists all operators.
    #[arg(long, value_name = "NAME", default_value = "sgp", requires = "dot")]
    operator: String,

    /// Print the gradient of the operator, with --dot.
    #[arg(long, requires = "dot")]
    grad: bool,

    /// Print the whole table of one product: geometric, exterior, regressive, left_contraction, right_contraction, scalar or commutator.
    #[arg(long, value_name = "PRODUCT")]
    table: Option<ProductKind>,
}

/// Runs the command.
///
/// # Errors
/// An operator that does not exist; standard output that cannot be written.
pub(crate) fn run(args: &AlgebraArgs) -> Result<(), Error> {
    let algebra = Algebra::new(args.signature);
    print(&match args.table {
        _ if args.json => json::render(&algebra)?,
        _ if args.dot => graph::dot(&algebra, &args.operator, args.grad)?,
        Some(kind) => text::product_table(&algebra, kind),
        None => text::overview(&algebra),
    })
}
