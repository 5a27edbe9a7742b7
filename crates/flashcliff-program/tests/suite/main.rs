//! Tests of the programs: what they compute, what they cost, how they are cut into stages.
//!
//! `adjoints` checks derivatives, first and second, by differences; `counts` what programs cost.
//! `mutation` damages planned programs, one sign or term at a time, and demands that `oracle`, which
//! computes every operator from its formula, notices.

mod adjoints;
mod counts;
mod mutation;
mod oracle;
mod stages;
mod support;
