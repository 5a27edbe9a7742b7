//! Finds the CUDA toolkit, and the arguments for its compiler. It is for build scripts and the tasks of the repository;
//! nothing that runs on a user's machine depends on it.
//!
//! - [`Toolkit::find`] looks for nvcc, the CUDA compiler, and for the library that programs link.
//! - [`architectures`] says which GPUs to compile for.
//! - [`nvcc_flags`] are the flags of every compilation; [`Source`] is the kind of a file, on which they depend.
//! - [`cuda_sources`] lists the files to compile, [`Ingredients`] tells when to compile one again.
//!
//! The search gets its inputs as an [`Environment`]. Only the constructors of that type read the environment of the
//! process.

#![forbid(unsafe_code)]

mod architecture;
mod environment;
mod error;
mod flags;
mod source;
mod sources;
mod toolkit;
mod version;

pub use architecture::{
    ARCHITECTURES_VARIABLE, Architecture, DEFAULT_ARCHITECTURES, architectures, names,
};
pub use environment::Environment;
pub use error::Error;
pub use flags::nvcc_flags;
pub use source::Source;
pub use sources::{Ingredients, cuda_sources};
pub use toolkit::{INSTALLED_TOOLKIT, OLDEST_NVCC, Toolkit};
pub use version::Version;
