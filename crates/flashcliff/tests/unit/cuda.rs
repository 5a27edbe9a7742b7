//! The files of `src/cuda` that need no GPU, at the same paths as there.

#[path = "../../src/cuda/files.rs"]
pub(crate) mod files;
pub(crate) mod jit;
pub(crate) mod matmul;
pub(crate) mod tuning;
