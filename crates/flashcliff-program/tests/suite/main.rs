//! Tests of the programs: their results, their costs, and how they are cut into stages.
//!
//! `adjoints` checks derivatives, first and second, by differences, and `derive` those that are programs of their
//! own. `counts` checks the costs of programs, `digest` their keys. `table` finds operators by their names.
//! `extremes` asks for what is none. `mutation` damages planned programs, one sign or term at a time, and demands
//! that `oracle`, which computes every operator by its reference, notices. `rows` has programs with one number for
//! each row. `basis` compares what references multiply with to published tables.

mod additions;
mod adjoints;
mod basis;
mod counts;
mod derive;
mod digest;
mod extremes;
mod mutation;
mod oracle;
mod rotors;
mod rows;
mod stages;
mod support;
mod table;
mod widths;
