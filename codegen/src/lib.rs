//! Emits the kernels of flashcliff: plans in, text out.
//!
//! [`emit`] writes Rust for CPUs, CUDA C for GPUs, Triton for other accelerators and Graphviz for readers, from the programs and plans of
//! `flashcliff-program`. Output is deterministic, byte for byte. This crate does no I/O: build scripts and
//! `cargo xtask gen` write the files.
//!
//! The feature `review` formats emitted Rust and keeps its comments, for the committed review copies. Build scripts do
//! not need it, since compilers need neither.

#![forbid(unsafe_code)]

pub mod emit;
mod error;

pub use error::Error;
