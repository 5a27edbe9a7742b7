//! The C interface of the CUDA kernels of flashcliff, unchanged. Programs use `flashcliff` with its feature `cuda`; this crate
//! checks nothing.
//!
//! # Building
//! Without features this crate is declarations only, which need no CUDA; a program that calls them does
//! not link. Feature `link` generates the kernels of the algebras that features name (`all-algebras` for all that
//! flashcliff ships), compiles them and those in `cuda/` with nvcc, which takes minutes, and links
//! them and the CUDA runtime statically. The program needs no CUDA library to start. Without a GPU or a
//! driver the functions return an error code (`cudaErrorInsufficientDriver` is 35).
//!
//! nvcc 12.8 or later is looked for in this order; a variable that points to nothing is an error:
//!
//! | place | |
//! |---|---|
//! | `FLASHCLIFF_NVCC`, `NVCC` | a path, or a name to look up in `PATH` |
//! | `CUDA_HOME`, `CUDA_PATH` | a folder with `bin/nvcc` |
//! | `PATH` | |
//! | `/usr/local/cuda` | |
//! | `cuda-toolkit` in cargo's build folder | `cargo xtask cuda-toolkit` installs it |
//!
//! Further variables:
//!
//! | variable | |
//! |---|---|
//! | `FLASHCLIFF_ALGEBRAS` | signatures beside the signatures of the features, such as `1,1,1;2,1,0` |
//! | `FLASHCLIFF_CUDA_ARCHS` | what to compile for: some of `80,86,89,90a,100,120,ptx80` |
//! | `FLASHCLIFF_SKIP_CUDA_BUILD` | unless `0`: compiles and links nothing in spite of feature `link` |
//! | `NVCC_APPEND_FLAGS` | more arguments, read by nvcc itself, such as `-lineinfo` for profilers |
//! | `CXX` | the host compiler |
//!
//! The default of `FLASHCLIFF_CUDA_ARCHS` is `80,90a,100,120,ptx80`: 80 serves 86 and 89 too, and other GPUs compile the
//! portable code when a program starts. `FLASHCLIFF_SKIP_CUDA_BUILD` is for documentation and lints on machines without
//! nvcc: programs do not link with it.
//!
//! # Safety
//! Every function is as unsafe as its C original: pointers must be valid where the
//! headers in `cuda/` say so, on the device of the current CUDA context, until the work on the stream is done.
#![no_std]

#[rustfmt::skip]
#[allow(
    missing_docs,
    non_camel_case_types,
    clippy::undocumented_unsafe_blocks,
    reason = "names and comments are those of the C headers, and the generator documents no block"
)]
mod bindings;
mod skeleton;

pub use bindings::*;
pub use skeleton::SKELETON;
