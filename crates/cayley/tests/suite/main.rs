//! Tests of the exact algebra, from exhaustive axioms to hand-written tables.
//!
//! `axioms`, `involutions`, `products`, `duality` and `paths` range over every signature with
//! p + q + r <= 6. `matrices` compares the product tables with matrix representations that share no
//! code with the crate, and shows that a wrong table is reported. `equivariant` compares the maps that commute with a
//! group with the linear system that defines them, which `commutant` solves.

mod axioms;
mod basis;
mod commutant;
mod duality;
mod equivariant;
mod equivariant_elements;
mod equivariant_lists;
mod errors;
mod extremes;
mod grades;
mod involutions;
mod matrices;
mod paths;
mod products;
mod support;
mod tables;
