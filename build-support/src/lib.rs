//! Finding the CUDA toolkit, and how to call its compiler. For build scripts, and the tasks of the
//! repository; nothing that runs on a user's machine depends on it.
//!
//! - [`Toolkit::find`] looks for nvcc, the CUDA compiler, and for the library that programs link.
//! - [`architectures`] says which GPUs to compile for.
//! - [`nvcc_flags`] are the flags of every compilation.
//! - [`cuda_sources`] lists what to compile, [`Ingredients`] tells when to compile it again.
//!
//! What the search depends on comes in as an [`Environment`]; only its constructors read the
//! environment of the process.

#![forbid(unsafe_code)]

mod architecture;
mod environment;
mod error;
mod flags;
mod sources;
mod toolkit;
mod version;

pub use architecture::{
    ARCHITECTURES_VARIABLE, Architecture, DEFAULT_ARCHITECTURES, Source, architectures, names,
};
pub use environment::Environment;
pub use error::Error;
pub use flags::nvcc_flags;
pub use sources::{Ingredients, cuda_sources};
pub use toolkit::{INSTALLED_TOOLKIT, OLDEST_NVCC, Toolkit};
pub use version::Version;
