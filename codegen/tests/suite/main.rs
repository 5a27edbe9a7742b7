//! Tests of the generator, from single programs to a crate built for a signature that is not
//! shipped.
//!
//! `adjoints` checks derivatives, first and second, by differences; `counts` what programs cost;
//! `golden` whole generated files; `emitted` their form. `mutation` damages planned programs, one
//! sign or term at a time, and demands that `oracle`, which computes every operator from its
//! formula, notices.

mod adjoints;
mod counts;
mod emitted;
mod golden;
mod mutation;
mod new_signature;
mod oracle;
mod stages;
mod support;
