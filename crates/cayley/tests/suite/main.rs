//! Tests of the exact algebra, from exhaustive axioms to hand-written tables.
//!
//! `axioms`, `involutions`, `products`, `duality` and `paths` range over every signature with
//! p + q + r <= 6. `matrices` compares the product tables with matrix representations that share no
//! code with the crate, and shows that a wrong table is reported.

mod axioms;
mod basis;
mod duality;
mod errors;
mod grades;
mod involutions;
mod matrices;
mod paths;
mod products;
mod support;
mod tables;
