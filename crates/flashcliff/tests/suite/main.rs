//! Tests of the operators through the public API, every shipped algebra, element type and tier.
//!
//! `reference` is the reference in the file of each operator: plain loops from its formula, which share no code with
//! programs and kernels; `numbers` gives it error bounds, beside exact integers and derivatives. `compare`
//! holds the comparators, each with a test in which it must fail; `harness` runs an operator with
//! dirty, guarded and misaligned buffers. `differential` draws whole calls from a seed. `sweep` has calls
//! with numbers of every size, which `plain` judges by what the plain formula gives in `f32`; the tests on
//! a GPU share both.

mod adding;
mod beside;
mod cases;
mod compare;
mod derivatives;
mod determinism;
mod differential;
mod equivariance;
mod forward;
mod gradients;
mod harness;
mod higher;
mod higher_cases;
mod interpreted;
mod large;
mod largest;
mod linear_sgp;
mod magnitudes;
mod measured_symmetry;
mod memory;
mod messages;
mod misuse;
mod misuse_parts;
mod misuse_table;
mod numbers;
mod of_rows;
mod own_programs;
mod plain;
mod random;
mod reference;
mod runs;
mod slim_norm;
mod sweep;
mod symmetries;
mod table;
mod tape;
mod versors;
mod widths;
mod zero;
