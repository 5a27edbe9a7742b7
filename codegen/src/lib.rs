//! Generates the kernels of flashcliff: text in, text out.
//!
//! [`spec`] holds the algebras and, as small programs over the blades of a multivector, the
//! operators; [`ir`] the programs, their derivatives and costs; [`plan`] decides what a kernel
//! stores and recomputes; [`emit`] writes source text. Output is deterministic, byte for byte.
//! This crate does no I/O: `cargo xtask gen` writes the files.

#![forbid(unsafe_code)]

pub mod emit;
pub mod ir;
pub mod plan;
pub mod spec;
