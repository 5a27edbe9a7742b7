//! Tuning: faster choices for calls of certain shapes on a certain GPU.
//!
//! For a matrix product cuBLASLt proposes several algorithms, and its heuristics do not always know the fastest. The
//! program `flashcliff tune`, or the crate `flashcliff-tuner`, measures them and stores the fastest in a file of the
//! user, and a [`Device`] reads it when it is opened.
//!
//! # Tables
//! A choice is looked up in the table of the user, then in the built-in table of the GPU. If neither has it, the
//! heuristics choose. The table of the user is `tuning/<gpu>.json` in `$FLASHCLIFF_CACHE_DIR`, or else in `flashcliff`
//! in the cache folder of the system (`$XDG_CACHE_HOME`, `~/.cache`). With `FLASHCLIFF_TUNING=builtin` the user's table
//! is not read, with `FLASHCLIFF_TUNING=none` neither table. A broken file is treated as a missing one
//! ([`Tables::file_state`]). An entry that cuBLASLt no longer takes is not used ([`Tables::ignored`]).
//!
//! Algorithms belong to a version of cuBLASLt. An algorithm is used only if its version, its configuration and
//! `cublasLtMatmulAlgoCheck` agree, and if it adds in a fixed order.
//!
//! # Search
//! A [`WatchedDevice`] says which choices the calls on it ask for, and takes others in their place. A
//! [`MatrixProduct`] is the bound that speeds are compared with. A search needs no more of this crate.

mod product;
mod watched;

pub use product::MatrixProduct;
pub use watched::{Candidate, Seen, WatchedDevice};

use super::Device;
pub use super::matmul::Knob;
use crate::Error;
pub use crate::tuning_table::{
    Algorithm, CACHE_DIR_VARIABLE, Configuration, FileError, FileState, Gpu, Ignored, KnobKey,
    Measured, Place, Problem, Source, TUNING_VARIABLE, Table, Tables, check_save, forget, read,
    save,
};

/// Checks every entry of the tables of a device, so that [`Tables::ignored`] lists all that are not used.
///
/// # Errors
/// [`Error::CudaLibrary`] without cuBLASLt, [`Error::Cuda`].
pub fn check(device: &Device) -> Result<(), Error> {
    let tables = device.tuning();
    if tables.algorithms().next().is_none() {
        return Ok(());
    }
    device.make_current()?;
    let blas = device.blas()?;
    for (source, problem, algorithm) in tables.algorithms() {
        match blas.plan_with(problem, algorithm) {
            Ok(Ok(_)) => {}
            Ok(Err(reason)) => tables.ignore(source, problem, &reason),
            // The problem of the entry is not valid.
            Err(error) => tables.ignore(source, problem, &error.to_string()),
        }
    }
    Ok(())
}
