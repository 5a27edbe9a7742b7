//! Tuning: faster choices for calls of certain shapes on a certain GPU, found by measuring.
//!
//! For a matrix product cuBLASLt proposes several algorithms, and its heuristics do not always know the fastest. A
//! [`Tuner`] runs the algorithms within the pass that they belong to, and keeps those that are faster and right. The
//! choices go to a file of the user, and a [`Device`] reads it when it is opened.
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
//! # What is right
//! Both passes of the operator are compared with `f64` on the same inputs. The largest difference and the root of the
//! mean square must stay within what rounding explains: the rounding of sums, the rounding to the type in memory, and
//! four times the change of the results when inputs are moved by what the precision rounds. In the root of the mean
//! square, no candidate may be less accurate than the heuristics' choice by more than a factor of 2. Results must be
//! the same bit for bit in every run.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use flashcliff::cuda::tuning::{Settings, Tuner, Workload};
//! use flashcliff::cuda::{Device, MatmulPrecision};
//! use flashcliff::{Algebra, Dims, Dtype, Signature, ops};
//!
//! let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
//! let mut tuner = Tuner::new(&Device::cuda(0)?, Settings::default())?;
//! let workload = Workload {
//!     operator: ops::mv_linear(algebra, &ops::LinearOptions::default())?,
//!     dims: Dims { batch: 4096, in_channels: 512, out_channels: 512 },
//!     dtype: Dtype::F32,
//!     precision: MatmulPrecision::Tf32,
//! };
//! tuner.tune(&workload, &mut |trial| {
//!     println!("{}: {}", trial.subject, trial.verdict);
//!     ControlFlow::Continue(())
//! })?;
//! tuner.save()?;
//! # Ok::<(), flashcliff::Error>(())
//! ```

mod call;
mod clock;
mod knob;
mod numbers;
mod roofline;
mod session;
mod tuner;
// The modules below need no GPU and are tested without one: `tests/unit.rs`.
mod search;
pub(in crate::cuda) mod table;

pub use roofline::Roofline;
pub use search::{Effort, Times, Verdict, Wrong};
pub use session::Trial;
pub use table::{
    Algorithm, CACHE_DIR_VARIABLE, Configuration, FileError, FileState, Gpu, Ignored, KnobKey,
    Place, Source, TUNING_VARIABLE, Table, Tables, forget, read, save,
};
pub use tuner::{Outcome, PassTimes, Saved, Settings, Tuner, Workload};

use super::Device;
use crate::Error;

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
