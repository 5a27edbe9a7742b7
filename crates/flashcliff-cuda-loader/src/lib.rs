//! CUDA's libraries for programs with candle. Each library is looked for at the first call of its functions.
//!
//! candle asks cudarc for its functions at link time, so a program with candle's feature `cuda` names
//! `libcuda`, cuBLAS, cuRAND and NVRTC as libraries without which it does not start. This crate defines
//! those functions instead. Each function jumps through a pointer. At first the pointer leads to a search for the library, and
//! then into the library. Without the library a function returns the code by which the library itself says that it is not there
//! (`Library`), and cudarc and candle report that as an error. So the program starts everywhere, and no library has to be
//! installed to build it.
//!
//! All of this needs the feature `link`. The functions, all that cudarc declares, are in `symbols`. The linker finds empty archives under
//! the names of the libraries; the build script tells it where.

#[cfg(feature = "link")]
mod library;
#[cfg(feature = "link")]
mod record;

#[cfg(feature = "link")]
pub use library::Library;
