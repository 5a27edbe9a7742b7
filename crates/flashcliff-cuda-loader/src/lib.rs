//! CUDA's libraries for programs with candle, looked for at their first call.
//!
//! candle asks cudarc for its functions at link time, so a program with candle's feature `cuda` names
//! `libcuda`, cuBLAS, cuRAND and NVRTC as libraries without which it does not start. This crate defines
//! those functions instead. Each jumps through a pointer, which at first leads to a search for the
//! library and then into it. Without the library a function returns the code by which the library itself
//! says that it is not there (`Library`), which cudarc and candle report as an error. So the program
//! starts everywhere, and no library has to be installed to build it.
//!
//! All of it is behind the feature `link`. The functions are in `symbols`, all that cudarc declares. The linker finds empty archives under the
//! names of the libraries; the build script says where.

#[cfg(feature = "link")]
mod library;
#[cfg(feature = "link")]
mod record;

#[cfg(feature = "link")]
pub use library::Library;
