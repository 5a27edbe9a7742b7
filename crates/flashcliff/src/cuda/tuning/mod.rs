//! Tuning: faster choices for calls of certain shapes on a certain GPU, found by measuring.
//!
//! For a matrix product cuBLASLt proposes several algorithms, and its heuristics do not always know the
//! fastest. A [`Tuner`] runs them within the pass that they belong to, and keeps those that are faster and right.
//! What it found goes to a file of the user's, and a [`Device`] reads it when it is opened.
//!
//! # Tables
//! A choice is looked up in the table of the user, then in the one that is built in for the GPU, then left to the
//! heuristics. The table of the user is `tuning/<gpu>.json` in `$FLASHCLIFF_CACHE_DIR`, or else in `flashcliff`
//! in the cache folder of the system (`$XDG_CACHE_HOME`, `~/.cache`). `FLASHCLIFF_TUNING=builtin` leaves the user's
//! table out, `FLASHCLIFF_TUNING=none` both. A file that is broken is as if it were missing
//! ([`Tables::file_state`]); an entry that cuBLASLt does not take any more is not used ([`Tables::ignored`]).
//!
//! Algorithms belong to a version of cuBLASLt. They are used if the version, what they say of themselves and
//! `cublasLtMatmulAlgoCheck` agree, and only if they add in a fixed order.
//!
//! # What is right
//! Both passes of the operator are compared with `f64` on the same inputs. The largest and the root of the mean
//! square of the differences stay within what rounding explains: of the sums, of the type in memory, and four times what
//! inputs change that are off by what the precision rounds. No candidate may be less accurate than the
//! heuristics' choice by more than a factor of 2 in the root of the mean square. And results must be the same
//! bit for bit in every run.
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
// What is below these is tested without a GPU: `tests/unit.rs`.
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

/// Looks at every entry of the tables of a device, so that [`Tables::ignored`] knows all that are not used.
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
            // A problem that is none.
            Err(error) => tables.ignore(source, problem, &error.to_string()),
        }
    }
    Ok(())
}
