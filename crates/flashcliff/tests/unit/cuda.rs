//! The files of `src/cuda` that need no GPU, at the same paths as there.

pub(crate) mod jit;
pub(crate) mod matmul;
