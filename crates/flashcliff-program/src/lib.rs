//! The computations of flashcliff: the algebras that it ships, its operators as programs, their derivatives, and the
//! order in which a row is computed. The crate `flashcliff-codegen` makes CPU and GPU code of them.
//!
//! [`spec`] holds the algebras and the operators, which are small programs over the blades of a multivector. [`ir`]
//! holds programs, their derivatives and costs. [`plan`] decides what a kernel stores and recomputes. [`selection`]
//! reads which algebras a build asks for. Everything is deterministic; this crate does no I/O and depends on `cayley`
//! and a hash function only.

#![forbid(unsafe_code)]

pub mod ir;
pub mod plan;
pub mod selection;
pub mod spec;
