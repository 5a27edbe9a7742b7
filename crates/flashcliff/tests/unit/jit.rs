//! The cache of kernels that are compiled when they are used, and their texts.

#[path = "../../src/cuda/jit/cache.rs"]
mod cache;
#[path = "../../src/cuda/jit/source.rs"]
mod source;
