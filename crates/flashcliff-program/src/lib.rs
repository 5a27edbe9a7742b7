//! What flashcliff computes: the algebras it ships, its operators as programs, their derivatives, and the
//! order in which a row is computed. How a CPU or a GPU computes it is the matter of `flashcliff-codegen`.
//!
//! [`spec`] holds the algebras and, as small programs over the blades of a multivector, the
//! operators; [`ir`] the programs, their derivatives and costs; [`plan`] decides what a kernel
//! stores and recomputes. [`selection`] reads which algebras a build asks for. Everything is
//! deterministic; this crate does no I/O and has no dependency but `cayley`.

#![forbid(unsafe_code)]

pub mod ir;
pub mod plan;
pub mod selection;
pub mod spec;
