//! The computations of flashcliff: the algebras that it ships, its operators as programs, their derivatives, and the
//! order in which a row is computed. The crate `flashcliff-codegen` makes CPU and GPU code of them.
//!
//! [`operators`] holds the operators, a file each: small programs over the blades of a multivector, with rows of the table and
//! references. [`spec`] holds the algebras, and what is compiled for them. [`ir`] holds programs, their derivatives and costs. [`plan`]
//! decides what a kernel stores and recomputes. [`mod@reference`] holds what references compute with. [`selection`] reads which algebras a
//! build asks for. Everything is deterministic; this crate does no I/O and depends on `cayley`, the words of the table, a hash function
//! and the error function only.

#![forbid(unsafe_code)]

pub mod ir;
pub mod operators;
pub mod plan;
pub mod reference;
pub mod rotor;
pub mod selection;
pub mod spec;
